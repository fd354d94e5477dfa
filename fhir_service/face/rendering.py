"""Resources and bundles as the R4 face shows them: with `meta`, absolute links, and in the form that is asked for.

A resource is what the interface shows, but for three things: `meta` tells its version and the time of its last change,
a Questionnaire has the `url` by which responses name it, and `_summary` and `_elements` show a part of it.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from fhir_service.face.elements import part
from fhir_service.face.form_parameters import AnswerForm
from fhir_service.interactions.paging import Page
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.site import STORED, Site
from fhir_service.interface.times import instant_text
from fhir_service.requests.bundle import origin, paging_links
from fhir_service.store.bodies import StoredVersion
from fhir_service.web.http import FACE

Shown = dict[str, Any]


@cache
def at_face(site: Site) -> Site:
    """Return the site of the face, whose addresses are below the base URL."""
    return replace(site, base_url=site.base_url + FACE)


def resource_of(found: StoredVersion, asked: AnswerForm) -> Shown:
    """Return a stored resource, with markers."""
    body: Shown = parse_json(found.body)
    about = {"versionId": str(found.version), "lastUpdated": instant_text(found.updated_at)}
    return in_form(body | {"meta": body.get("meta", {}) | about}, asked)


def in_form(body: Shown, asked: AnswerForm) -> Shown:
    """Return a resource in the form that is asked for."""
    shown = {name: body[name] for name in ("resourceType", "id", "meta") if name in body} | body
    if shown["resourceType"] == "Questionnaire":
        shown.setdefault("url", STORED.url("Questionnaire", shown["id"]))
    return part(shown, asked) if asked.is_part else shown


def entry(shown: Shown, site: Site) -> Shown:
    """Return the beginning of an entry in a Bundle: the resource and its address."""
    return {"fullUrl": at_face(site).url(shown["resourceType"], shown["id"]), "resource": shown}


def searchset(page: Page, included: Iterable[Shown], asked: AnswerForm, site: Site) -> Shown:
    """Return the searchset Bundle of a page."""
    entries = [(resource_of(found, asked), "match") for found in page.found]
    entries += [(shown, "include") for shown in included]
    total = page.total if asked.total else None
    return _bundle(
        "searchset",
        total,
        _links(page, asked, site),
        [entry(shown, site) | {"search": {"mode": mode}} for shown, mode in entries],
    )


def history_bundle(resource_type: str, page: Page, asked: AnswerForm, site: Site) -> Shown:
    """Return the history Bundle of a page. Each entry names the request that made the version."""
    entries = [entry(resource_of(found, asked), site) | origin(resource_type, found) for found in page.found]
    return _bundle("history", page.total, _links(page, asked, site), entries)


def _links(page: Page, asked: AnswerForm, site: Site) -> list[dict[str, str]]:
    return paging_links(replace(page, path=at_face(site).base_url + page.path, sent=[*page.sent, *asked.sent]))


def _bundle(kind: str, total: int | None, links: list[dict[str, str]], entries: list[Shown]) -> Shown:
    parts = {"total": total, "link": links or None, "entry": entries or None}
    return {"resourceType": "Bundle", "type": kind} | {
        name: value for name, value in parts.items() if value is not None
    }
