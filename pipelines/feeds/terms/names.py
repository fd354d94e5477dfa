"""Names of columns in a feed file: by name, or by position as `#3`."""

import re
from collections.abc import Iterator, Sequence

from pipelines.feeds.terms.schema import FeedFile
from pipelines.feeds.terms.values import Value

CONSTANT = "(constant)"
_POSITION = re.compile(r"#([1-9]\d{0,3})\Z", re.ASCII)


def position(name: str) -> int | None:
    """Return the number of a column named by position (3 for `#3`), or None for a name."""
    match = _POSITION.match(name)
    return int(match[1]) if match else None


def places_of(header: Sequence[str]) -> dict[str, int]:
    """Return the places of the columns of a header, by name and by position."""
    by_position = {f"#{place + 1}": place for place in range(len(header))}
    return by_position | {name: place for place, name in enumerate(header)}


def walk(value: Value) -> Iterator[Value]:
    """Yield a value and its parts, except the parts of `each`, which name columns of an array's objects."""
    yield value
    for part in [*(value.first or ()), *(value.join or ()), *(value.list_ or ())]:
        yield from walk(part)


def walk_all(value: Value) -> Iterator[Value]:
    """Yield a value and its parts, including the parts of `each`."""
    for part in walk(value):
        yield part
        for inner in (part.each or {}).values():
            yield from walk_all(inner)


def values_of(file: FeedFile) -> Iterator[tuple[str, Value]]:
    """Yield every value of a feed file, with its key in that file."""
    for section in ("columns", "questions"):
        for name, value in getattr(file, section).items():
            yield f"{section}.{name}", value
    for number, comment in enumerate(file.comments):
        for part, value in comment.parts.items():
            yield f"comments.{number}.{part}", value
    if file.trailer:
        for part, value in file.trailer.totals.items():
            yield f"trailer.{part}", value


def named_places(file: FeedFile) -> Iterator[tuple[str, str, bool]]:
    """Yield every source column in a feed file: the key that names it, the column, and True if a file must have it."""
    ends = file.trailer.when if file.trailer else {}
    for section, tests in (("take", file.take), ("skip", file.skip), ("trailer.when", ends)):
        for name in tests:
            yield f"{section}.{name}", name, True
    for joined, join in file.join.items():
        for first, second in join.on.items():
            yield f"join.{joined}", first, True
            yield f"join.{joined}", f"{joined}.{second}", True
    for place, value in values_of(file):
        for part in walk(value):
            if part.column:
                yield place, part.column, not (part.optional or value.optional)
            yield from ((place, name, True) for name in part.when)


def named_columns(file: FeedFile) -> dict[str, bool]:
    """Return every source column in a feed file, with True if a file must have it."""
    names: dict[str, bool] = {}
    for _, name, must in named_places(file):
        names[name] = names.get(name, False) or must
    return names


def named_by(value: Value) -> list[str]:
    """Return the source columns that a value is made of."""
    return list(dict.fromkeys(part.column for part in walk(value) if part.column))


def source_label(value: Value) -> str:
    """Return the source columns of a value as a reason names them, or `(constant)`."""
    return ", ".join(named_by(value)) or CONSTANT


def position_header(file: FeedFile, width: int = 0) -> list[str]:
    """Return `#1`, `#2`, ... as the header of a file without one, up to the highest position in the feed file.

    width: the least number of columns that the file has.
    """
    most = max((position(name) or 0 for name in named_columns(file)), default=0)
    return [f"#{place}" for place in range(1, max(most, width) + 1)]
