"""List an object store in spite of keys that its library cannot read: of a page with such a key it lists nothing.

Such keys are `inbox//file`, `inbox/./file` and `inbox/../file`, from programs that join a prefix and a name, and keys
with a control character. A listing that begins after such a key shows the rest. Keys before it on its page stay
hidden.
"""

import re
from collections.abc import Mapping
from typing import Any

NO_PATH = re.compile(r'invalid path:.*?\bpath: "((?:[^"\\]|\\.)*)"', re.DOTALL)
"""Finds the unreadable key, with escapes, in the library's error about a listing."""
ESCAPE = re.compile(r"\\(?:u\{([0-9a-f]{1,6})\}|(.))", re.DOTALL)
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0"}
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
NO_NAMES = ("", ".", "..")
LAST = "\U0010ffff"
"""Sorts after every other character."""
MOST_STEPS = 1_000


def unread_key(error: Exception) -> str | None:
    """Return the key because of which the library has listed nothing, with escapes; None for another error."""
    found = NO_PATH.search(str(error))
    return found[1] if found else None


def lying_past(store: Any, prefix: str) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the objects directly below a place that can be listed, and the unreadable keys, with escapes.

    Each folder is skipped in one step. store: an obstore. Raises as it does, also if nothing after some key can be
    listed.
    """
    found: list[Mapping[str, Any]] = []
    unread: list[str] = []
    after: str | None = None
    for _ in range(MOST_STEPS):
        folder = None
        try:
            # One at a time: objects before an error in one chunk would be lost.
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
    """Return where a listing continues after all keys that begin like this one, up to its unreadable part.

    An object with exactly the returned name is not listed.
    """
    whole = ESCAPE.sub(_unescaped, key)
    if not whole.startswith(prefix):
        return None
    top, slash, _ = whole.removeprefix(prefix).partition("/")
    if sign := CONTROL.search(top):  # offsets cannot contain it either
        return top[: sign.start()] + (" " if sign[0] < " " else "\x80")
    if not slash:
        return None
    return f"{top}0" if top in NO_NAMES else f"{top}/{LAST}"


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else ESCAPES.get(found[2], found[2])
