"""What a feed file (TOML) may say, as pydantic models. `mapping.py` does what it says, `docs/feeds.md` explains it."""

from decimal import Decimal
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

Kind = Literal["payments", "answers", "tasks"]
Policy = Literal["skip", "reject", "update", "supersede"]
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


class Crosswalk(Part):
    """A CSV beside the feed file that translates values: column `from` to column `to`."""

    file: str
    from_: str = Field(alias="from")
    to: str


class Value(Part):
    """Where a value comes from (one of `column`, `first`, `join`, `list`, `constant`) and what is done to it."""

    column: str | None = None
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
    each: dict[str, "Value"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        """`"AMOUNT"` stands for `{ column = "AMOUNT" }`."""
        if isinstance(given, str):
            return {"column": given}
        if not isinstance(given, dict):
            raise ValueError("a column's name or a table is expected")  # noqa: TRY004 - pydantic wants it
        return given

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = (self.column, self.first, self.join, self.list_, self.constant)
        if sum(source is not None for source in sources) != 1:
            raise ValueError("exactly one of column, first, join, list, constant is expected")
        if self.otherwise is not None and not self.values:
            raise ValueError("otherwise goes with values")
        return self


class FeedFile(Part):
    """A whole feed file."""

    name: Name
    source: Name
    kind: Kind
    files: tuple[str, ...] = Field(min_length=1)
    format: Literal["csv", "ndjson"] | None = None
    encoding: str = "utf-8"
    delimiter: str = Field(",", min_length=1, max_length=1)
    quote: str = Field('"', min_length=1, max_length=1)
    timezone: str = "UTC"
    dates: tuple[str, ...] = ()
    resources: bool = False
    changed: Policy = "reject"
    max_rejects: Annotated[int | Decimal, Field(ge=0)] | None = None
    take: dict[str, Test] = {}
    columns: dict[str, Value]

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, name: str) -> str:
        try:
            "".encode(name)
        except LookupError:
            raise ValueError("no encoding that Python knows (utf-8, utf-16, windows-1252, ...)") from None
        return name

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("no time zone of the IANA list (Europe/Berlin, America/New_York, ...)") from None
        return name

    @model_validator(mode="after")
    def _policy_fits(self) -> Self:
        if self.changed not in POLICIES[self.kind]:
            raise ValueError(f"changed: {self.kind} take one of {', '.join(POLICIES[self.kind])}")
        return self
