"""Candidates for a value without an entry: records of the reference data with similar number, name or birth date."""

import gzip
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fhir_service.interface.json_text import object_in
from fhir_service.paths import is_folder

ENDINGS = (".ndjson", ".ndjson.gz")
SHOWN = 3
MOST = 500_000
"""The most records that are compared."""
_WORDS = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Candidate:
    """A record of the reference data: its id, and the words by which a person recognizes it."""

    id: str
    words: str


class Candidates:
    """Records of some types, ranked by the parts that their texts share with a value."""

    def __init__(self, records: Iterable[Candidate]) -> None:
        self.known: dict[str, Candidate] = {}
        self._by_part: dict[str, list[str]] = defaultdict(list)
        self._parts: dict[str, int] = {}
        for record in records:
            self.known[record.id] = record
            parts = _parts(f"{record.id} {record.words}")
            self._parts[record.id] = len(parts)
            for part in parts:
                self._by_part[part].append(record.id)

    def near(self, value: str) -> list[Candidate]:
        """Return the nearest records, those that share most with the value first. Rare parts count more."""
        wanted = _parts(value)
        scores: Counter[str] = Counter()
        for part in wanted:
            ids = self._by_part.get(part, ())
            for each in ids:
                scores[each] += 1_000_000 // len(ids)
        told = sorted(scores, key=lambda each: (-scores[each], self._parts[each], each))
        common = 1_000_000 * len(wanted) // max(1, 20 * len(self.known))
        return [self.known[each] for each in told[:SHOWN] if scores[each] > common]


def _parts(text: str) -> set[str]:
    """Return the words of a text, and their runs of three characters: `MRN10011` contains all those of `MRN1001`."""
    words = _WORDS.findall(text.casefold())
    return {*words, *(word[at : at + 3] for word in words for at in range(len(word) - 2))}


def records_in(folder: Path, types: Sequence[str]) -> Iterator[Candidate]:
    """Yield the records of some types in a folder of NDJSON, up to a bound. Lines that are no records are skipped."""
    left = MOST
    for path in sorted(folder.iterdir()) if is_folder(folder) else ():
        if not path.name.endswith(ENDINGS):
            continue
        opener: Any = gzip.open if path.name.endswith(".gz") else open
        with opener(path, "rt", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                found = object_in(line)
                if found and found.get("resourceType") in types and isinstance(found.get("id"), str) and left:
                    left -= 1
                    yield Candidate(found["id"], words_of(found))


def words_of(record: dict[str, Any]) -> str:
    """Return the record numbers, the name and the birth date of a record, as far as it has them."""
    identifiers = [each.get("value") for each in _objects(record.get("identifier"))]
    names: list[object] = []
    for name in _objects(record.get("name")):
        given = name.get("given")
        names += [*(given if isinstance(given, list) else []), name.get("family"), name.get("text")]
    named = record.get("name") if isinstance(record.get("name"), str) else None
    words = [*identifiers, *names, named, record.get("birthDate")]
    return " ".join(str(word) for word in words if isinstance(word, str) and word)


def _objects(found: object) -> list[dict[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
