"""The source of a record's value, and the steps that change it: columns, conditions, constants, translations."""

from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from pipelines.feeds.terms.parts import Encoding, Part, is_position
from pipelines.feeds.terms.texts import composed_text


class Test(Part):
    """A condition on one column: equal to one of some values, to none, a prefix, no such prefix, or presence."""

    is_: tuple[str, ...] = Field((), alias="is")
    not_: tuple[str, ...] = Field((), alias="not")
    starts: tuple[str, ...] = ()
    not_starts: tuple[str, ...] = ()
    present: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        """Return `{ is = ... }` for the short forms `"PAYMENT"` and `["CC", "CASH"]`."""
        if isinstance(given, str | list):
            given = {"is": given}
        if not isinstance(given, dict):
            raise ValueError("must be a text, a list of texts or a table")  # noqa: TRY004 - pydantic wants it
        return {name: [value] if isinstance(value, str) else value for name, value in given.items()}

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.is_ or self.not_ or self.starts or self.not_starts) and self.present is None:
            raise ValueError("needs at least one of is, not, starts, not_starts, present")
        return self

    def holds(self, text: str | None) -> bool:
        """True if the condition is true for a cell; None is an empty cell."""
        text = composed_text(text.strip()) if isinstance(text, str) else None
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
    """Return a table as pairs, which can be hashed and compared."""
    return tuple(given.items()) if isinstance(given, dict) else given


class Crosswalk(Part):
    """A translation of values from column `from` to column `to`.

    The columns are those of a CSV beside the feed file, or of a query on a database. Or the target is asked for the
    resource with an identifier.

    * database: the environment variable with the SQLAlchemy URL. If no columns are named, the query's first two are
      used.
    * where: conditions on further columns, for the rows that count.
    * type, system: the type of the resources at the target, and the system of their identifiers.
    """

    file: str | None = Field(None, min_length=1)
    encoding: Encoding = "utf-8"
    delimiter: str = Field(",", min_length=1, max_length=1)
    database: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    query: str | None = Field(None, min_length=1)
    from_: str | None = Field(None, alias="from")
    to: str | None = None
    where: Annotated[tuple[tuple[str, Test], ...], BeforeValidator(_pairs)] = ()
    reference: Literal["identifier"] | None = None
    type: Literal["Patient", "Practitioner"] | None = None
    system: str = ""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.reference:
            if not (self.type and self.system) or self.model_fields_set - {"reference", "type", "system"}:
                raise ValueError('reference = "identifier" needs type and system, and no other key')
            return self
        if self.type or self.system:
            raise ValueError('type and system are only allowed with reference = "identifier"')
        if (self.file is None) == (self.database is None) or (self.database is None) != (self.query is None):
            raise ValueError("needs either file, or database and query")
        if (self.from_ is None) != (self.to is None) or (self.file and self.from_ is None):
            raise ValueError("needs from and to: the columns to translate between")
        return self

    @property
    def name(self) -> str:
        """Return the name of the crosswalk in messages: its file, its database, or the system of its identifiers."""
        return self.file or self.database or self.system

    @property
    def found_twice(self) -> str:
        """Return the sentence about an identifier that several resources of the target have."""
        return f"the target has more than one {self.type} with this identifier (system {self.system})"

    @property
    def not_found(self) -> str:
        """Return the sentence about a value without an entry."""
        if self.reference:
            return f"the target has no {self.type} with this identifier (system {self.system})"
        return f"no entry in the crosswalk {self.name}"


STEPS = ("join", "values", "crosswalk")
"""The steps whose order a feed file may change, in their default order."""


class Value(Part):
    """The source of a value (one of `column`, `first`, `join`, `list`, `constant`), and the steps applied to it.

    steps: the order of `join`, `values` and `crosswalk` in the feed file, if it is not the default order.
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
        """Return `{ column = "AMOUNT" }` for the short form `"AMOUNT"`, `{ column = "#3" }` for 3."""
        if isinstance(given, str) or is_position(given):
            return {"column": given}
        if not isinstance(given, dict):
            raise ValueError("must be a column's name, its position (1 is the first) or a table")  # noqa: TRY004 - pydantic wants it
        steps = tuple(name for name in given if name in STEPS)
        return given if steps == tuple(name for name in STEPS if name in given) else {**given, "(steps)": steps}

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = (self.column, self.first, self.join, self.list_, self.constant)
        if sum(source is not None for source in sources) != 1:
            raise ValueError("needs exactly one of column, first, join, list, constant")
        if self.otherwise is not None and not self.values:
            raise ValueError("otherwise is only allowed with values")
        return self


class Comment(Part):
    """A comment of a task, made from columns of its own. If `text` is empty, there is no comment."""

    text: Value
    author_id: Value | None = None
    time: Value | None = None

    @property
    def parts(self) -> dict[str, Value]:
        found = {"text": self.text, "author_id": self.author_id, "time": self.time}
        return {name: value for name, value in found.items() if value}


class Trailer(Part):
    """The last row of a file, recognized by `when`: the number of rows before it, and the sum of their amounts."""

    when: dict[str, Test] = Field(min_length=1)
    rows: Value | None = None
    amount: Value | None = None

    @property
    def totals(self) -> dict[str, Value]:
        return {name: value for name, value in (("rows", self.rows), ("amount", self.amount)) if value}
