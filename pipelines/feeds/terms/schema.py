"""The schema of a feed file (TOML), as pydantic models. `mapping` applies it; `docs/feeds.md` explains it."""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, Strict, StringConstraints, model_validator

from pipelines.feeds.terms.numbers import NumberFormat
from pipelines.feeds.terms.parts import AsList, Encoding, Part, Texts, is_date_format
from pipelines.feeds.terms.times import Conventions
from pipelines.feeds.terms.values import Comment, Test, Trailer, Value

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


def values_of(file: "FeedFile") -> Iterator[tuple[str, Value]]:
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


def named_places(file: "FeedFile") -> Iterator[tuple[str, str, bool]]:
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


def named_columns(file: "FeedFile") -> dict[str, bool]:
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


def position_header(file: "FeedFile", width: int = 0) -> list[str]:
    """Return `#1`, `#2`, ... as the header of a file without one, up to the highest position in the feed file.

    width: the least number of columns that the file has.
    """
    most = max((position(name) or 0 for name in named_columns(file)), default=0)
    return [f"#{place}" for place in range(1, max(most, width) + 1)]


Kind = Literal["payments", "answers", "tasks"]
Form = Literal["csv", "ndjson", "json", "xlsx", "parquet", "sql", "fixed"]
Policy = Literal["skip", "reject", "update", "supersede"]
Number = Annotated[int, Strict()]
"""A whole number; `true` is not accepted as one."""
Place = Annotated[Number, Field(ge=1, le=1_000_000)]
Year = Annotated[Number, Field(ge=1, le=9999)]
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_\-]{1,40}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._\-]{0,63}$")]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

POLICIES: dict[str, tuple[Policy, ...]] = {
    "payments": ("skip", "reject"),
    "answers": ("skip", "reject", "supersede"),
    "tasks": ("skip", "reject", "update"),
}


class Query(Part):
    """A query on a database, instead of files.

    * database: the environment variable with the SQLAlchemy URL.
    * watermark: the column that shows which rows are new.
    * overlap: how far to go back from the last mark, in days, or in units of a watermark that is a number.
    * wait_seconds: the longest wait for the next rows.
    """

    database: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    sql: str = Field(min_length=1)
    watermark: str = ""
    overlap: Decimal | None = Field(None, ge=0)
    wait_seconds: Annotated[Number, Field(ge=1)] = 600


class Join(Part):
    """A second file of a delivery, joined to the first.

    * on: columns of the first file, each with the column of the second whose values it has.
    * one_row_per: the join's own name if each row of the second file becomes a row; else each row of the first does.
    """

    files: Annotated[tuple[str, ...], Field(min_length=1), AsList]
    on: dict[str, str] = Field(min_length=1)
    one_row_per: str = ""
    encoding: str | None = None
    delimiter: str | None = Field(None, pattern=r"^[^\r\n\x00]$")
    header: Annotated[Number, Field(ge=1, le=1000)] | None = None

    @property
    def written(self) -> dict[str, Any]:
        """Return the keys of a feed file whose values differ for this file."""
        found = {"encoding": self.encoding, "delimiter": self.delimiter, "header": self.header}
        return {name: value for name, value in found.items() if value is not None}


