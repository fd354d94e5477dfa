"""The pages of a list."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fhir_service.interface.outcomes import INVALID, FhirError


@dataclass(frozen=True, slots=True)
class ListPage:
    """Page `number` (from 1) of a list of `total`, `size` at a time; `name` is the parameter that asks for it."""

    name: str
    number: int
    size: int
    total: int = 0

    @classmethod
    def asked(cls, name: str, size: int, query: Mapping[str, str]) -> "ListPage":
        """Return the page that a query asks for. Raises the 400 of a text that is not a number."""
        text = query.get(name, "1")
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
            raise FhirError(INVALID)
        return cls(name, int(text), size)

    def of(self, total: int) -> "ListPage":
        """Return this page of a list of that length, or the last page if there are fewer."""
        last = max(-(-total // self.size), 1)
        return replace(self, total=total, number=min(self.number, last))

    @property
    def offset(self) -> int:
        return (self.number - 1) * self.size

    @property
    def first(self) -> int:
        """The position of the page's first entry in the list, from 1."""
        return self.offset + 1

    @property
    def last(self) -> int:
        return min(self.offset + self.size, self.total)
