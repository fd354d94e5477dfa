"""Read each item that many responses share only once: imports repeat the same few choices, in the same words.

All responses with such an item then have the same object. A questionnaire checks it once, and remembers it by its
identity together with its stored text. Items with a person's own words are never remembered.
"""

from typing import Annotated, Any

import msgspec
import orjson

from fhir_service.interface.fast.structs import StructReader, struct_of
from fhir_service.interface.resources.questionnaire import Questionnaire
from fhir_service.interface.resources.response_model import Item, QuestionnaireResponse, is_choice

MOST = 5_000
"""The most items that are remembered here, and by a questionnaire. When full, the memory is cleared."""
LONGEST = 500
"""The most bytes of an item that is remembered: longer ones are rarely sent twice."""

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

_READER = StructReader(SharedItem)
_read: dict[bytes, tuple[Any, bool]] = {}
"""Items by their text, each with True if it is a choice."""


def read_items(response: Any) -> bool:
    """Read the items of a response. Return False if one is not plain: the models have to read the whole response."""
    items: list[Any] = []
    of_choices = True
    for text in map(bytes, response.item or ()):
        item, is_one = _read.get(text) or _item(text)
        if item is None:
            return False
        items.append(item)
        of_choices = of_choices and is_one
    response.item = items or None
    # The value that the property of this name would compute.
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
    """Remember a shared item that chooses an option, with its stored form."""
    if isinstance(item, SharedItem) and not _has_own_words(item):
        if len(known.settled) >= MOST:
            known.settled.clear()
        # Keep the item itself, too: while it exists, no other object has its id().
        known.settled[id(item)] = (item, orjson.Fragment(orjson.dumps(stored)))
