"""Read and check plain creates in one pass: single ones, and Bundles of nothing else, as imports send them.

A body that is not plain, or has a fault, is read again by `create.py`, and a Bundle entry by entry by `batch.py`: these
say what is wrong.
"""

from typing import Annotated, Any, Literal, Union

import msgspec

from fhir_service.interface.fast.structs import StructReader, struct_of
from fhir_service.interface.outcomes import INVALID
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.resources.shared_items import ResponseInParts, read_items
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Resource, conjunction

BundleType = Literal["batch", "transaction"]


# Rules whose breach is a bad request are about the shape, too.
_KEEP_RULES = {
    name: conjunction([rule for rule in resource.rules if rule.outcome == INVALID and rule.needs == "payload"])
    for name, resource in RESOURCES.items()
}
_BODIES = {name: struct_of(resource.model) for name, resource in RESOURCES.items() if "create" in resource.interactions}
_BODIES_OF_BATCHES = _BODIES | {"QuestionnaireResponse": ResponseInParts}


class _Request(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    method: Literal["POST"]
    url: str
    ifNoneExist: str | None = None


class PlainEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """An entry that creates: a resource, and the request to `POST` it to its type."""

    resource: Union[tuple(_BODIES_OF_BATCHES.values())]  # type: ignore[valid-type] # noqa: UP007 - of the resources that there are
    request: _Request
    fullUrl: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class PlainBundle(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A batch or a transaction of nothing but such entries, in the order sent."""

    resourceType: Literal["Bundle"]
    type: BundleType
    entry: list[PlainEntry]


class _BatchInParts(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    resourceType: Literal["Bundle"]
    type: BundleType
    entry: list[msgspec.Raw]


LONG = 1 << 20
"""A Bundle of so many bytes is read in parts. Reading a part takes some milliseconds, and no other thread runs then."""
PART = 500
"""The entries of a part."""
LARGEST = 1 << 20
"""The most bytes of an entry in such a Bundle. `batch.py` may refuse a larger one."""
_READER, _READER_IN_PARTS, _PART_READER = (
    StructReader(PlainBundle),
    StructReader(_BatchInParts),
    StructReader(list[PlainEntry]),
)
_READERS = {name: StructReader(body) for name, body in _BODIES.items()}


def create(resource: Resource, raw: bytes, site: Site) -> Any | None:
    """Return the model of a plain create; None for any other body."""
    model = _READERS[resource.name].read(raw)
    return model if model is not None and _KEEP_RULES[resource.name](model, site) else None


def bundle(raw: bytes, site: Site) -> PlainBundle | None:
    """Return a Bundle of plain creates; None for any other."""
    found = _bundle(raw)
    if found is None or (found.type == "transaction" and _names_one_twice(found.entry)):
        return None
    for entry in found.entry:
        name, model = entry.request.url, entry.resource
        if type(model) is not _BODIES_OF_BATCHES.get(name):
            return None
        if type(model) is ResponseInParts and not read_items(model):
            return None
        if not _KEEP_RULES[name](model, site):
            return None
    return found


def _bundle(raw: bytes) -> PlainBundle | None:
    """Return the Bundle of a text; None if its shape is not plain."""
    if len(raw) < LONG:
        whole: PlainBundle | None = _READER.read(raw)
        return whole
    batch: _BatchInParts | None = _READER_IN_PARTS.read(raw)
    if batch is None or any(len(entry) > LARGEST for entry in batch.entry):
        return None
    found: list[PlainEntry] = []
    for start in range(0, len(batch.entry), PART):
        part = _PART_READER.read(b"[" + b",".join(batch.entry[start : start + PART]) + b"]")
        if part is None:
            return None
        found += part
    return PlainBundle("Bundle", batch.type, found)


def _names_one_twice(entries: list[PlainEntry]) -> bool:
    names = [entry.fullUrl for entry in entries if entry.fullUrl]
    return len(set(names)) < len(names)
