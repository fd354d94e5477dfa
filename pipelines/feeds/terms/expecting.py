"""`[expect]` of a feed file: when its files arrive, and how large they are."""

from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from pipelines.feeds.terms.parts import AsList, Part

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Expect(Part):
    """Bounds for the files of a feed. by, days: a file has come by this local time on each of these days.

    rows, amount: at least, and at most. set_aside: the largest share of records that are rejected or refused. history:
    rows and amount may be so many spreads away from the median of the last files.
    """

    by: Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] = ""
    days: Annotated[tuple[Day, ...], AsList] = DAYS
    rows: tuple[int, int] | None = None
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
