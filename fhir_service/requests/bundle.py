"""Join the Bundle of a search or a history from stored bodies, without parsing them."""

from typing import Any
from urllib.parse import quote, urlencode

import orjson

from fhir_service.interactions.paging import Page
from fhir_service.interactions.search import SNAPSHOT
from fhir_service.interactions.update import etag
from fhir_service.interface.times import instant_text
from fhir_service.store.bodies import StoredVersion


def searchset(page: Page) -> bytes:
    """Return the searchset Bundle of a page, with markers."""
    return _bundle("searchset", page, [b'{"resource":%b}' % one.body for one in page.found])


def history_bundle(resource_type: str, page: Page) -> bytes:
    """Return the history Bundle of a page, with markers. Each entry names the request that made the version."""
    return _bundle("history", page, [_version(resource_type, version) for version in page.found])


def _version(resource_type: str, version: StoredVersion) -> bytes:
    return b'{"resource":%b,%b' % (version.body, orjson.dumps(origin(resource_type, version))[1:])


def origin(resource_type: str, version: StoredVersion) -> dict[str, Any]:
    """Return the request that made a version, and the response to it."""
    first = version.version == 1
    url = resource_type if first else f"{resource_type}/{version.id}"
    return {
        "request": {"method": "POST" if first else "PUT", "url": url},
        "response": {"status": "201" if first else "200"} | version_and_time(version),
    }


def version_and_time(found: StoredVersion) -> dict[str, str]:
    """Return the version and the time of a resource, for the response in an entry."""
    return {"etag": etag(found.version), "lastModified": instant_text(found.updated_at)}


def _bundle(kind: str, page: Page, entries: list[bytes]) -> bytes:
    head: dict[str, Any] = {"resourceType": "Bundle", "type": kind, "total": page.total}
    if links := paging_links(page):
        head["link"] = links
    text = orjson.dumps(head)
    return text[:-1] + b',"entry":[' + b",".join(entries) + b"]}" if entries else text


def paging_links(page: Page) -> list[dict[str, str]]:
    """`self`, `first` and `last` always, `next` while there is more; relative to the base URL. None when count is 0."""
    if not page.count:
        return []
    offsets = {"self": page.offset, "first": 0}
    if page.end < page.total:
        offsets["next"] = page.end
    offsets["last"] = (page.total - 1) // page.count * page.count if page.total else 0
    return [{"relation": relation, "url": _url(page, start)} for relation, start in offsets.items()]


def _url(page: Page, offset: int) -> str:
    further = [(SNAPSHOT, page.snapshot.text())] if page.snapshot else []
    pairs = [*page.sent, ("_count", str(page.count)), ("_offset", str(offset)), *further]
    return f"{page.path}?{urlencode(pairs, quote_via=quote, safe='')}"
