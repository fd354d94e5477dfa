"""The schema of a feed file (TOML), as pydantic models. `mapping` applies it; `docs/feeds.md` explains it."""

import re
from decimal import Decimal
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, Strict, StringConstraints, field_validator, model_validator

from pipelines.feeds.terms.numbers import Numbers
from pipelines.feeds.terms.parts import AsList, Encoding, Part, Texts, is_date_format
from pipelines.feeds.terms.times import Conventions
from pipelines.feeds.terms.values import Comment, Test, Trailer, Value

Kind = Literal["payments", "answers", "tasks"]
Form = Literal["csv", "ndjson", "json", "xlsx", "parquet", "sql", "fixed"]
Policy = Literal["skip", "reject", "update", "supersede"]
Number = Annotated[int, Strict()]
"""A whole number: `true` is none."""
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
    """A query on a database, in place of files.

    database: the environment variable with the SQLAlchemy URL. watermark: the column that shows what is new since the
    last time. overlap: how far to go back from there, in days, or in the numbers of a watermark that is a number.
    wait_seconds: the longest wait for the next rows.
    """

    database: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    sql: str = Field(min_length=1)
    watermark: str = ""
    overlap: Decimal | None = Field(None, ge=0)
    wait_seconds: Annotated[Number, Field(ge=1)] = 600


class Join(Part):
    """A second file of the same delivery, beside the first. on: columns of the first by which it finds those of the
    second. one_row_per: the join's own name where each row of the second file is to be a row; else each of the first.
    """

    files: Annotated[tuple[str, ...], Field(min_length=1), AsList]
    on: dict[str, str] = Field(min_length=1)
    one_row_per: str = ""
    encoding: str | None = None
    delimiter: str | None = Field(None, pattern=r"^[^\r\n\x00]$")
    header: Annotated[Number, Field(ge=1, le=1000)] | None = None

    @property
    def written(self) -> dict[str, Any]:
        """The keys of a feed file that are others for this file."""
        found = {"encoding": self.encoding, "delimiter": self.delimiter, "header": self.header}
        return {name: value for name, value in found.items() if value is not None}


class Expect(Part):
    """Bounds for the files of a feed. by, days: a file has come by this local time on each of these days.

    rows, amount: at least, and at most. set_aside: the largest share of records that are rejected or refused. history:
    rows and amount may be so many spreads away from the median of the last files.
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
                raise ValueError("the smaller bound comes first: [10, 500]")
        if not (self.by or self.rows or self.amount or self.history) and self.set_aside is None:
            raise ValueError("one of by, rows, amount, set_aside, history is expected")
        return self


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
    timezone: str = "UTC"
    ambiguous: Literal["reject", "earlier", "later"] = "reject"
    dates: Texts = ()
    years: tuple[Year, Year] | None = None
    decimal: Literal[".", ","] = "."
    thousands: Literal["", ".", ",", " ", "'"] = ""
    currency: Texts = ()
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

    @field_validator("dates")
    @classmethod
    def _known_dates(cls, forms: tuple[str, ...]) -> tuple[str, ...]:
        for form in forms:
            if form not in ("excel", "unix") and not is_date_format(form):
                raise ValueError(
                    f"'{form}' is no format of a date (such as %d.%m.%Y %H:%M or %I:%M %p, excel or unix for numbers)"
                )
        return forms

    @field_validator("years")
    @classmethod
    def _years_in_order(cls, years: tuple[int, int] | None) -> tuple[int, int] | None:
        if years and years[1] < years[0]:
            raise ValueError("the first and the last year are expected: years = [1990, 2100]")
        return years

    @field_validator("currency")
    @classmethod
    def _known_currency(cls, signs: tuple[str, ...]) -> tuple[str, ...]:
        if any(not sign.strip() or re.search(r"[\d.,()+\-]", sign) for sign in signs):
            raise ValueError("a sign or code is expected ($, USD, US$)")
        return signs

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("no time zone of the IANA list (Europe/Berlin, America/New_York, ...)") from None
        return name

    @model_validator(mode="after")
    def _comes_from_somewhere(self) -> Self:
        """Raise ValueError unless the rows come from files or from a query."""
        if (self.query is None) != (self.format != "sql"):
            raise ValueError('query: goes with format = "sql"')
        if self.query and self.files:
            raise ValueError("files: a feed takes files or has a query, not both")
        return self

    @model_validator(mode="after")
    def _join_fits(self) -> Self:
        """Raise ValueError for a join that could not be: of a table without text, or with a trailer of one file."""
        for name, join in self.join.items():
            if self.format in ("xlsx", "parquet", "sql", "fixed") or self.resources or self.trailer:
                raise ValueError("join: goes with CSV, NDJSON or JSON, without resources or [trailer]")
            if join.one_row_per not in ("", name):
                raise ValueError(
                    f"join.{name}.one_row_per: {name} is expected, where each row of that file is to be one"
                )
        return self

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        """Raise ValueError unless a file of fixed width has declared fields, each from a place to a later one."""
        if bool(self.fields) != (self.format == "fixed"):
            raise ValueError('fields: goes with format = "fixed", and that with fields: receipt = [1, 8]')
        if wrong := [name for name, (first, last) in self.fields.items() if last < first]:
            raise ValueError(f"fields: {wrong[0]} ends before it begins")
        return self

    @model_validator(mode="before")
    @classmethod
    def _no_header(cls, given: Any) -> Any:
        """Lines of fixed width have no header unless one is named."""
        fixed = isinstance(given, dict) and given.get("format") == "fixed"
        return {"header": 0, **given} if fixed else given

    @model_validator(mode="after")
    def _policy_fits(self) -> Self:
        if self.changed not in POLICIES[self.kind]:
            raise ValueError(f"changed: {self.kind} take one of {', '.join(POLICIES[self.kind])}")
        return self

    @model_validator(mode="after")
    def _signs_differ(self) -> Self:
        signs = [sign for sign in (self.delimiter, self.quote, self.escape) if sign]
        if len(set(signs)) < len(signs):
            raise ValueError("delimiter, quote and escape: three different characters are expected")
        if self.thousands == self.decimal:
            raise ValueError('thousands: not the decimal sign; for 1.234,50 say decimal = "," and thousands = "."')
        return self

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        """Raise ValueError for sections of another kind of record, and for comments given in two ways."""
        kinds = {
            "questions": "answers",
            "scored": "answers",
            "scored_questions": "answers",
            "notes": "answers",
            "copayments": "payments",
        }
        kinds |= {"comments": "tasks", "one_row_per": "tasks"}
        for section, kind in kinds.items():
            if section in self.model_fields_set and getattr(self, section) and self.kind != kind:
                raise ValueError(f"{section}: goes with kind = '{kind}'")
        if self.comments and "comments" in self.columns:
            raise ValueError("comments: either [[comments]] or columns.comments")
        if self.comments and self.one_row_per:
            raise ValueError("one_row_per: a comment of each row is made of columns.comment, not of [[comments]]")
        if self.expect and self.expect.amount and self.kind != "payments":
            raise ValueError("expect.amount: goes with kind = 'payments'")
        if self.trailer and self.trailer.amount and self.kind != "payments":
            raise ValueError("trailer.amount: goes with kind = 'payments'")
        return self

    @property
    def numbers(self) -> Numbers:
        """The number format of the feed's files."""
        return Numbers(self.decimal, self.thousands, self.currency)

    @property
    def conventions(self) -> Conventions:
        """The format of times and numbers of the feed's files."""
        zone, since = ZoneInfo(self.timezone), self.dates_since
        return Conventions(zone, self.dates, self.numbers, self.ambiguous, self.years, days_since=since)
