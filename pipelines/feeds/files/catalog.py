"""The catalog of feed files in folders: read them, check them, and match them to files by name."""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from pydantic import ValidationError

from fhir_service.paths import is_folder, matching
from pipelines.feeds.files.crosswalks import BadCrosswalk, read_csv, read_database
from pipelines.feeds.files.mistakes import at_line, mistakes
from pipelines.feeds.files.rules import BadFeed, check_feed
from pipelines.feeds.kinds.registry import kind_of
from pipelines.feeds.terms.columns import RecordKind
from pipelines.feeds.terms.schema import FeedFile, values_of, walk_all
from pipelines.feeds.terms.texts import composed_text
from pipelines.feeds.terms.values import Crosswalk
from pipelines.home.batch import is_control, reading_file
from pipelines.home.exits import WronglyAsked
from pipelines.home.toml_files import text_of, toml_of

BUILTIN = Path(__file__).parents[1] / "builtin"
FORMS = {".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "json", ".xlsx": "xlsx", ".parquet": "parquet"}
PACKED = (".gz", ".zst", ".zip")


class FeedError(WronglyAsked):
    """A feed file cannot be used, or two feeds take the same file. The message is one line with file and key.

    all: this message and those of all other faults of the file.
    """

    def __init__(self, first: str, *others: str) -> None:
        super().__init__(first)
        self.all = (first, *others)


@dataclass(frozen=True)
class Feed:
    """A feed: the content of its file, and the crosswalks that the file names.

    * tables: the crosswalks from CSVs, by declaration, as value to value.
    * hash: a hash of everything that decides what a row becomes.
    """

    file: FeedFile
    path: Path
    builtin: bool
    tables: Mapping[Crosswalk, Mapping[str, str]]
    hash: str
    environ: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def source(self) -> str:
        return self.file.source

    @property
    def kind(self) -> RecordKind:
        return kind_of(self.file)

    @property
    def resource(self) -> str:
        return self.kind.resource

    @property
    def key_hash(self) -> str:
        """Return a hash of the declaration of the key column. FHIR resources have their key in their identifiers."""
        said = self.file.columns.get(self.kind.key)
        return _sha256(said.model_dump(mode="json", by_alias=True, exclude_defaults=True) if said else {})

    @property
    def query_hash(self) -> str:
        """Return a hash of the query and of the conditions that decide which of its rows are taken."""
        return _sha256(self.file.model_dump(mode="json", by_alias=True, include={"query", "take", "skip"}))

    @property
    def by_identifier(self) -> list[Crosswalk]:
        """Return the crosswalks that are looked up at the target."""
        return [walk for walk in _crosswalks(self.file) if walk.reference]

    @property
    def asks(self) -> bool:
        """True if databases or the target are asked for meanings of values, so that files alone do not decide them."""
        return any(walk.database or walk.reference for walk in _crosswalks(self.file))

    def read_crosswalks(self) -> dict[Crosswalk, Mapping[str, str]]:
        """Return all crosswalks of files and databases; databases are read now. Raises BadCrosswalk."""
        queries = [walk for walk in _crosswalks(self.file) if walk.database]
        return {**self.tables, **{walk: read_database(walk, self.environ) for walk in queries}}

    def takes(self, file_name: str) -> bool:
        """True if a file's name, or its name without compression, fits a pattern.

        A zip archive needs no second suffix: `payments-may.zip` fits `payments*.csv`.
        """
        names = {file_name, plain_name(file_name)}
        if file_name.endswith(".zip"):
            names |= {plain_name(file_name) + PurePath(pattern).suffix for pattern in self.file.files}
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.file.files)


@dataclass(frozen=True)
class Catalog:
    """All feeds: the user's feeds first, then the built-in ones."""

    feeds: tuple[Feed, ...]

    def match(self, file_name: str) -> Feed | None:
        """Return the feed that takes a file of this name; None if none does. A user's feed wins over a built-in one.

        Raises FeedError if two feeds of the user take it.
        """
        found = [feed for feed in self.feeds if feed.takes(file_name)]
        own = [feed for feed in found if not feed.builtin]
        if len(own) > 1:
            raise FeedError(
                f"{own[0].path.name} and {own[1].path.name}: files: both take {file_name}; change one of them"
            )
        return next(iter(own or found), None) if not is_control(file_name) else None

    def named(self, name: str) -> Feed | None:
        """Return the feed of this name; None if there is none."""
        return next((feed for feed in self.feeds if feed.name == name), None)

    def standing_for(self, name: str, source: str, resource: str) -> Feed | None:
        """Return the feed of this name; else the only feed of this source and resource type, which was renamed."""
        alike = [feed for feed in self.feeds if (feed.source, feed.resource) == (source, resource)]
        return self.named(name) or (alike[0] if len(alike) == 1 else None)


def form_by_name(file_name: str) -> str:
    """Return the format that a file's name shows; `csv` for any other name."""
    return FORMS.get(PurePath(file_name).suffix.lower(), "csv")


def plain_name(file_name: str) -> str:
    """Return a file's name without a suffix of compression."""
    return next((file_name.removesuffix(end) for end in PACKED if file_name.endswith(end)), file_name)


