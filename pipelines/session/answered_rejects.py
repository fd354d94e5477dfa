"""Rejects that a file answers: they decide its feed, and are closed once its records are at the target.

`answers.parquet` of the validate stage contains the answers of a run.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from fhir_service.paths import exists
from pipelines.feeds.files.catalog import Catalog, Feed, FeedError
from pipelines.feeds.reading.reject_marks import ids_in, marked_form
from pipelines.home.batch import UnreadableFile
from pipelines.home.spill import rows_of
from pipelines.ledger.known_rejects import parted_id
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import feeds_answered


def feed_of(path: Path, catalog: Catalog, ledger: Ledger | None) -> Feed | None:
    """Return the feed for a file: that of the rejects it answers, else the one for its name. Raises FeedError."""
    marked = ledger is not None and marked_form(path) is not None
    answered = _feeds_answered(path, ledger) if ledger and marked else set()
    if len(names := {name for name, _, _ in answered}) > 1:
        raise FeedError(f"{path.name}: answers rejects of the feeds {' and '.join(sorted(names))}; a file has one feed")
    for name, source, resource in answered:
        if feed := catalog.standing_for(name, source, resource):
            return feed
        raise FeedError(f"{path.name}: answers rejects of the feed {name}, which no feed file describes")
    feed = catalog.match(path.name)
    if feed is None and marked:
        raise FeedError(
            f"{path.name}: its _reject_id are those of no reject in this ledger: were they exported in another home"
            " (--home), or changed by a program?"
        )
    return feed


def _feeds_answered(path: Path, ledger: Ledger) -> set[tuple[str, str, str]]:
    try:
        return feeds_answered(ledger, ids_in(path))
    except (OSError, UnreadableFile):
        return set()


def answers_of(folder: Path) -> dict[int, dict[str, str]]:
    """Return reject ids by the first line of the record that answers them; none for most files.

    Each comes with the moment up to which the person who put the row in knew the record's state: see `parted_id`.
    """
    found: dict[int, dict[str, str]] = {}
    if exists(folder / "answers.parquet"):
        for line, name in rows_of(folder / "answers.parquet", "line", "reject_id"):
            _add(found.setdefault(line, {}), [parted_id(name)])
    return found


def _add(names: dict[str, str], more: Iterable[tuple[str, str]]) -> None:
    """Add rejects to those of a record. If several rows name one reject, the earliest moment counts."""
    for name, until in more:
        names[name] = min(names.get(name, until), until)


class LoadAnswers:
    """The rejects that the rows of one load answer."""

    def __init__(self, by_line: Mapping[int, Mapping[str, str]], wrong: Iterable[int]) -> None:
        self.by_line = by_line
        self._lines = sorted(by_line.keys() - set(wrong))

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return the answers in a run's folder. An equal repeat's answers go to the record that it repeats."""
        by_line = answers_of(folder)
        if not by_line:
            return cls({}, ())
        for line, first_line in rows_of(folder / "skipped.parquet", "line", "first_line"):
            if line in by_line:
                _add(by_line.setdefault(first_line, {}), by_line.pop(line).items())
        return cls(by_line, [line for (line,) in rows_of(folder / "rejects.parquet", "line")])

    def __bool__(self) -> bool:
        return bool(self.by_line)

    def of_line(self, line: int) -> Mapping[str, str]:
        """Return the rejects that a record answers, each with its moment as in `answers_of`."""
        return self.by_line.get(line, {})

    def of_lines(self, lines: Iterable[int]) -> dict[int, list[str]]:
        """Return the rejects that records answer, by line, for those of these lines with any."""
        return {line: [*names] for line in lines if (names := self.of_line(line))}

    def to_come(self) -> dict[int, list[str]]:
        """Return, by line, the rejects whose answers are valid records that are to be sent."""
        return self.of_lines(self._lines)

    def going(self) -> set[str]:
        """Return the rejects with an answer that is a valid record."""
        return {name for line in self._lines for name in self.by_line[line]}