class Expect(Part):
    """Bounds for the files of a feed.

    * by, days: a file is expected by this local time on each of these days.
    * rows, amount: the least and the most.
    * set_aside: the largest share of records that are rejected or refused.
    * history: how many spreads rows and amount may be away from the median of the last files.
    """

    by: Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] = ""
    days: Annotated[tuple[Day, ...], AsList] = DAYS
    rows: tuple[Number, Number] | None = None
    amount: tuple[Decimal, Decimal] | None = None
    set_aside: Annotated[Decimal, Field(ge=0, le=1)] | None = None
    history: Annotated[Decimal, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        for bounds in (self.rows, self.amount):
            if bounds and bounds[0] > bounds[1]:
                raise ValueError("write the smaller bound first: [10, 500]")
        if not (self.by or self.rows or self.amount or self.history) and self.set_aside is None:
            raise ValueError("needs at least one of by, rows, amount, set_aside, history")
        return self


_OF_KIND = {
    **dict.fromkeys(("questions", "scored", "scored_questions", "notes"), "answers"),
    "copayments": "payments",
    **dict.fromkeys(("comments", "one_row_per"), "tasks"),
}
"""The keys that only feeds of one kind have."""


def _known_dates(forms: tuple[str, ...]) -> tuple[str, ...]:
    for form in forms:
        if form not in ("excel", "unix") and not is_date_format(form):
            raise ValueError(
                f"'{form}' is not a format of dates; examples: %d.%m.%Y %H:%M, %m/%d/%Y %I:%M %p, excel, unix"
            )
    return forms


def _in_order(years: tuple[int, int]) -> tuple[int, int]:
    if years[1] < years[0]:
        raise ValueError("write the first year before the last: years = [1990, 2100]")
    return years


def _known_currency(signs: tuple[str, ...]) -> tuple[str, ...]:
    if any(not sign.strip() or re.search(r"[\d.,()+\-]", sign) for sign in signs):
        raise ValueError("must be a currency sign or code, such as $, USD or US$")
    return signs


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("not a time zone of the IANA list; examples: Europe/Berlin, America/New_York") from None
    return name


class FeedFile(Part):
    """A whole feed file."""

    name: Name
    source: Name
    kind: Kind
    files: Texts = ()
    query: Query | None = None
    join: Annotated[dict[Label, Join], Field(max_length=1)] = {}
    format: Form | None = None
    encoding: Encoding = "utf-8"
    delimiter: str = Field(",", pattern=r"^[^\r\n\x00]$")
    quote: str = Field('"', pattern=r"^[^\r\n\x00]?$")
    escape: str = Field("", pattern=r"^[^\r\n\x00]?$")
    quotes: Literal["checked", "as they are"] = "checked"
    skip_spaces: bool = False
    fields: dict[str, tuple[Place, Place]] = {}
    short_lines: bool = False
    header: Annotated[Number, Field(ge=0, le=1000)] = 1
    one_table: bool = False
    header_has: str = ""
    sheet: Annotated[Number, Field(ge=1)] | str | None = None
    dates_since: Literal[1900, 1904] = 1900
    empty: Texts = ()
    timezone: Annotated[str, AfterValidator(_known_zone)] = "UTC"
    ambiguous: Literal["reject", "earlier", "later"] = "reject"
    dates: Annotated[Texts, AfterValidator(_known_dates)] = ()
    years: Annotated[tuple[Year, Year], AfterValidator(_in_order)] | None = None
    decimal: Literal[".", ","] = "."
    thousands: Literal["", ".", ",", " ", "'"] = ""
    currency: Annotated[Texts, AfterValidator(_known_currency)] = ()
    resources: bool = False
    one_row_per: Literal["comment"] | None = None
    changed: Policy = "reject"
    taken_back: Literal["reject", "load"] = "reject"
    copayments: Literal["ask", "all"] = "ask"
    notes: Literal["response", "patient-day"] = "response"
    max_rejects: Annotated[Number | Decimal, Field(ge=0)] | None = None
    scored: Texts | None = None
    scored_questions: Texts = ()
    take: dict[str, Test] = {}
    skip: dict[str, Test] = {}
    trailer: Trailer | None = None
    expect: Expect | None = None
    maps: dict[str, dict[str, str]] = {}
    columns: dict[str, Value] = {}
    questions: dict[str, Value] = {}
    comments: tuple[Comment, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _no_header(cls, given: Any) -> Any:
        """Return the feed file with `header = 0` as the default of fixed-width files."""
        fixed = isinstance(given, dict) and given.get("format") == "fixed"
        return {"header": 0, **given} if fixed else given

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if said := next((said for said, is_wrong in self._wrong() if is_wrong), None):
            raise ValueError(said)
        return self

    def _wrong(self) -> Iterator[tuple[str, object]]:
        """Yield the faults of combinations of keys, each with its condition: the message, and true if it applies."""
        said = 'query: required with format = "sql", and only allowed with it'
        yield said, (self.query is None) != (self.format != "sql")
        yield "files: a feed has files or a query, not both", self.query and self.files
        other = self.format in ("xlsx", "parquet", "sql", "fixed") or self.resources or self.trailer
        yield "join: only allowed with CSV, NDJSON or JSON, and without resources and [trailer]", self.join and other
        for name, join in self.join.items():
            said = f"join.{name}.one_row_per: must be '{name}' (one row for each row of that file), or left out"
            yield said, join.one_row_per not in ("", name)
        said = 'fields: required with format = "fixed" (receipt = [1, 8]), and only allowed with it'
        yield said, bool(self.fields) != (self.format == "fixed")
        for name, (first, last) in self.fields.items():
            yield f"fields: {name} ends before it begins", last < first
        policies = POLICIES[self.kind]
        yield f"changed: for {self.kind} it must be one of {', '.join(policies)}", self.changed not in policies
        signs = [sign for sign in (self.delimiter, self.quote, self.escape) if sign]
        yield "delimiter, quote and escape: must be three different characters", len(set(signs)) < len(signs)
        said = 'thousands: must differ from decimal; for 1.234,50 write decimal = "," and thousands = "."'
        yield said, self.thousands == self.decimal
        for name, kind in _OF_KIND.items():
            is_said = name in self.model_fields_set and getattr(self, name)
            yield f"{name}: only for kind = '{kind}'", is_said and self.kind != kind
        yield "comments: use [[comments]] or columns.comments, not both", self.comments and "comments" in self.columns
        said = "one_row_per: use columns.comment for the comment of each row, not [[comments]]"
        yield said, self.comments and self.one_row_per
        for name, part in (("expect", self.expect), ("trailer", self.trailer)):
            yield f"{name}.amount: only for kind = 'payments'", part and part.amount and self.kind != "payments"

    @property
    def numbers(self) -> NumberFormat:
        """Return the number format of the feed's files."""
        return NumberFormat(self.decimal, self.thousands, self.currency)

    @property
    def conventions(self) -> Conventions:
        """Return the format of times and numbers of the feed's files."""
        zone, since = ZoneInfo(self.timezone), self.dates_since
        return Conventions(zone, self.dates, self.numbers, self.ambiguous, self.years, days_since=since)
