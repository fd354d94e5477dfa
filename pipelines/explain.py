"""What `chartferry feeds check` says: a feed in words, and of each column where it comes from and what it becomes."""

from collections.abc import Iterable

from pipelines.feeds.catalog import Feed
from pipelines.feeds.schema import Test, Value


def feed_lines(feed: Feed) -> Iterable[str]:
    """The feed as lines: name, files, form, and its columns."""
    file = feed.file
    form = file.format or "csv or ndjson, by the file's name"
    yield f"{feed.name}: {file.kind} to {feed.resource}, source {feed.source}{' (built in)' if feed.builtin else ''}"
    yield f"  files {', '.join(file.files)}; {form}; {file.encoding}"
    yield f"  times in {file.timezone}; changed content under a known key: {file.changed}"
    for name, test in file.take.items():
        yield f"  takes only rows where {name} {test_text(test)}"
    rows = [
        [f"  {column.name}", f"from {value_text(file.columns[column.name])}", f"becomes {column.element}"]
        for column in feed.kind.columns
        if column.name in file.columns
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(2)]
    for first, second, third in rows:
        yield f"{first.ljust(widths[0])}  {second.ljust(widths[1])}  {third}"


def value_text(value: Value) -> str:
    """A declaration in words."""
    return ", ".join([_source(value), *_changes(value)])


def _source(value: Value) -> str:
    if value.column is not None:
        return value.column
    if value.constant is not None:
        return f'the constant "{value.constant}"'
    parts = (
        ("the first of", value.first, " or "),
        ("joined", value.join, f'"{value.with_}"'),
        ("a list of", value.list_, ", "),
    )
    return next(f"{what} {between.join(value_text(v) for v in each)}" for what, each, between in parts if each)


def _changes(value: Value) -> Iterable[str]:
    if value.scale is not None:
        yield f"times {value.scale}"
    if value.crosswalk:
        yield f"translated by {value.crosswalk.file} ({value.crosswalk.from_} to {value.crosswalk.to})"
    if value.values:
        rest = f', else "{value.otherwise}"' if value.otherwise is not None else ""
        yield "with " + ", ".join(f'"{a}" as "{b}"' for a, b in value.values.items()) + rest
    if value.before:
        yield f'after "{value.before}"'
    for name, test in value.when.items():
        yield f"only where {name} {test_text(test)}"
    if value.each:
        yield "each with " + ", ".join(f"{name} from {value_text(part)}" for name, part in value.each.items())


def test_text(test: Test) -> str:
    """A condition in words."""
    parts = [
        f"is {' or '.join(test.is_)}" if test.is_ else "",
        f"is not {' or '.join(test.not_)}" if test.not_ else "",
        f"starts with {' or '.join(test.starts)}" if test.starts else "",
        "" if test.present is None else "is present" if test.present else "is absent",
    ]
    return " and ".join(part for part in parts if part)
