"""The body of a QuestionnaireResponse: its field table, and the items of every depth with their places."""

import re
from functools import cached_property, lru_cache
from typing import Annotated, Literal

from pydantic import Field

from fhir_service.interface.datatypes import (
    ID_PATTERN,
    AuthorReference,
    Coding,
    Element,
    EncounterReference,
    Id,
    Identifier,
    Meta,
    PatientReference,
    ReadableNumber,
    Text,
    Time,
    Uri,
)
from fhir_service.interface.site import Site

ROOT = "QuestionnaireResponse"


class Extension(Element):
    url: Uri
    valueId: Id | None = None
    valueString: Text | None = None


class Answer(Element):
    valueString: Text | None = None
    valueCoding: Coding | None = None
    valueDecimal: ReadableNumber | None = None
    item: Annotated[list["Item"], Field(min_length=1)] | None = None


class Item(Element):
    linkId: Text
    text: Text | None = None
    answer: Annotated[list[Answer], Field(min_length=1)] | None = None
    item: Annotated[list["Item"], Field(min_length=1)] | None = None


class QuestionnaireResponse(Element):
    """The field table of QuestionnaireResponse as a body of create."""

    resourceType: Literal["QuestionnaireResponse"]
    id: Id | None = None
    meta: Meta | None = None
    identifier: Identifier | None = None
    extension: Annotated[list[Extension], Field(min_length=1)] | None = None
    questionnaire: Uri
    status: Text
    subject: PatientReference
    encounter: EncounterReference | None = None
    authored: Time | None = None
    author: AuthorReference | None = None
    item: Annotated[list[Item], Field(min_length=1)] | None = None

    @cached_property
    def placed(self) -> "list[Placed]":
        """Every item of the payload with its FHIRPath, in payload order, nested ones after the item that holds them."""
        found: list[Placed] = []
        _place(self.item, ROOT, found)
        return found

    @cached_property
    def of_choices(self) -> bool:
        """True if each item holds one answer that is one coding, and nothing else: so are most."""
        return all(map(is_choice, self.item or ()))


def is_choice(item: Item) -> bool:
    """True if an item holds one answer that is one coding, and nothing else."""
    if item.item or item.answer is None or len(item.answer) != 1:
        return False
    answer = item.answer[0]
    values = answer.valueString, answer.valueDecimal, answer.item
    return answer.valueCoding is not None and values == (None, None, None)


Placed = tuple[str, Item]
"""An item of the payload, after its FHIRPath."""


def _place(items: list[Item] | None, path: str, found: list[Placed]) -> None:
    """Add items and those nested in them. No generators: this is done for every item of a load, in half the time."""
    for index, item in enumerate(items or ()):
        at = f"{path}.item[{index}]"
        found.append((at, item))
        if item.answer:
            for number, answer in enumerate(item.answer):
                if answer.item:
                    _place(answer.item, f"{at}.answer[{number}]", found)
        if item.item:
            _place(item.item, at, found)


_ADDRESS = re.compile(rf"/Questionnaire/({ID_PATTERN})\Z")


def questionnaire_id(address: str, site: Site) -> str | None:
    """The id in `{base_url}/Questionnaire/<id>`; None for any other address."""
    return _id_within(address, site.base_url)


@lru_cache(maxsize=256)
def _id_within(address: str, base_url: str) -> str | None:
    if not address.startswith(f"{base_url}/Questionnaire/"):
        return None
    match = _ADDRESS.match(address[len(base_url) :])
    return match[1] if match else None
