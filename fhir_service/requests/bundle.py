"""Bundles: a search's or history's answer is joined from stored bodies, not parsed and written again."""

from typing import Any
from urllib.parse import quote, urlencode

import orjson

from fhir_service.interactions import history
from fhir_service.interactions.search import SNAPSHOT, Page
from fhir_service.interactions.update import etag
from fhir_service.interface.times import instant_text
from fhir_service.store.bodies import Found
from fhir_service.store.snapshots import Snapshot

Pairs = list[tuple[str, str]]


def searchset(page: Page) -> bytes:
    """The searchset Bundle of a page, with markers."""
    query = page.query
    links = paging_links(
        f"/{query.resource.name}", query.sent, query.count, query.offset, page.end, page.total, page.snapshot
    )
    return _bundle("searchset", page.total, links, [b'{"resource":%b}' % one.body for one in page.found])


def history_bundle(resource_type: str, page: history.Page) -> bytes:
    """The history Bundle of a page, with markers: each entry says how the version came about."""
    links = paging_links(page.path, page.sent, page.count, page.offset, page.end, page.total)
    return _bundle("history", page.total, links, [_version(resource_type, version) for version in page.versions])


def _version(resource_type: str, version: history.Version) -> bytes:
    return b'{"resource":%b,%b' % (version.body.encode(), orjson.dumps(origin(resource_type, version))[1:])


def origin(resource_type: str, version: history.Version) -> dict[str, Any]:
    """Return the request by which a version came about, and the response to it."""
    first = version.version == 1
    url = resource_type if first else f"{resource_type}/{version.id}"
    return {
        "request": {"method": "POST" if first else "PUT", "url": url},
        "response": {"status": "201" if first else "200"} | how(version),
    }


def how(found: Found | history.Version) -> dict[str, str]:
    """Return the version and time of a resource, as the response of an entry says them."""
    return {"etag": etag(found.version), "lastModified": instant_text(found.updated_at)}


def _bundle(kind: str, total: int, links: list[dict[str, str]], entries: list[bytes]) -> bytes:
    head: dict[str, Any] = {"resourceType": "Bundle", "type": kind, "total": total}
    if links:
        head["link"] = links
    text = orjson.dumps(head)
    return text[:-1] + b',"entry":[' + b",".join(entries) + b"]}" if entries else text


def paging_links(
    path: str, sent: Pairs, count: int, offset: int, end: int, total: int, snapshot: Snapshot | None = None
) -> list[dict[str, str]]:
    """`self`, `first` and `last` always, `next` while there is more; relative to the base URL. None when count is 0.

    end: the offset of the page behind this one.
    """
    if not count:
        return []
    offsets = {"self": offset, "first": 0}
    if end < total:
        offsets["next"] = end
    offsets["last"] = (total - 1) // count * count if total else 0
    further = [(SNAPSHOT, snapshot.text())] if snapshot else []
    return [
        {"relation": relation, "url": _url(path, sent, count, start, further)} for relation, start in offsets.items()
    ]


def _url(path: str, sent: Pairs, count: int, offset: int, further: Pairs) -> str:
    pairs = [*sent, ("_count", str(count)), ("_offset", str(offset)), *further]
    return f"{path}?{urlencode(pairs, quote_via=quote, safe='')}"
