"""Feed files as found in folders: read, checked, and matched to files by name."""

import csv
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipelines.feeds.kinds import KINDS
from pipelines.feeds.paths import BadPath, parse_path
from pipelines.feeds.record import Kind
from pipelines.feeds.schema import Crosswalk, FeedFile, Value

BUILTIN = Path(__file__).parent / "builtin"
CONTROL = ".control.json"


class FeedError(Exception):
    """A feed file that cannot be used, or two that want the same file: one line with file and key."""


@dataclass(frozen=True)
class Feed:
    """A feed: what its file says, and the crosswalks it names.

    crosswalks: by declaration, from value to value. hash: of all that decides what a row becomes.
    """

    file: FeedFile
    path: Path
    builtin: bool
    crosswalks: Mapping[Crosswalk, Mapping[str, str]]
    hash: str

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def source(self) -> str:
        return self.file.source

    @property
    def kind(self) -> Kind:
        return KINDS[self.file.kind]

    @property
    def resource(self) -> str:
        return self.kind.resource

    @property
    def patterns(self) -> tuple[str, ...]:
        return self.file.files

    @property
    def changed(self) -> str:
        """The policy for changed content under a known key."""
        return self.file.changed

    @property
    def max_rejects(self) -> int | Decimal | None:
        """How many rejects a file may have: a number of records, or (below 1) a share of them."""
        return self.file.max_rejects

    def format_of(self, file_name: str) -> str:
        """`csv` or `ndjson`: as the feed says, else by the file's name."""
        return self.file.format or ("ndjson" if plain_name(file_name).endswith((".ndjson", ".jsonl")) else "csv")

    def takes(self, file_name: str) -> bool:
        names = {file_name, plain_name(file_name)}
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.patterns)


@dataclass(frozen=True)
class Catalog:
    """All feeds: those of the user first, then the built-in ones."""

    feeds: tuple[Feed, ...]

    def match(self, file_name: str) -> Feed | None:
        """The feed that takes a file of this name; a user's feed wins over a built-in one. FeedError when two would."""
        found = [feed for feed in self.feeds if feed.takes(file_name)]
        own = [feed for feed in found if not feed.builtin]
        if len(own) > 1:
            raise FeedError(f"{own[0].path.name} and {own[1].path.name}: files: both take {file_name}")
        return next(iter(own or found), None) if not is_control(file_name) else None

    def named(self, name: str) -> Feed | None:
        """The feed of this name."""
        return next((feed for feed in self.feeds if feed.name == name), None)


def plain_name(file_name: str) -> str:
    return file_name.removesuffix(".gz")


def is_control(file_name: str) -> bool:
    """Whether a file holds the control totals of another."""
    return file_name.endswith(CONTROL)


def load_feeds(folders: Sequence[Path] = ()) -> Catalog:
    """The user's feeds (`*.toml` in these folders, in order) and the built-in ones. Raises FeedError."""
    own = [load_feed(path) for folder in folders for path in sorted(folder.glob("*.toml"))]
    by_name: dict[str, Feed] = {}
    for feed in own:
        if other := by_name.get(feed.name):
            if other.hash == feed.hash:
                continue
            raise FeedError(f"{feed.path.name}: name: {other.path.name} has the name {feed.name} too")
        by_name[feed.name] = feed
    builtin = [load_feed(path, builtin=True) for path in sorted(BUILTIN.glob("*.toml"))]
    return Catalog((*by_name.values(), *(feed for feed in builtin if feed.name not in by_name)))


