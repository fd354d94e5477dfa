"""Rules of a feed file beyond its shape: it has the columns of its kind, and values that make sense."""

from collections.abc import Iterator

from pipelines.feeds.kinds.registry import kind_of
from pipelines.feeds.terms.paths import BadPath, parse_path
from pipelines.feeds.terms.schema import FeedFile, named_places, position, values_of, walk
from pipelines.feeds.terms.values import Test, Value

ASKED = "..."
"""The text in a draft that a person must replace."""
TABLES = ("csv", "xlsx", "parquet", "sql", "fixed")
LISTS = ("columns.labels", "questions.")


class BadFeed(Exception):
    """A fault of a feed file: the path of keys, and a sentence. all: this fault and the file's other faults."""

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(f"{'.'.join(path)}: {message}")
        self.path = path
        self.all: tuple[BadFeed, ...] = (self,)


def check_feed(file: FeedFile) -> None:
    """Raise BadFeed for the first fault of the file, with all the others in its `all`."""
    if problems := tuple(_problems(file)):
        problems[0].all = problems
        raise problems[0]


def _problems(file: FeedFile) -> Iterator[BadFeed]:
    if not file.files and not file.query:
        yield BadFeed(("files",), "required, but missing")
    for pattern in sorted({pattern for pattern in file.files if file.files.count(pattern) > 1}):
        yield BadFeed(("files",), f"{pattern} is listed more than once")
    yield from _columns(file)
    yield from _names(file)
    yield from _undecided(file)
    for place, value in values_of(file):
        yield from _value(place, value)
    yield from _comments(file)


def _columns(file: FeedFile) -> Iterator[BadFeed]:
    """Yield faults of columns: unknown for the kind, or required and missing. A feed of whole resources needs none."""
    kind = kind_of(file)
    known = [column.name for column in kind.columns if column.shape != "answers"]
    for name in file.columns:
        if name not in known:
            yield BadFeed(("columns", name), f"{file.kind} have no such column; possible: {', '.join(known)}")
        elif _puts_text_before_an_id(file.columns[name]) and not isinstance(kind.by_name[name].shape, str):
            joined = 'join = [{ constant = "..." }, "..."], with = ""'
            said = f"goes in front of the id that the target returns; to change the text looked up, use {joined}"
            yield BadFeed(("columns", name, "before"), said)
    if file.columns or not file.resources:
        for column in kind.columns:
            if column.required and column.name not in file.columns:
                yield BadFeed(("columns", column.name), f"required for {file.kind}")
    elif file.format in TABLES:
        yield BadFeed(
            ("resources",), "whole resources are read from NDJSON or JSON; for a table, map its columns in [columns]"
        )


def _puts_text_before_an_id(value: Value) -> bool:
    """True if a text is put before an id that the target is asked for, so that it is no longer an id."""
    return any(part.before and part.crosswalk and part.crosswalk.reference for part in walk(value))


def _names(file: FeedFile) -> Iterator[BadFeed]:
    """Yield faults of column names: paths that cannot be parsed, and names where there is no header."""
    for place, name, _ in named_places(file):
        if file.format in ("ndjson", "json"):
            try:
                parse_path(name)
            except BadPath as error:
                yield BadFeed(_path(place), str(error))
        elif file.fields:
            if name not in file.fields and position(name) is None:
                yield BadFeed(_path(place), f"{name} is not one of [fields]")
        elif not file.header and position(name) is None:
            yield BadFeed(
                _path(place), 'the file has no header (header = 0); name the column by its position: 3 or "#3"'
            )


def _undecided(file: FeedFile) -> Iterator[BadFeed]:
    """Yield the conditions still as drafted: they would be true for no row, and nobody would notice."""
    for path, name, test in _conditions(file):
        if ASKED in (name, *test.is_, *test.not_, *test.starts, *test.not_starts):
            said = f'"{ASKED}" is a placeholder; write the column and the text, or remove the condition'
            yield BadFeed(path, said)


def _conditions(file: FeedFile) -> Iterator[tuple[tuple[str, ...], str, Test]]:
    """Yield every condition of a feed file: the path of keys, the column that it tests, and the test."""
    ends = file.trailer.when if file.trailer else {}
    for path, tests in ((("take",), file.take), (("skip",), file.skip), (("trailer", "when"), ends)):
        yield from (((*path, name), name, test) for name, test in tests.items())
    for place, value in values_of(file):
        for part in walk(value):
            yield from (((*_path(place), "when"), name, test) for name, test in part.when.items())


def _value(place: str, value: Value) -> Iterator[BadFeed]:
    """Yield faults of `list` and `split`, which go with labels and questions, and of `by`, a question's."""
    for part in walk(value):
        if part.split and (part is not value or not place.startswith(LISTS) or part.column is None):
            yield BadFeed(_path(place), "split is only for columns.labels and [questions], beside column")
        if part.list_ and (part is not value or not place.startswith(LISTS)):
            yield BadFeed(_path(place), "list is only for columns.labels and [questions], not inside another value")
        if part.by != "code" and (part is not value or not place.startswith("questions.")):
            yield BadFeed(_path(place), "by is only for [questions], not inside another value")


def _comments(file: FeedFile) -> Iterator[BadFeed]:
    """Yield faults of `each`, which reads an array of objects: three parts for comments, else only texts."""
    for place, value in values_of(file):
        for part in walk(value):
            if part.each is None:
                continue
            parts = {"text", "author_id", "time"} if place == "columns.comments" else {"text"}
            if part.column is None or "text" not in part.each or not part.each.keys() <= parts:
                said = f"needs column beside it, and text among its parts; possible parts: {', '.join(sorted(parts))}"
                yield BadFeed((*_path(place), "each"), said)
    comments = file.columns.get("comments")
    if comments and comments.each is None:
        yield BadFeed(("columns", "comments"), "needs each: the paths of text, author_id and time within a comment")


def _path(place: str) -> tuple[str, ...]:
    """Return the keys of a place such as `columns.amount` or `questions.g.1`."""
    section, _, name = place.partition(".")
    if section == "comments":
        return (section, *name.split("."))
    return (section, name)
