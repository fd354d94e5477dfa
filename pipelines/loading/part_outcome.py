"""The outcome of a part, as its worker reports it and the load reads it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from pipelines.ledger.parts import PartState
from pipelines.loading.load_counts import LoadCounts


@dataclass
class PartLoaded:
    """A worker's report on its part.

    refused: keys of rows that were set aside. said: messages for a person. lowered: True if the target does not do
    what it says.
    """

    loaded: LoadCounts = field(default_factory=LoadCounts)
    refused: Iterable[str] = ()
    said: Iterable[str] = ()
    lowered: bool = False

    def as_text(self) -> str:
        counted = {each.name: getattr(self.loaded, each.name) for each in fields(LoadCounts) if each.init}
        loaded = {**counted, "waits_for": sorted(self.loaded.waits_for)}
        said = {"refused": sorted(self.refused), "said": list(self.said), "lowered": self.lowered}
        return json.dumps({"loaded": loaded, **said})

    @classmethod
    def from_text(cls, text: str) -> "PartLoaded":
        told: dict[str, Any] = json.loads(text)
        return cls(in_all([LoadCounts(**told.pop("loaded"))]), **told)

    @classmethod
    def of(cls, part: PartState) -> "PartLoaded":
        """Return the report on a part, at its end or so far."""
        return cls.from_text(part.outcome or part.counts or json.dumps({"loaded": {}}))


def ends_all(outcome: str) -> bool:
    """True if an outcome says that the target cannot be used, so that no other part is begun."""
    return PartLoaded.from_text(outcome).loaded.unusable is not None


def in_all(parts: Iterable[LoadCounts]) -> LoadCounts:
    """Return the sum of the counts of parts."""
    whole = LoadCounts()
    for each in parts:
        whole.take_in(each)
    return whole
