"""The schema of a feed file (TOML), as pydantic models. `mapping` applies it; `docs/feeds.md` explains it."""

import re
from decimal import Decimal
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator

from pipelines.feeds.terms.expecting import Expect
from pipelines.feeds.terms.numbers import Numbers
from pipelines.feeds.terms.settings import is_date_format, is_position, known_encoding
from pipelines.feeds.terms.texts import composed

Kind = Literal["payments", "answers", "tasks"]
Form = Literal["csv", "ndjson", "json", "xlsx", "parquet", "sql", "fixed"]
Policy = Literal["skip", "reject", "update", "supersede"]
Place = Annotated[int, Field(ge=1, le=1_000_000)]
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_\-]{1,40}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._\-]{0,63}$")]

POLICIES: dict[str, tuple[Policy, ...]] = {
    "payments": ("skip", "reject"),
    "answers": ("skip", "reject", "supersede"),
    "tasks": ("skip", "reject", "update"),
}


class Part(BaseModel):
    """A piece of a feed file: nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False, hide_input_in_errors=True)


class Test(Part):
    """A condition on one column: one of some values, none of some, a beginning or none of some, being there."""

    is_: tuple[str, ...] = Field((), alias="is")
    not_: tuple[str, ...] = Field((), alias="not")
    starts: tuple[str, ...] = ()
    not_starts: tuple[str, ...] = ()
    present: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        """`"PAYMENT"` and `["CC", "CASH"]` stand for `{ is = ... }`."""
        if isinstance(given, str | list):
            given = {"is": given}
        if not isinstance(given, dict):
            raise ValueError("a text, a list of texts or a table is expected")  # noqa: TRY004 - pydantic wants it
        return {name: [value] if isinstance(value, str) else value for name, value in given.items()}

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.is_ or self.not_ or self.starts or self.not_starts) and self.present is None:
            raise ValueError("one of is, not, starts, not_starts, present is expected")
        return self

    def holds(self, text: str | None) -> bool:
        """True if the condition holds for a cell; None is an empty one."""
        text = composed(text.strip()) if isinstance(text, str) else None
        if self.present is not None and self.present != (text is not None):
            return False
        if self.is_ and text not in self.is_:
            return False
        if self.not_ and text in self.not_:
            return False
        if text is not None and self.not_starts and text.startswith(self.not_starts):
            return False
        return not self.starts or (text is not None and text.startswith(self.starts))


def _pairs(given: Any) -> Any:
    """Return a table as pairs, which can be compared and counted."""
    return tuple(given.items()) if isinstance(given, dict) else given


class Crosswalk(Part):
    """A translation of values, from column `from` to column `to` of a CSV beside the feed file, or of a query on a
    database; or by asking the target for who has such an identifier.

    database: the environment variable with its SQLAlchemy URL. Of a query, the first two columns are taken when none
    are named. where: conditions on further columns of it, for the rows that count. type, system: of the resources at
    the target, and of their identifiers.
    """

    file: str | None = None
    encoding: str = "utf-8"
    delimiter: str = Field(",", min_length=1, max_length=1)
    database: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    query: str | None = None
    from_: str | None = Field(None, alias="from")
    to: str | None = None
    where: Annotated[tuple[tuple[str, Test], ...], BeforeValidator(_pairs)] = ()
    reference: Literal["identifier"] | None = None
    type: Literal["Patient", "Practitioner"] | None = None
    system: str = ""

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, name: str) -> str:
        return known_encoding(name)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.reference:
            if not (self.type and self.system) or self.model_fields_set - {"reference", "type", "system"}:
                raise ValueError('type and system alone go with reference = "identifier"')
            return self
        if self.type or self.system:
            raise ValueError('type and system go with reference = "identifier"')
        if (self.file is None) == (self.database is None) or (self.database is None) != (self.query is None):
            raise ValueError("file, or database and query, are expected")
        if (self.from_ is None) != (self.to is None) or (self.file and self.from_ is None):
            raise ValueError("from and to are expected: the columns that it translates between")
        return self

    @property
    def name(self) -> str:
        """The name of the crosswalk in messages: its file, its database, or the system of its identifiers."""
        return self.file or self.database or self.system

    @property
    def found_twice(self) -> str:
        """The sentence on a value that several resources of the target have."""
        return f"the target has several resources {self.type} with this identifier of {self.system}"

    @property
    def not_found(self) -> str:
        """The sentence on a value without an entry."""
        if self.reference:
            return f"the target has no {self.type} with this identifier of {self.system}"
        return f"no entry in the crosswalk {self.name}"


STEPS = ("join", "values", "crosswalk")
"""The steps whose order a feed file says, in the order that they have where it is no other."""


class Value(Part):
    """The source of a value (one of `column`, `first`, `join`, `list`, `constant`), and the steps applied to it.

    steps: where it is another than usual, the order of `join`, `values` and `crosswalk` as they are written.
    """

    column: Annotated[str, BeforeValidator(lambda given: f"#{given}" if is_position(given) else given)] | None = None
    first: tuple["Value", ...] | None = None
    join: tuple["Value", ...] | None = None
    list_: tuple["Value", ...] | None = Field(None, alias="list")
    constant: str | None = None
    with_: str = Field(" ", alias="with")
    optional: bool = False
    when: dict[str, Test] = {}
    values: dict[str, str] = {}
    otherwise: str | None = None
    crosswalk: Crosswalk | None = None
    before: str = ""
    scale: Decimal | None = None
    split: str = ""
    by: Literal["code", "display"] = "code"
    each: dict[str, "Value"] | None = None
    steps: tuple[str, ...] = Field((), alias="(steps)")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        """`"AMOUNT"` stands for `{ column = "AMOUNT" }`, 3 for `{ column = "#3" }`."""
        if isinstance(given, str) or is_position(given):
            return {"column": given}
        if not isinstance(given, dict):
            raise ValueError("a column's name, its position (1 is the first) or a table is expected")  # noqa: TRY004 - pydantic wants it
        steps = tuple(name for name in given if name in STEPS)
        return given if steps == tuple(name for name in STEPS if name in given) else {**given, "(steps)": steps}

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = (self.column, self.first, self.join, self.list_, self.constant)
        if sum(source is not None for source in sources) != 1:
            raise ValueError("exactly one of column, first, join, list, constant is expected")
        if self.otherwise is not None and not self.values:
            raise ValueError("otherwise goes with values")
        return self


class Comment(Part):
    """A comment of a task, made of columns of its own. Where `text` is empty there is none."""

    text: Value
    author_id: Value | None = None
    time: Value | None = None

    @property
    def parts(self) -> dict[str, Value]:
        found = {"text": self.text, "author_id": self.author_id, "time": self.time}
        return {name: value for name, value in found.items() if value}


class Trailer(Part):
    """The last row of a file, told by `when`: how many rows came before it, and the sum of their amounts."""

    when: dict[str, Test] = Field(min_length=1)
    rows: Value | None = None
    amount: Value | None = None

    @property
    def totals(self) -> dict[str, Value]:
        return {name: value for name, value in (("rows", self.rows), ("amount", self.amount)) if value}


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
    wait_seconds: Annotated[int, Field(ge=1)] = 600


class Join(Part):
    """A second file of the same delivery, beside the first. on: columns of the first by which it finds those of the
    second. one_row_per: the join's own name where each row of the second file is to be a row; else each of the first.
    """

    files: tuple[str, ...] = Field(min_length=1)
    on: dict[str, str] = Field(min_length=1)
    one_row_per: str = ""
    encoding: str | None = None
    delimiter: str | None = Field(None, pattern=r"^[^\r\n\x00]$")
    header: Annotated[int, Field(ge=1, le=1000)] | None = None

    @field_validator("files", mode="before")
    @classmethod
    def _short_list(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @property
    def written(self) -> dict[str, Any]:
        """The keys of a feed file that are others for this file."""
        found = {"encoding": self.encoding, "delimiter": self.delimiter, "header": self.header}
        return {name: value for name, value in found.items() if value is not None}


class FeedFile(Part):
    """A whole feed file."""

    name: Name
    source: Name
    kind: Kind
    files: tuple[str, ...] = ()
    query: Query | None = None
    join: Annotated[dict[Label, Join], Field(max_length=1)] = {}
    format: Form | None = None
    encoding: str = "utf-8"
    delimiter: str = Field(",", pattern=r"^[^\r\n\x00]$")
    quote: str = Field('"', pattern=r"^[^\r\n\x00]?$")
    escape: str = Field("", pattern=r"^[^\r\n\x00]?$")
    quotes: Literal["checked", "as they are"] = "checked"
    skip_spaces: bool = False
    fields: dict[str, tuple[Place, Place]] = {}
    short_lines: bool = False
    header: Annotated[int, Field(ge=0, le=1000)] = 1
    header_has: str = ""
    sheet: Annotated[int, Field(ge=1)] | str | None = None
    dates_since: Literal[1900, 1904] = 1900
    empty: tuple[str, ...] = ()
    timezone: str = "UTC"
    ambiguous: Literal["reject", "earlier", "later"] = "reject"
    dates: tuple[str, ...] = ()
    decimal: Literal[".", ","] = "."
    thousands: Literal["", ".", ",", " ", "'"] = ""
    currency: tuple[str, ...] = ()
    resources: bool = False
    one_row_per: Literal["comment"] | None = None
    changed: Policy = "reject"
    taken_back: Literal["reject", "load"] = "reject"
    copayments: Literal["ask", "all"] = "ask"
    notes: Literal["response", "patient-day"] = "response"
    max_rejects: Annotated[int | Decimal, Field(ge=0)] | None = None
    scored: tuple[str, ...] | None = None
    scored_questions: tuple[str, ...] = ()
    take: dict[str, Test] = {}
    skip: dict[str, Test] = {}
    trailer: Trailer | None = None
    expect: Expect | None = None
    maps: dict[str, dict[str, str]] = {}
    columns: dict[str, Value] = {}
    questions: dict[str, Value] = {}
    comments: tuple[Comment, ...] = ()

    @field_validator("currency", "empty", "dates", "files", "scored", "scored_questions", mode="before")
    @classmethod
    def _short_list(cls, given: Any) -> Any:
        """`"$"` stands for `["$"]`."""
        return [given] if isinstance(given, str) else given

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, name: str) -> str:
        return known_encoding(name)

    @field_validator("dates")
    @classmethod
    def _known_dates(cls, forms: tuple[str, ...]) -> tuple[str, ...]:
        for form in forms:
            if form not in ("excel", "unix") and not is_date_format(form):
                raise ValueError(f"'{form}' is no format of a date (such as %d.%m.%Y %H:%M, excel or unix for numbers)")
        return forms

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
