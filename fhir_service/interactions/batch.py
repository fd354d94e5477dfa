"""Bundles: what their entries ask for, and the answer. A batch holds independent creates, updates, reads and searches.

They are done in the order sent, and each entry is answered as the single request would be. What a transaction asks for
beyond that is in `transaction.py`.
"""

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import Any, NamedTuple
from urllib.parse import unquote

from fhir_service.interactions import create, plain, update
from fhir_service.interactions.create import CreateResult
from fhir_service.interactions.if_none_exist import condition as condition_in
from fhir_service.interactions.plain import BundleType
from fhir_service.interface.checking import parse
from fhir_service.interface.outcomes import (
    BUSINESS_RULE,
    INVALID,
    NOT_FOUND,
    NOT_SUPPORTED,
    TOO_LARGE,
    FhirError,
    outcome_of,
)
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.scopes import Caller, letter_of
from fhir_service.interface.shape import printable
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Resource
from fhir_service.writing.entry import Entry

MOST_ENTRIES = 5_000
MOST_PARTS = 1_000_000
"""The most objects and arrays in a Bundle that is parsed entry by entry: empty ones take many times their size."""
MOST_COMMAS = 3_000_000
"""The most commas in a Bundle. They separate values, and a number takes seventy times its size in memory.

It is 600 for each of `MOST_ENTRIES`. A Bundle of 64 MB that holds real resources has fewer.
"""
_OF_BUNDLE = frozenset(
    "resourceType id meta implicitRules language identifier type timestamp total link entry signature".split()
)
_OF_ENTRY = frozenset("fullUrl link resource search request response id extension modifierExtension".split())
_OF_REQUEST = frozenset(
    ("method", "url", "ifMatch", "ifNoneExist", "ifNoneMatch", "ifModifiedSince", "id", "extension")
)
"""The elements that FHIR defines here. Others are refused: a misspelt condition could lose a change, or make a record
twice.
"""


class Fetch(NamedTuple):
    """A read of the resource with this id, or a search by this query if `id` is None."""

    resource: Resource
    id: str | None
    query: str


class FetchResult(NamedTuple):
    """The answer to a read or a search. how: what its response has beside the status. patients: their ids."""

    body: bytes
    how: dict[str, str]
    patients: tuple[str, ...]


Request = Entry | Fetch | FhirError
"""An entry of a batch after parsing: a write, a fetch, or the error that refuses it."""


class Bundle(NamedTuple):
    """A parsed Bundle, with its requests in the order sent."""

    type: BundleType
    requests: list[Request]

    def results(self, done: Iterable[Any], missing: FhirError | None = None) -> list[Any]:
        """Return the result of each entry, in order.

        done: the results of the entries without an error of their own. If there are too few, the rest get `missing`.
        """
        given = chain(done, repeat(missing) if missing else ())
        return [one if isinstance(one, FhirError) else next(given) for one in self.requests]


def entries(body: Any) -> tuple[BundleType, list[dict[str, Any]]]:
    """Return the type and the entries of a Bundle. Raises FhirError if the whole Bundle is refused."""
    if not isinstance(body, dict) or body.get("resourceType") != "Bundle":
        raise FhirError(INVALID, "a Bundle is expected", "Bundle")
    if not isinstance(body.get("type"), str):
        raise FhirError(INVALID, "a required element is missing", "Bundle.type")
    _require_known(body, _OF_BUNDLE, "Bundle")
    found = body.get("entry", [])
    if isinstance(found, list) and len(found) > MOST_ENTRIES:
        raise too_many()
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise _no_objects()
    for index, entry in enumerate(found):
        checked_entry(entry, index)
    kind = body["type"]
    if kind not in ("batch", "transaction"):
        raise FhirError(BUSINESS_RULE, "only bundles of type batch or transaction are supported", "Bundle.type")
    return kind, found


def checked_entry(entry: Any, index: int) -> dict[str, Any]:
    """Return an entry that holds a request. Raises the FhirError that refuses the whole Bundle."""
    if not isinstance(entry, dict):
        raise _no_objects()
    at = f"Bundle.entry[{index}]"
    if not isinstance(entry.get("request"), dict):
        raise FhirError(INVALID, "a required element is missing", f"{at}.request")
    _require_known(entry, _OF_ENTRY, at)
    name = entry.get("fullUrl", "x")
    if not isinstance(name, str) or not name:
        raise FhirError(INVALID, "a string that is not empty is expected", f"{at}.fullUrl")
    return entry


def _require_known(element: dict[str, Any], names: frozenset[str], at: str) -> None:
    for name in element:
        if name not in names:
            raise FhirError(INVALID, "the element is not known here", f"{at}.{printable(name)}")


def _no_objects() -> FhirError:
    return FhirError(INVALID, "an array of objects is expected", "Bundle.entry")


def too_many() -> FhirError:
    """Return the 413 of a Bundle with too many entries."""
    return FhirError(TOO_LARGE, f"a Bundle may have at most {MOST_ENTRIES:,} entries: send several Bundles")


def refuse_too_many_values(raw: bytes) -> None:
    """Raise the 413 of a text with more values than a Bundle of `MOST_ENTRIES` may need."""
    if raw.count(b",") > MOST_COMMAS:
        what = f"{MOST_COMMAS:,} values (commas are counted): send several Bundles"
        raise FhirError(TOO_LARGE, f"a Bundle may have at most {what}")


def refuse_too_many_parts(raw: bytes) -> None:
    """Raise the 413 of a text with more objects and arrays than a Bundle of `MOST_ENTRIES` may need."""
    if raw.count(b"{") + raw.count(b"[") > MOST_PARTS:
        what = f"{MOST_PARTS:,} objects and arrays (brackets are counted): send several"
        raise FhirError(TOO_LARGE, f"a Bundle may have at most {what}")


