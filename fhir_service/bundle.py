"""Bundles: a search's answer is joined from stored bodies, not parsed and written again."""

from typing import Any
from urllib.parse import quote, urlencode

import orjson

from fhir_service.interactions.search import Page, Query


def searchset(page: Page) -> bytes:
    """The searchset Bundle of a page, with markers."""
    query = page.query
    head: dict[str, Any] = {"resourceType": "Bundle", "type": "searchset", "total": page.total}
    if query.count:
        head["link"] = links(query, page.total)
    text = orjson.dumps(head)
    if not page.bodies:
        return text
    entries = b",".join(b'{"resource":' + body.encode() + b"}" for body in page.bodies)
    return text[:-1] + b',"entry":[' + entries + b"]}"


def links(query: Query, total: int) -> list[dict[str, str]]:
    """`self`, `first` and `last` always, `next` while there is more; relative to the base URL."""
    last = (total - 1) // query.count * query.count if total else 0
    offsets = {"self": query.offset, "first": 0}
    if query.offset + query.count < total:
        offsets["next"] = query.offset + query.count
    offsets["last"] = last
    return [{"relation": relation, "url": _url(query, offset)} for relation, offset in offsets.items()]


def _url(query: Query, offset: int) -> str:
    pairs = [*query.sent, ("_count", str(query.count)), ("_offset", str(offset))]
    return f"/{query.resource.name}?{urlencode(pairs, quote_via=quote, safe='')}"
