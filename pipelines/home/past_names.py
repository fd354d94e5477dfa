"""A listing of an object store past keys that its library cannot read: of a page with one, it lists nothing.

Such keys are `inbox//file`, `inbox/./file` and `inbox/../file`, from programs that join a prefix and a name, and keys
with a control character. A listing from behind them shows the rest; what sorts before one on its page stays hidden.
"""

import re
from collections.abc import Mapping
from typing import Any

NO_PATH = re.compile(r'invalid path:.*?\bpath: "((?:[^"\\]|\\.)*)"', re.DOTALL)
"""In the library's words on a listing: the key that it cannot read, with escapes."""
ESCAPE = re.compile(r"\\(?:u\{([0-9a-f]{1,6})\}|(.))", re.DOTALL)
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0"}
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
NO_NAMES = ("", ".", "..")
LAST = "\U0010ffff"
"""Sorts after every other character."""
MOST_STEPS = 1_000


def unread_key(error: Exception) -> str | None:
    """Return the key for which the library has listed nothing, with escapes; None if that is not the error."""
    found = NO_PATH.search(str(error))
    return found[1] if found else None


def lying_past(store: Any, prefix: str) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the objects right below a place that can be listed, and the keys that cannot be read, with escapes.

    Each folder is passed over in one step. store: of obstore. Raises as that does, also where nothing is listed from
    behind a key on.
    """
    found: list[Mapping[str, Any]] = []
    unread: list[str] = []
    after: str | None = None
    for _ in range(MOST_STEPS):
        folder = None
        try:
            # One at a time: what comes before an error in the same chunk would be lost.
            for each in (each for chunk in store.list(offset=after, chunk_size=1) for each in chunk):
                folder, slash, _ = each["path"].partition("/")
                if slash:
                    break
                after, folder = each["path"], None
                found.append(each)
        except Exception as error:
            key = unread_key(error)
            behind = None if key is None else _past(key, prefix)
            if key is None or behind is None or (after is not None and behind <= after):
                raise
            unread.append(key)
            after = behind
            continue
        if folder is None:
            break
        after = f"{folder}/{LAST}"
    return found, unread


def _past(key: str, prefix: str) -> str | None:
    """Return where a listing goes on behind all keys that begin as one does, up to what is unreadable in it.

    An object of just that name is not listed.
    """
    whole = ESCAPE.sub(_unescaped, key)
    if not whole.startswith(prefix):
        return None
    top, slash, _ = whole.removeprefix(prefix).partition("/")
    if sign := CONTROL.search(top):  # offsets hold no such sign either
        return top[: sign.start()] + (" " if sign[0] < " " else "\x80")
    if not slash:
        return None
    return f"{top}0" if top in NO_NAMES else f"{top}/{LAST}"


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else ESCAPES.get(found[2], found[2])
