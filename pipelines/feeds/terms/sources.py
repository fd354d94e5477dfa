"""Sources of a feed's rows beside its files: a query, or a second file of the same delivery."""

from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field

from pipelines.feeds.terms.parts import AsList, Part


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

    files: Annotated[tuple[str, ...], Field(min_length=1), AsList]
    on: dict[str, str] = Field(min_length=1)
    one_row_per: str = ""
    encoding: str | None = None
    delimiter: str | None = Field(None, pattern=r"^[^\r\n\x00]$")
    header: Annotated[int, Field(ge=1, le=1000)] | None = None

    @property
    def written(self) -> dict[str, Any]:
        """The keys of a feed file that are others for this file."""
        found = {"encoding": self.encoding, "delimiter": self.delimiter, "header": self.header}
        return {name: value for name, value in found.items() if value is not None}
