"""The findings of a check of a store."""

from collections.abc import Iterator
from dataclasses import dataclass

# A store in ruins names this many places of each kind; one more line says that there are others.
MOST = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a store: its kind, ids and a text. A notice is no damage, but worth knowing."""

    kind: str
    where: str
    text: str
    notice: bool = False


Found = Iterator[Finding]