def home_catalog(home: Path, environ: Mapping[str, str], folders: Sequence[Path] = ()) -> Catalog:
    """Return the feeds of these folders, of the folders in `CHARTFERRY_FEEDS`, of the home, and the built-in ones.

    Raises FeedError.
    """
    named = [Path(name) for name in environ.get("CHARTFERRY_FEEDS", "").split(os.pathsep) if name]
    for folder in named:
        if not is_folder(folder):
            raise FeedError(f"CHARTFERRY_FEEDS: {folder}: there is no such folder")
    return load_feeds([*folders, *named, home / "feeds"])


def load_feeds(folders: Sequence[Path] = ()) -> Catalog:
    """Return the user's feeds (`*.toml` in these folders, in order) and the built-in ones. Raises FeedError."""
    own = [load_feed(path) for folder in folders for path in _feed_files(folder)]
    by_name: dict[str, Feed] = {}
    alike: dict[str, Feed] = {}
    for feed in own:
        if other := by_name.get(feed.name):
            if other.hash == feed.hash:
                continue
            raise FeedError(f"{feed.path.name}: name: {other.path.name} also has the name {feed.name}; choose another")
        if other := alike.get(plain(feed.name)):
            raise FeedError(
                f"{feed.path.name}: name: {feed.name} and {other.name} of {other.path.name} differ only in characters"
                " other than letters and digits, which Dagster cannot tell apart; choose another name"
            )
        by_name[feed.name] = alike[plain(feed.name)] = feed
    return Catalog((*by_name.values(), *(feed for feed in builtin_feeds() if feed.name not in by_name)))


@cache
def builtin_feeds() -> tuple[Feed, ...]:
    """Return the built-in feeds, read once in a process, since each tick of a sensor asks for them."""
    return tuple(load_feed(path, builtin=True) for path in matching(BUILTIN, "*.toml"))


def plain(name: str) -> str:
    """Return a name with `_` for every character that Dagster does not allow in names of groups and jobs."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _feed_files(folder: Path) -> list[Path]:
    """Return the feed files of a folder; none if there is no folder.

    Raises FeedError for a folder that cannot be read: the files that its feeds take would be unknown.
    """
    with reading_file(str(folder), FeedError), suppress(FileNotFoundError):
        return sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    return []


def load_feed(path: Path, builtin: bool = False, environ: Mapping[str, str] = os.environ) -> Feed:
    """Return one feed. Raises FeedError with file, key and line. environ: names the databases of crosswalks."""
    text = composed_text(text_of(path, FeedError))
    given = toml_of(text, path.name, FeedError, Decimal)
    given.setdefault("name", path.stem)
    given.setdefault("source", given["name"])
    try:
        file = FeedFile.model_validate(_with_maps(given))
        check_feed(file)
        tables = {walk: read_csv(path.parent, walk) for walk in _crosswalks(file) if walk.file}
    except ValidationError as error:
        raise FeedError(*(f"{path.name}: {line}" for line in dict.fromkeys(mistakes(error, text)))) from None
    except BadFeed as error:
        raise FeedError(*(f"{path.name}: {each}{at_line(text, each.path)}" for each in error.all)) from None
    except BadCrosswalk as error:
        raise FeedError(f"{path.name}: {error}{_line_with(text, str(error))}") from None
    return Feed(file, path, builtin, tables, _hash(file, tables), environ)


def _with_maps(given: Any, maps: Any = None, at: tuple[str, ...] = ()) -> Any:
    """Return a feed file's content with each `values = "name"` replaced by the table `[maps.name]`."""
    maps = given.get("maps") if not at else maps
    if isinstance(given, list):
        return [_with_maps(part, maps, (*at, str(place))) for place, part in enumerate(given)]
    if not isinstance(given, dict):
        return given
    found = {name: _with_maps(part, maps, (*at, name)) for name, part in given.items()}
    if isinstance(named := given.get("values"), str) and at:
        if not isinstance(maps, dict) or named not in maps:
            raise BadFeed((*at, "values"), f"this file has no table [maps.{named}]")
        found["values"] = maps[named]
    return found


def _line_with(text: str, error: str) -> str:
    """Return the words for the line that names the crosswalk of an error; empty if there is no such line."""
    name = error.removeprefix("crosswalk ").partition(":")[0]
    lines = (number for number, line in enumerate(text.splitlines(), 1) if name in line.partition("#")[0])
    return f" (line {line})" if (line := next(lines, None)) else ""


def _crosswalks(file: FeedFile) -> list[Crosswalk]:
    found = (part.crosswalk for _, value in values_of(file) for part in walk_all(value))
    return list(dict.fromkeys(crosswalk for crosswalk in found if crosswalk))


def _hash(file: FeedFile, tables: Mapping[Crosswalk, Mapping[str, str]]) -> str:
    """Return a hash of the feed file and the CSVs beside it. The rows of a database are no part of the feed."""
    content = {
        "feed": file.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"expect"}),
        "crosswalks": [[walk.file, walk.from_, walk.to, sorted(rows.items())] for walk, rows in tables.items()],
    }
    return _sha256(content)


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