def understand_plain(raw: bytes, caller: Caller, site: Site) -> Bundle | None:
    """Return a Bundle of plain creates; None if its entries have to be parsed one by one."""
    found = plain.bundle(raw, site)
    if found is None:
        return None
    if len(found.entry) > MOST_ENTRIES:
        raise too_many()
    size = len(raw) // max(len(found.entry), 1)
    return Bundle(found.type, [_requested(one, caller, site, size) for one in found.entry])


def _requested(one: plain.PlainEntry, caller: Caller, site: Site, size: int) -> Request:
    name = one.request.url
    try:
        caller.require(name, "c")
        condition = condition_in(one.request.ifNoneExist)
        return create.Create(RESOURCES[name], one.resource, caller.client, site, size, condition)
    except FhirError as error:
        return error.with_traceback(None)


def understand(entry: dict[str, Any], caller: Caller, site: Site, size: int) -> Request:
    """Return the request of one entry."""
    try:
        return _understand(entry, caller, site, size)
    except FhirError as error:
        return error.with_traceback(None)


def _understand(entry: dict[str, Any], caller: Caller, site: Site, size: int) -> Entry | Fetch:
    request, body = entry["request"], entry.get("resource")
    method = _required(request, "method")
    name, resource_id, query = _target(_required(request, "url"))
    if name not in RESOURCES:
        raise FhirError(NOT_FOUND, "the url of the request names no resource type of this service")
    if query and method != "GET":
        raise FhirError(NOT_FOUND, "the url of a request may have a query only if its method is GET")
    interaction, maker = _METHODS.get((method, bool(resource_id)), ("", None))
    if letter := letter_of(method, "r" if resource_id else "s"):
        caller.require(name, letter)
    if interaction not in RESOURCES[name].interactions:
        raise FhirError(NOT_SUPPORTED)
    for element in request:
        if element not in _OF_REQUEST:
            raise FhirError(INVALID, f"the element request.{printable(element)} is not known here")
    if maker is None:
        return Fetch(RESOURCES[name], resource_id, query)
    if "resource" not in entry:
        raise FhirError(INVALID, "a required element is missing", name)
    return maker(name, resource_id, request, body, caller, site, size)


def _target(url: str) -> tuple[str, str | None, str]:
    """Return type, id and query of an entry's url, relative to the base URL; an empty type for anything else."""
    path, _, query = url.partition("?")
    name, slash, resource_id = path.removeprefix("/").partition("/")
    # An address is ASCII. Half a character could be written neither into an outcome nor into the audit.
    if "/" in resource_id or (slash and not resource_id) or not path.isascii():
        return "", None, ""
    return name, unquote(resource_id) if slash else None, query


def _create(name: str, _: str, request: Any, body: Any, caller: Caller, site: Site, size: int) -> Entry:
    resource = RESOURCES[name]
    condition = condition_in(_text(request, "ifNoneExist"))
    model = parse(resource, body, site, additions=True)
    return create.Create(resource, model, caller.client, site, size, condition)


def _update(name: str, resource_id: str, request: Any, body: Any, caller: Caller, site: Site, size: int) -> Entry:
    resource = RESOURCES[name]
    model = update.PARSERS[name](resource, body, resource_id, site, True)
    preconditions = update.Preconditions(match=_text(request, "ifMatch"), none_match=_text(request, "ifNoneMatch"))
    return update.Update(resource, resource_id, model, caller.client, site, size, preconditions)


def _required(request: dict[str, Any], name: str) -> str:
    found = _text(request, name)
    if found is None:
        raise FhirError(INVALID, f"the request has no {name}")
    return found


def _text(request: dict[str, Any], name: str) -> str | None:
    """Return an element of an entry's request as sent, None where there is none.

    Raises:
        FhirError: it is no string.
    """
    found = request.get(name)
    if name in request and not isinstance(found, str):
        raise FhirError(INVALID, f"{name} must be a string")
    return found


_METHODS: dict[tuple[str, bool], tuple[str, Callable[..., Entry] | None]] = {
    ("GET", False): ("search", None),
    ("GET", True): ("read", None),
    ("POST", False): ("create", _create),
    ("PUT", True): ("update", _update),
}


def answer(bundle: Bundle, results: list[Any], dump: Callable[[Any], bytes], site: Site) -> bytes:
    """Return the Bundle of responses: an entry for each request, in order. results: one for each request."""
    shown = [_shown(request, result, dump, site) for request, result in zip(bundle.requests, results, strict=True)]
    head = b'{"resourceType":"Bundle","type":"%b-response"' % bundle.type.encode()
    return head + b',"entry":[' + b",".join(shown) + b"]}" if shown else head + b"}"


def status(result: Any) -> int:
    """Return the HTTP status of an entry that was carried out."""
    return 201 if isinstance(result, CreateResult) and not result.existed else 200


def _shown(request: Request, result: Any, dump: Callable[[Any], bytes], site: Site) -> bytes:
    if isinstance(result, CreateResult) and isinstance(request, create.Create):
        location = site.url(request.resource.name, result.id)
        return b'{"response":{"status":"%d","location":"%b"}}' % (status(result), location.encode())
    if isinstance(result, FhirError):
        response = {"status": str(result.outcome.status), "outcome": outcome_of(result)}
        return dump({"response": response})
    if isinstance(result, FetchResult):
        return b'{"resource":%b,"response":%b}' % (result.body, dump({"status": "200"} | result.how))
    return b'{"response":{"status":"200"}}'
