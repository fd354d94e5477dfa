"""A listing of an object store past keys that its library cannot read: of a page with one, it lists nothing.

Such keys are `inbox//file`, `inbox/./file` and `inbox/../file`, from programs that join a prefix and a name. They sort
before all names that begin with a letter or a figure, so that a listing from behind them shows those.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

NO_PATH = re.compile(r'invalid path:.*?\bpath: "((?:[^"\\]|\\.)*)"', re.DOTALL)
"""In the library's words on a listing: the key that it cannot read, with escapes."""
NO_NAMES = ("", ".", "..")
LAST = "\U0010ffff"
"""Sorts after every other character."""
MOST_STEPS = 1_000


def unread_key(error: Exception) -> str | None:
    """Return the key for which the library has listed nothing, with escapes; None if that is not the error."""
    found = NO_PATH.search(str(error))
    return found[1] if found else None


def past(key: str, prefix: str) -> str | None:
    """Return where a listing goes on behind all keys that begin as one does; None if that could pass over a name.

    It is the sign after `/`. An object of just that name is not listed.
    """
    top, slash, _ = key.removeprefix(prefix).partition("/")
    return f"{top}0" if key.startswith(prefix) and slash and top in NO_NAMES else None


def lying_past(store: Any, prefix: str, after: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects right below a place from behind a name on, in order. Each folder is passed over in one step.

    store: of obstore. Raises as that does, also for an unreadable key within a folder.
    """
    for _ in range(MOST_STEPS):
        folder = None
        try:
            for each in (each for page in store.list(offset=after) for each in page):
                folder, slash, _ = each["path"].partition("/")
                if slash:
                    break
                after, folder = each["path"], None
                yield each
        except Exception as error:
            behind = past(unread_key(error) or "", prefix)
            if behind is None or behind <= after:
                raise
            after = behind
            continue
        if folder is None:
            return
        after = f"{folder}/{LAST}"
