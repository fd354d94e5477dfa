"""Check the pages of a search, and return each resource once, as a row of the sweep's file."""

import hashlib
import re
from typing import Any

import orjson
import pyarrow as pa

from fhir_service.interface.datatypes import ID_PATTERN
from pipelines.client.replies import UnknownOutcome, resources_of, total_of
from pipelines.client.shapes import objects_in
from pipelines.client.whole import PageTotals
from pipelines.home.counted import counted

RESOURCE = "DiagnosticReport"
FHIR_ID = re.compile(ID_PATTERN)
SWEPT = pa.schema([("report_id", pa.string()), ("content_hash", pa.string()), ("body", pa.string())])
Row = tuple[str, str, str]
"""The columns of `SWEPT`. `report_id` is the id of the resource, whatever its type."""


class SweepIncomplete(Exception):
    """A page could not be read, or the pages are incomplete. The message is one sentence, without data."""


class PageReader:
    """A reader of the pages of a target that may repeat resources, change meanwhile, or send something else.

    A repeated resource counts once, with its first content; the next sweep finds the later content. A total that
    shrinks means that the pages have shifted and may have hidden a resource. FHIR lets a target leave out the total:
    the pages are then complete when their links end.
    """

    def __init__(self, resource_type: str) -> None:
        self.resource_type = resource_type
        self.noun = "reports" if resource_type == RESOURCE else f"{resource_type}s"
        self.pages = 0
        self._seen, self._counts = set[str](), PageTotals()

    @property
    def total(self) -> int:
        """Return the total that the last page named; the number of resources read if no page named a total."""
        return len(self._seen) if self._counts.last is None else self._counts.last

    @property
    def disagreement(self) -> str:
        """Return why the pages are incomplete; empty if they are complete."""
        if self._counts.shrank:
            return f"{self.noun} went away while they were read"
        if self.total != len(self._seen):
            held = f"{counted(self.pages, 'page')} held {len(self._seen)}"
            return f"the target counts {self.total} {self.noun} and its {held}"
        return ""

    def moved(self) -> None:
        """Note that the pages shifted while they were read, so that a resource may be on none of them."""
        self._counts.shrank = True

    def new_rows(self, page: dict[str, Any]) -> list[Row]:
        """Return the resources of a page that no earlier page held."""
        self.pages += 1
        try:
            total, found = total_of(page), resources_of(page, self.resource_type)
        except UnknownOutcome as error:
            raise self._odd(str(error)) from None
        if total is None and page.get("type") != "searchset" and self._counts.last is None:
            raise self._odd("it has no `total`, so it is not the result of a search")
        if not all(FHIR_ID.fullmatch(resource["id"]) for resource in found):
            raise self._odd("a resource of it has no FHIR id")
        self._counts.take(total)
        return [self._row(resource) for resource in found if self._is_new(resource["id"])]

    def _row(self, resource: dict[str, Any]) -> Row:
        try:
            body = orjson.dumps(without_signatures(resource), option=orjson.OPT_SORT_KEYS)
        except (
            orjson.JSONEncodeError
        ) as error:  # nested too deeply, or a number too large; the message holds no text of the resource
            noun = self.noun.removesuffix("s")
            raise self._odd(f"{noun} {resource['id']} cannot be kept ({error})") from None
        return resource["id"], hashlib.sha256(body).hexdigest(), body.decode()

    def _is_new(self, report_id: str) -> bool:
        before = len(self._seen)
        self._seen.add(report_id)
        return len(self._seen) > before

    def _odd(self, why: str) -> SweepIncomplete:
        return SweepIncomplete(f"page {self.pages}: {why}")


def without_signatures(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report without presigned URLs, and with document addresses relative to the server.

    Neither is content: the signature changes with every read, and the address changes when the server moves.
    """
    forms = report.get("presentedForm")
    if forms is None:
        return report
    return {**report, "presentedForm": list(map(_document, objects_in(forms)))}


def _document(form: dict[str, Any]) -> dict[str, Any]:
    """Return the document without its signed address, and without elements whose shape is not FHIR's."""
    left = [e for e in objects_in(form.get("extension")) if not str(e.get("url", "")).endswith("/deprecated-url")]
    plain = {name: value for name, value in form.items() if name not in ("extension", "url")}
    if left:
        plain["extension"] = left
    if isinstance(form.get("url"), str):
        address = form["url"].partition("?")[0]
        plain["url"] = address[max(address.find(f"{RESOURCE}/"), 0) :]
    return plain