def load_feed(path: Path, builtin: bool = False) -> Feed:
    """One feed file. Raises FeedError with file and key."""
    given = _parse(path)
    given.setdefault("name", path.stem)
    given.setdefault("source", given["name"])
    try:
        file = FeedFile.model_validate(given)
    except ValidationError as error:
        raise FeedError(f"{path.name}: {_first_error(error)}") from None
    _check_columns(path, file)
    crosswalks = {walk: _read_crosswalk(path, walk) for walk in _crosswalks(file)}
    return Feed(file, path, builtin, crosswalks, _hash(file, crosswalks))


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"), parse_float=Decimal)
    except UnicodeDecodeError:
        raise FeedError(f"{path.name}: a feed file is UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise FeedError(f"{path.name}: not TOML: {error}") from None
    except OSError as error:
        raise FeedError(f"{path.name}: cannot be read: {error.strerror}") from None


def _first_error(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in found["loc"]) or "the file"
    return f"{place}: {found['msg'].removeprefix('Value error, ')}"


def _check_columns(path: Path, file: FeedFile) -> None:
    """Only columns that the kind has, all that it requires, and no path that is none."""
    kind = KINDS[file.kind]
    for name in file.columns:
        if name not in kind.by_name:
            known = ", ".join(kind.by_name)
            raise FeedError(f"{path.name}: columns.{name}: {file.kind} have no such column (they have {known})")
    for column in kind.columns:
        if column.required and column.name not in file.columns:
            raise FeedError(f"{path.name}: columns.{column.name}: required for {file.kind}")
    for place, name in _named_columns(file):
        try:
            parse_path(name)
        except BadPath as error:
            if file.format == "ndjson":
                raise FeedError(f"{path.name}: {place}: {error}") from None
    _check_each(path, file)


def _check_each(path: Path, file: FeedFile) -> None:
    """`each` reads an array of objects: comments have three parts, any other column takes their texts."""
    for name, value in file.columns.items():
        for part in walk(value):
            if part.each is None:
                continue
            parts = {"text", "author_id", "time"} if name == "comments" else {"text"}
            if part.column is None or "text" not in part.each or not part.each.keys() <= parts:
                raise FeedError(
                    f"{path.name}: columns.{name}.each: goes with column and has {', '.join(sorted(parts))}"
                )
    comments = file.columns.get("comments")
    if comments and comments.each is None:
        raise FeedError(f"{path.name}: columns.comments: each is expected: text, author_id and time of one comment")


def _named_columns(file: FeedFile) -> Iterator[tuple[str, str]]:
    for name in file.take:
        yield f"take.{name}", name
    for target, value in file.columns.items():
        for found in walk(value):
            yield from ((f"columns.{target}", name) for name in [found.column, *found.when] if name)


def walk(value: Value) -> Iterator[Value]:
    """A value and those it is made of, apart from the parts of `each`: those name columns of an array's objects."""
    yield value
    for part in [*(value.first or ()), *(value.join or ()), *(value.list_ or ())]:
        yield from walk(part)


def walk_all(value: Value) -> Iterator[Value]:
    """`walk`, and the parts of `each`."""
    for part in walk(value):
        yield part
        for inner in (part.each or {}).values():
            yield from walk_all(inner)


def _crosswalks(file: FeedFile) -> list[Crosswalk]:
    found = (part.crosswalk for value in file.columns.values() for part in walk_all(value))
    return list(dict.fromkeys(crosswalk for crosswalk in found if crosswalk))


def _read_crosswalk(path: Path, crosswalk: Crosswalk) -> dict[str, str]:
    """The CSV beside the feed file, from value to value."""
    place = f"{path.name}: crosswalk {crosswalk.file}"
    try:
        with (path.parent / crosswalk.file).open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, strict=True)
            if not {crosswalk.from_, crosswalk.to} <= set(rows.fieldnames or ()):
                raise FeedError(f"{place}: no columns {crosswalk.from_} and {crosswalk.to}")
            found: dict[str, str] = {}
            for row in rows:
                before, after = (row[crosswalk.from_] or "").strip(), (row[crosswalk.to] or "").strip()
                if found.setdefault(before, after) != after:
                    raise FeedError(f"{place}: line {rows.line_num}: a value that is translated in two ways")
    except OSError as error:
        raise FeedError(f"{place}: cannot be read: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError):
        raise FeedError(f"{place}: no CSV in UTF-8") from None
    found.pop("", None)
    return found


def _hash(file: FeedFile, crosswalks: Mapping[Crosswalk, Mapping[str, str]]) -> str:
    content = {
        "feed": file.model_dump(mode="json", by_alias=True),
        "crosswalks": [[walk.file, walk.from_, walk.to, sorted(rows.items())] for walk, rows in crosswalks.items()],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
