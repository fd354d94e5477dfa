"""Items of responses that many share: imports send the same few choices again and again, each in the same words.

Such an item is read once, and is then one object in all responses that say it. That it chooses an option is seen once
for each questionnaire, which remembers it by its identity, with the text as which it is stored. What a person wrote in
own words is never remembered.
"""

from typing import Annotated, Any

import msgspec
import orjson

from fhir_service.interface.fast.structs import Reader, struct_of
from fhir_service.interface.resources.questionnaire import Questionnaire
from fhir_service.interface.resources.response_model import Item, QuestionnaireResponse, is_choice

MOST = 5_000
"""Items that are remembered, here and by a questionnaire; beyond that it begins anew."""
LONGEST = 500
"""Bytes of an item that is remembered: a longer one holds words that nobody else says."""

Unread = Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)] | None

SharedItem = msgspec.defstruct(
    "SharedItem", [], bases=(struct_of(Item),), kw_only=True, forbid_unknown_fields=True, gc=False
)
ResponseInParts = msgspec.defstruct(
    "ResponseInParts",
    [("item", Unread, None)],
    bases=(struct_of(QuestionnaireResponse),),
    kw_only=True,
    forbid_unknown_fields=True,
)

_READER = Reader(SharedItem)
_read: dict[bytes, tuple[Any, bool]] = {}
"""Items by their text, each with whether it is a choice."""


def read_items(response: Any) -> bool:
    """Read the items of a response in parts; False where one is not plain, and the models are to look at the whole."""
    items: list[Any] = []
    of_choices = True
    for text in map(bytes, response.item or ()):
        item, is_one = _read.get(text) or _item(text)
        if item is None:
            return False
        items.append(item)
        of_choices = of_choices and is_one
    response.item = items or None
    # As the property would find.
    response.__dict__["of_choices"] = of_choices
    return True


def _item(text: bytes) -> tuple[Any | None, bool]:
    item = _READER.read(text)
    if item is None:
        return None, False
    found = item, is_choice(item)
    if len(text) <= LONGEST and not _has_own_words(item):
        if len(_read) >= MOST:
            _read.clear()
        _read[text] = found
    return found


def _has_own_words(item: Any) -> bool:
    return any(map(_has_own_words, item.item or ())) or any(
        answer.valueString is not None or any(map(_has_own_words, answer.item or ())) for answer in item.answer or ()
    )


def settle(known: Questionnaire, item: Any, stored: dict[str, Any]) -> None:
    """Remember an item that chooses an option, and how it is stored, where it is shared."""
    if isinstance(item, SharedItem) and not _has_own_words(item):
        if len(known.settled) >= MOST:
            known.settled.clear()
        # With the item itself: as long as it is there, no other has its identity.
        known.settled[id(item)] = (item, orjson.Fragment(orjson.dumps(stored)))
