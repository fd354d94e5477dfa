"""The work list of a feed: values of open rejects that its crosswalks lack, each with the nearest candidates.

It contains values of the export and names of the reference data, so it is only for a person's terminal or file.
"""

import csv
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.corrections.sources import NO_ENTRY, OutOfReach, rejected_by, source_of
from pipelines.feeds.files.catalog import Catalog, Feed, home_catalog
from pipelines.feeds.files.crosswalks import BadCrosswalk, add_entries
from pipelines.feeds.mapping.missing import missing_values, types_of
from pipelines.feeds.reading.readers import reader_of
from pipelines.feeds.terms.values import Crosswalk
from pipelines.home.batch import UnreadableFile, reading_file
from pipelines.home.reference_files import reference_bodies
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import targets_with_rejects
from pipelines.ledger.tables import NotPossible
from pipelines.session.ledger import ledger_of

HEADER = ("crosswalk", "value", "rows", "entry", "candidates")
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
    named = (each for each in reference_bodies(folder, types) if isinstance(each.get("id"), str))
    yield from (Candidate(each["id"], words_of(each)) for each in islice(named, MOST))


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


@dataclass(frozen=True)
class MissingEntry:
    """A value without an entry: its crosswalk, the number of rows with it, and the nearest candidates."""

    walk: Crosswalk
    value: str
    rows: int
    candidates: Sequence[Candidate]


@dataclass
class WorkList:
    """The work of a feed, most frequent first. left: batches that could not be read. known: by crosswalk, the ids of
    its reference data if that is in the home.
    """

    feed: Feed
    work: list[MissingEntry]
    left: list[str]
    known: Mapping[Crosswalk, Mapping[str, Candidate]]

    def write_entries(self, entries: Mapping[tuple[str, str], str]) -> int:
        """Write entries, by crosswalk name and value, into the crosswalks; return their number. Raises BadCrosswalk."""
        walks = {walk.name: walk for walk in self.feed.tables}
        by_walk: dict[Crosswalk, dict[str, str]] = {}
        for (name, value), entry in entries.items():
            if name not in walks:
                raise BadCrosswalk(f"crosswalk {name}: the feed {self.feed.name} has no crosswalk file of this name")
            known = self.known.get(walks[name])
            if known and entry.rpartition("/")[2] not in known:
                raise BadCrosswalk(f"crosswalk {name}: {entry} is not an id of the reference data")
            by_walk.setdefault(walks[name], {})[value] = entry
        return sum(add_entries(self.feed.path.parent, walk, some) for walk, some in by_walk.items())


def work_list(
    home: Path, environ: Mapping[str, str], feed_folders: Sequence[Path], name: str, reference: Path | None = None
) -> WorkList:
    """Return the values of a feed's open rejects that have no entry. Raises NotPossible, LedgerError, FeedError."""
    catalog = home_catalog(home, environ, feed_folders)
    feed = catalog.named(name)
    if feed is None:
        raise NotPossible(f"{name}: there is no feed of this name")
    found: dict[Crosswalk, Counter[str]] = {}
    left: list[str] = []
    with ledger_of(home, environ) as ledger:
        if ledger:
            for target in targets_with_rejects(ledger):
                _look(home, ledger, catalog, feed, target, found, left)
    folder = reference or home / "reference"
    near = {walk: Candidates(records_in(folder, types_of(feed, walk))) for walk in found}
    work = [
        MissingEntry(walk, value, rows, near[walk].near(value))
        for walk, values in found.items()
        for value, rows in values.items()
    ]
    work.sort(key=lambda each: (-each.rows, each.walk.name, each.value))
    return WorkList(feed, work, left, {walk: near[walk].known for walk in near})


def _look(
    home: Path,
    ledger: Ledger,
    catalog: Catalog,
    feed: Feed,
    target: str,
    found: dict[Crosswalk, Counter[str]],
    left: list[str],
) -> None:
    places = defaultdict[str, set[int]](set)
    for place, why in rejected_by(ledger, target, NO_ENTRY).items():
        if place.source == feed.source:
            places[place.batch_id].update([place.line, *(reason.line for reason in why if reason.line)])
    for batch_id, lines in places.items():
        try:
            received, own = source_of(home, ledger, catalog, target, batch_id)
            if own.name != feed.name:
                continue
            with reader_of(received.path_in_batch, received.file_name, feed) as reader:
                for walk, values in missing_values(feed, reader, lines).items():
                    found.setdefault(walk, Counter()).update(values)
        except (OutOfReach, UnreadableFile, BadCrosswalk) as error:
            left.append(f"{batch_id}: {error}")


# -- a file for a colleague


def write_csv(found: WorkList, path: Path) -> None:
    """Write the work list, readable by its owner only. A person fills in the column `entry`."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "w", newline="", encoding="utf-8-sig") as out:
        rows = csv.writer(out)
        rows.writerow(HEADER)
        for work in found.work:
            near = "; ".join(f"{each.id} ({each.words})" for each in work.candidates)
            rows.writerow([work.walk.name, work.value, work.rows, "", near])


def read_csv_entries(path: Path) -> dict[tuple[str, str], str]:
    """Return the entries that a person has filled in. Raises Unreadable."""
    with reading_file(path.name):
        content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
        sign = ";" if text.partition("\n")[0].count(";") > text.partition("\n")[0].count(",") else ","
        rows = csv.DictReader(StringIO(text, newline=""), delimiter=sign, strict=True)
        return dict(_entries(rows))
    except (UnicodeError, csv.Error, KeyError):
        raise UnreadableFile(
            f"{path.name}: this is no work list: it lacks the columns {', '.join(HEADER[:4])}; save it as CSV UTF-8"
        ) from None


def _entries(rows: "csv.DictReader[str]") -> Iterator[tuple[tuple[str, str], str]]:
    for row in rows:
        if entry := (row["entry"] or "").strip():
            yield (row["crosswalk"].strip(), row["value"]), entry
