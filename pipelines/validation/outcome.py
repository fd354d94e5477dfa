"""The validate stage's report on a file: counts, amounts, and the reason if nothing of it may be sent."""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fhir_service.paths import matching
from pipelines.feeds.reading.chunks import LineNames, Notice
from pipelines.home.files import write_whole

PLACES = "places.json"
"""The file in each run's folder with the places of lines, for a batch of several files."""


@dataclass(kw_only=True)
class Tally:
    """Counts and amounts, in cents, of some records of a file."""

    accepted: int = 0
    rejected: int = 0
    skipped: int = 0
    amounts_rejected: int = 0
    amount_received: int = 0
    amount_accepted: int = 0
    amount_skipped: int = 0
    copayments: int = 0
    amount_copayments: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)


@dataclass
class ValidationResult(Tally):
    """The result of validating a file. Amounts are in cents; `accepted` includes the equal repeats of `skipped`.

    lines = header + not_taken + the lines of all records; records = accepted + rejected.
    known: doubtful records that the target has with this content, which count as accepted. amounts_rejected: rejected
    records with an amount other than zero, each once. copayments: accepted ones, each once. control_mismatch,
    over_limit, known_elsewhere, unconfirmed: reasons why nothing of this file may be sent, or None. reasons, warnings:
    records by broken rule. places: names its lines. found_in: the folder of the run whose findings were taken over;
    None if this run checked the file.
    """

    folder: Path
    header: int = 0
    lines: int = 0
    not_taken: int = 0
    rows: int = 0
    records: int = 0
    known: int = 0
    amount_known: int = 0
    control_mismatch: str | None = None
    over_limit: str | None = None
    known_elsewhere: str | None = None
    unconfirmed: str | None = None
    unnamed_columns: list[str] = field(default_factory=list)
    noticed: list[Notice] = field(default_factory=list)
    places: LineNames = field(default_factory=LineNames)
    found_in: str | None = None

    def add(self, tally: Tally) -> None:
        for each in fields(tally):
            setattr(self, each.name, getattr(self, each.name) + getattr(tally, each.name))

    def is_known(self, cents: int, rules: Collection[str]) -> None:
        """Count a rejected record as accepted, since the target has exactly its content."""
        self.known += 1
        self.accepted += 1
        self.rejected -= 1
        self.amount_received += cents
        self.amount_accepted += cents
        self.amount_known += cents
        self.reasons -= Counter(rules)

    @property
    def amounts(self) -> int:
        """The number of amounts that `amount_received` sums, each record once. An accepted payment has an amount."""
        return self.amounts_accepted + self.amounts_rejected

    @property
    def amounts_accepted(self) -> int:
        """The number of the amounts that `amount_accepted` sums, each record once."""
        return self.accepted - self.skipped

    @property
    def without_claim(self) -> tuple[int, int]:
        """Number and cents of the accepted payments that are not copayments, each once."""
        number = self.accepted - self.skipped - self.known - self.copayments
        return number, self.amount_accepted - self.amount_skipped - self.amount_known - self.amount_copayments

    @property
    def stop(self) -> str | None:
        """The first reason why nothing of this file may be sent, or None."""
        return self.control_mismatch or self.over_limit or self.known_elsewhere or self.unconfirmed


def told_as(validated: ValidationResult) -> dict[str, Any]:
    """Return the report for JSON, without its folder."""
    said = {each.name: getattr(validated, each.name) for each in fields(validated) if each.name != "folder"}
    return {**said, "places": validated.places.ends}


def read_from(folder: Path, told: Mapping[str, Any]) -> ValidationResult:
    """Return a report that was kept. Fields that older versions did not keep are empty."""
    counted = {name: Counter(told[name]) for name in ("reasons", "warnings")}
    noticed = [Notice(*each) for each in told.get("noticed", ())]
    places = LineNames(tuple((name, end) for name, end in told.get("places", ())))
    return ValidationResult(folder, **{**told, **counted, "noticed": noticed, "places": places})


def write_places(folder: Path, places: LineNames) -> None:
    """Write the last line of each file of an archive with several. For other files nothing is written."""
    if places:
        write_whole(folder / PLACES, json.dumps(places.ends).encode())


def places_in(batch: Path) -> LineNames:
    """Return the places of a batch, which name its lines for people. batch: its folder."""
    for path in matching(batch, f"run-*/{PLACES}"):
        with suppress(OSError, ValueError, TypeError):
            return LineNames(tuple((str(name), int(end)) for name, end in json.loads(path.read_bytes())))
    return LineNames()
