"""The owner of a place beyond the home: one deployment owns it, and any other that names it is refused."""

import json
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipelines.home.files import made_once
from pipelines.home.stores import HeldObject, SomebodyElse, Store, StoreUnusable, store_at

OWNER = "_owner.json"
KINDS = ("files", "inbox", "journal", "log")
"""Names directly below a place of batches with many objects, which are not listed."""
DEPLOYMENT = "deployment.id"
"""The file of a home with the id by which stores know it."""
NESTED = "batches or tables are kept {} ({}): name a prefix that neither lies in another's nor holds one"


def deployment_of(home: Path) -> str:
    """Return the id of a home, made on the first call."""
    return made_once(home / DEPLOYMENT, 16).strip()


def own(store: Store, deployment: str, refusal: str) -> str:
    """Note the owner at a store; return a text that changes once the note is made anew.

    Raises StoreUnusable with `refusal` if another deployment owns it, and also if one owns a place above or below it.
    """
    held = store.read(OWNER)
    if held is None:
        for nested in _nested(store):
            raise StoreUnusable(nested)
        note = json.dumps({"deployment": deployment, "since": secrets.token_hex(16)}).encode()
        try:
            store.swap(OWNER, note, None)
            return str(json.loads(note)["since"])
        except SomebodyElse:
            held = store.read(OWNER)
    said = _said(held)
    if said.get("deployment") != deployment:
        raise StoreUnusable(refusal)
    return str(said.get("since", ""))


def is_owned(store: Store) -> bool:
    """True if a deployment has noted that it owns a store."""
    return store.read(OWNER) is not None


def _nested(store: Store) -> Iterator[str]:
    """Yield a sentence for each owned place above or below a store, as far as these can be read."""
    for above in store.above():
        with suppress(StoreUnusable):  # places above may be closed to us
            if is_owned(store_at(above)):
                yield NESTED.format("above it", f"{above.rstrip('/')}/{OWNER}")
    with suppress(StoreUnusable):  # a store of tables may not permit listing
        for name in store.names(""):
            keys = [f"{name}/{OWNER}"] if name in KINDS else store.ages(f"{name}/")
            owned = (key for key in keys if key.endswith(f"/{OWNER}") and store.read(key))
            yield from (NESTED.format("below it", key) for key in owned)


def _said(held: HeldObject | None) -> dict[str, Any]:
    try:
        said = json.loads(held.content) if held else {}
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
