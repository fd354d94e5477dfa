"""Read the requests of a Bundle from its text.

A Bundle may be larger than a single body, but none of its entries may be. The entries of a large Bundle are parsed one
after another, so that only one parsed entry is in memory at a time.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from fhir_service.interactions import batch, create, transaction
from fhir_service.interactions.plain import LARGEST, BundleType
from fhir_service.interface.outcomes import INVALID, TOO_LARGE, FhirError
from fhir_service.interface.scopes import Caller
from fhir_service.service import Service
from fhir_service.web.http import parse_body

Shown = dict[str, Any]


class _Outline(msgspec.Struct, gc=False):
    """A Bundle with its entries as text. Other elements are skipped."""

    entry: msgspec.Raw = msgspec.Raw(b"[]")


_OUTLINE = msgspec.json.Decoder(_Outline)
_TEXTS = msgspec.json.Decoder(list[msgspec.Raw])


class _Texts:
    """The entries of a large Bundle, parsed anew on each iteration. An entry that is too large is an error.

    most: bytes of one entry.
    """

    def __init__(self, texts: list[msgspec.Raw], most: int) -> None:
        self._texts, self._most = texts, most

    def __iter__(self) -> Iterator[Shown | FhirError]:
        for index, text in enumerate(self._texts):
            yield (
                batch.checked_entry(parse_body(bytes(text)), index)
                if len(text) <= self._most
                else _too_large(self._most)
            )


def _too_large(most: int) -> FhirError:
    return FhirError(TOO_LARGE, f"an entry of a Bundle may have at most {most:,} bytes")


def understood(service: Service, raw: bytes, caller: Caller) -> batch.Bundle:
    """Return the requests of a body, or the error of each bad one. Raises if the whole is bad."""
    batch.refuse_too_many_values(raw)
    may_be_plain = service.settings.max_body >= LARGEST
    if may_be_plain and (plain := batch.understand_plain(raw, caller, service.site)) is not None:
        return plain
    batch.refuse_too_many_parts(raw)
    kind, count, entries = _entries(raw, service.settings.max_body)
    links = transaction.entry_links(entries, service.new_id) if kind == "transaction" else None
    size = len(raw) // max(count, 1)
    requests: list[batch.Request] = []
    for index, entry in enumerate(entries):
        if isinstance(entry, FhirError):
            requests.append(entry)
            continue
        if links:
            links.refer(entry)
        one = batch.understand(entry, caller, service.site, size)
        if links and isinstance(one, create.Create):
            one.id = links.ids[index]
        requests.append(one)
    return batch.Bundle(kind, requests)


def _entries(raw: bytes, most: int) -> tuple[BundleType, int, Iterable[Shown | FhirError]]:
    """Return the type of a Bundle, the number of its entries, and the entries. Raises if the whole is bad."""
    if len(raw) <= most:
        kind, entries = batch.entries(parse_body(raw))
        return kind, len(entries), entries
    try:
        array = _OUTLINE.decode(raw).entry
        texts = _TEXTS.decode(array)
    except msgspec.ValidationError:
        raise FhirError(INVALID, "an object with an array of entries is expected", "Bundle") from None
    except (msgspec.DecodeError, RecursionError):
        raise FhirError(INVALID, "the text is not JSON") from None
    if len(texts) > batch.MOST_ENTRIES:
        raise batch.too_many()
    around = raw.replace(bytes(array), b"[]", 1).strip()
    if len(around) > most:
        raise FhirError(TOO_LARGE, f"a Bundle without its entries may have at most {most:,} bytes")
    kind, _ = batch.entries(parse_body(around))
    return kind, len(texts), _Texts(texts, most)
