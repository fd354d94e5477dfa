"""The first keys of a draft: the name, the source, the files, and how the files are written."""

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path

from pipelines.feeds.drafting.column_choice import KindGuess
from pipelines.feeds.drafting.entries import FeedEntry, Line, as_toml
from pipelines.feeds.drafting.sniffing import Export
from pipelines.feeds.files.catalog import PACKED, plain_name
from pipelines.feeds.terms.texts import DELIMITERS

NEIGHBOURS = 1000
_MONTHS = (
    "jan(?:uary?|uar)? feb(?:ruary?|ruar)? mar(?:ch)? märz apr(?:il)? may mai june? juni july? juli aug(?:ust)?"
    " sept?(?:ember)? [ok][ck]t(?:ober)? nov(?:ember)? de[cz](?:ember)?"
).split()
_DATED = re.compile(rf"(?:[\d_\-]|(?<=[\d_\- ])(?:{'|'.join(_MONTHS)})(?: (?=\d)|(?=[\d_\-]|$)))++$", re.IGNORECASE)
_INSTRUMENT = re.compile(
    r".*(?<![^\W\d_])(?:audit|bdi|dass|epds|gad|pcl|phq|sf|who)[-_ ]?\d{1,2}(?=[-_ ]|$)", re.IGNORECASE
)
"""Names of instruments that end in digits."""


def head(path: Path, guess: KindGuess, export: Export) -> Iterator[Line]:
    """Yield the keys above the tables."""
    stem = stem_of(plain_name(path.name))
    name = re.sub(r"[^A-Za-z0-9_\-]+", "-", stem).strip("-_")[:40] or "feed"
    yield FeedEntry("name", as_toml(name))
    yield FeedEntry("source", as_toml(name), "the system that made the keys; one name for all its exports, for good")
    others = "" if guess.is_sure else "payments, answers or tasks"
    yield FeedEntry("kind", as_toml(guess.kind), others)
    yield _files(path, export)
    if export.form != "csv" or not export.file_name.lower().endswith(".csv"):
        yield FeedEntry("format", as_toml(export.form))
    yield from _encoding(export)
    yield from export.keys
    if not export.is_objects:
        yield from _written(export)


def stem_of(file_name: str) -> str:
    """Return the beginning of a file's name, without digits and months at its end.

    `till` for `till-0310.txt`, and for `till (3).txt`, as a browser names a second download. The digits of an
    instrument are part of its name: `gad7` for `gad7_march.csv`.
    """
    name = file_name.split(".", maxsplit=1)[0]
    first = re.sub(r"(?:\s*\(\d+\))+$", "", name) or name
    instrument = _INSTRUMENT.match(first)
    kept = instrument[0] if instrument else ""
    rest = first[len(kept) :]
    return kept + re.sub(_DATED, "", rest) or kept + re.sub(r"[\d_\-]+$", "", rest) or first


def _files(path: Path, export: Export) -> FeedEntry:
    """Return the pattern of the file's name. In the folder it matches only files with similar names."""
    plain, is_archive = plain_name(path.name), path.name.endswith(".zip")
    first = plain.partition(".")[0]
    name, end = (path.name, ".zip") if is_archive else (plain, plain[len(first) :])
    others = [other for other in _neighbours(path) if _family(other) != _family(plain)]
    pattern, doubt = _pattern(name, stem_of(first), end, others), ""
    if pattern is None:
        doubt = f"a pattern for all its exports; {escape(stem_of(first))}*{end} takes other files of the folder too"
    inside = [pattern_within(export.file_name, export.beside)] if is_archive else []
    return FeedEntry("files", as_toml([pattern or escape(name), *inside]), doubt)


def pattern_within(file_name: str, others: Sequence[str]) -> str:
    """Return the pattern of a file in an archive. If no pattern excludes the other files, return the name itself."""
    inner = Path(file_name)
    return _pattern(inner.name, stem_of(inner.stem), inner.suffix, others) or escape(inner.name)


def _pattern(name: str, stem: str, end: str, others: Sequence[str]) -> str | None:
    """Return a pattern with this stem and end that matches this name, and none of the others; None if there is none."""
    before_figures = re.split(r"\d", name.removeprefix(stem), maxsplit=1)[0]
    patterns = (f"{escape(stem)}*{end}", f"{escape(stem + before_figures)}[0-9]*{end}")
    own = (each for each in patterns if fnmatchcase(name, each))
    return next((each for each in own if not any(fnmatchcase(other, each) for other in others)), None)


def _neighbours(path: Path) -> list[str]:
    try:
        with os.scandir(path.resolve().parent) as found:
            names = [entry.name for _, entry in zip(range(NEIGHBOURS), found, strict=False) if entry.is_file()]
    except OSError:
        return []
    return [plain_name(name) for name in names if name != path.name and not name.endswith((".toml", *PACKED))]


def _family(name: str) -> str:
    """Return a file's name without its digits and months, in which exports of one kind differ."""
    return re.sub(r"[\d_\-]+", "", name.replace(name.split(".", maxsplit=1)[0], stem_of(name), 1)).lower()


def _encoding(export: Export) -> Iterator[FeedEntry]:
    found, doubt = export.decoded, ""
    if found.encoding == "utf-8":
        return
    if found.encoding != "utf-16":
        others = "; ".join(f"{other}: {letters or 'other signs'}" for other, letters in found.others)
        doubt = f"no UTF-8; its letters are then {found.letters}" + (f". Others: {others}" if others else "")
    yield FeedEntry("encoding", as_toml(found.encoding), doubt)


def _written(export: Export) -> Iterator[FeedEntry]:
    how = export.written
    if how.delimiter != "," or how.rivals:
        others = " or ".join(f"a {DELIMITERS[sign]}" for sign in how.rivals)
        yield FeedEntry("delimiter", as_toml(how.delimiter), f"{others} parts the rows as well" if others else "")
    if how.quote != '"':
        yield FeedEntry("quote", as_toml(how.quote))
    if how.escape:
        yield FeedEntry("escape", as_toml(how.escape))
    if how.skip_spaces:
        yield FeedEntry("skip_spaces", "true")
    if export.header != 1 or not export.header_sure:
        yield FeedEntry("header", str(export.header), _header_doubt(export))


def _header_doubt(export: Export) -> str:
    """Return the question about a header that was guessed or not found; empty if it is sure."""
    if not export.header:
        return "no header was found, so columns are named by position; if a line names them, say which"
    if export.header_sure:
        return ""
    return "a guess: below it are texts alone, or the lines above it are like it; 0 if no line names the columns"
