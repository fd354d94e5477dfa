"""Sweeps of a target that answers badly, over real HTTP: each case is a list of pages and the result.

Whatever it answers, the reports kept before stay as they were, the message names the page, and the next sweep is whole.
"""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from pipelines.client.capabilities import Capabilities
from pipelines.client.client import ELSEWHERE, FhirClient
from pipelines.client.pace import RetryPauses
from pipelines.client.profiles import PLAIN, as_declared
from pipelines.client.replies import TargetUnusable
from pipelines.client.tokens import Credentials
from pipelines.reports.sweep import Sweep, kept_sweep, sweep
from pipelines.session.needed_reads import reading
from tests.support.serving import Answers, served

TARGET = "urn:uuid:5f0c7c5e-0000-4000-8000-000000000002"
PATIENT_DATA = "Ada Marker"
SECONDS = 0.3

Page = dict[str, Any] | str | int


def report(name: str, **fields: Any) -> dict[str, Any]:
    text = {"status": "generated", "div": f"<div>{PATIENT_DATA}</div>"}
    return {"resourceType": "DiagnosticReport", "id": name, "status": "final", "text": text, **fields}


def page(*names: str, total: object = 4, next: object = None, **more: Any) -> dict[str, Any]:
    """A page of these reports; `next`: the number of the page that its link leads to, or an address."""
    url = f"/DiagnosticReport?page={next}" if isinstance(next, int) else next
    links = [] if next is None else [{"relation": "next", "url": url}]
    entry = [{"resource": report(name)} for name in names]
    return {"resourceType": "Bundle", "type": "searchset", "total": total, "link": links, "entry": entry} | more


def entries(*resources: object) -> dict[str, Any]:
    return page(next=None, total=len(resources), entry=[{"resource": each} for each in resources])


def nested(depth: int) -> dict[str, Any]:
    return {"extension": [nested(depth - 1)] if depth else [{"valueString": PATIENT_DATA}]}


WHOLE = [page("a", "b", next=1), page("c", "d")]
READS: dict[str, list[Page]] = {
    "a page comes twice": [page("a", "b", next=1), page("a", "b", next=2), page("c", "d")],
    "pages come out of order": [page("c", "d", next=1), page("b", "a")],
    "pages overlap": [page("a", "b", next=1), page("b", "c", next=2), page("c", "d")],
    "an empty page lies between": [page("a", "b", next=1), page(next=2), page("c", "d")],
    "reports are added meanwhile": [page("a", "b", total=3, next=1), page("c", "d", total=4)],
    "only the first page has a total": [WHOLE[0], {name: WHOLE[1][name] for name in ("resourceType", "entry")}],
    "the target counts nothing": [page("a", "b", total=None, next=1), page("c", "d", total=None)],
    "an outcome lies among the reports": [
        page("a", "b", next=1),
        page("c", "d", entry=[*WHOLE[1]["entry"], {"resource": {"resourceType": "OperationOutcome", "issue": []}}]),
    ],
    "links are absolute": [page("a", "b", next="{url}/DiagnosticReport?page=1"), WHOLE[1]],
    "links are odd": [page("a", "b", "c", "d", link=["next", None, {}, {"url": 7}])],
    "there are no links": [page("a", "b", "c", "d", link=None)],
    "a 503 passes": [WHOLE[0], 503, WHOLE[1]],
    "a cut connection passes": [WHOLE[0], "cut", WHOLE[1]],
}
"""What is read whole, with `a` to `d` as its reports. A fault stands before the page whose first request meets it."""

FAILS: dict[str, tuple[list[Page], str]] = {
    "the total is too high": (
        [page("a", "b", total=5, next=1), page("c", "d", total=5)],
        "the target counts 5 reports and its 2 pages held 4",
    ),
    "the total is too low": (
        [page("a", "b", total=3, next=1), page("c", "d", total=3)],
        "the target counts 3 reports and its 2 pages held 4",
    ),
    "it ends half-way": ([page("a", "b")], "the target counts 4 reports and its 1 page held 2"),
    "a report goes away meanwhile and hides another": (
        [page("a", "b", next=1), page("d", total=3)],
        "reports went away while they were read",
    ),
    "the connection is cut": ([WHOLE[0], "always cut"], "page 2: the connection was closed, or the answer is no HTTP"),
    "it stops answering": ([WHOLE[0], "always silent"], "page 2: no answer in time"),
    "it breaks": ([WHOLE[0], "always 500"], "page 2: HTTP 500"),
    "it forbids": ([WHOLE[0], "always 403"], "page 2: it does not permit this to the client (HTTP 403)"),
    "the links lead in a circle": (
        [page("a", next=1), page("b", next=2), page("a", next=1)],
        "page 3: the next links lead in a circle",
    ),
    "the links have no end": (
        [page("a", next=1), *(page("a", next=n) for n in range(2, 90))],
        "page 51: 50 pages in a row brought nothing new, and still there is a next one",
    ),
    "a link leads elsewhere": (
        [page("a", next="http://127.0.0.1:1/DiagnosticReport")],
        f"page 2: {ELSEWHERE}",
    ),
    "a link leads to a look-alike": (
        [page("a", next="{url}@127.0.0.1:1/DiagnosticReport")],
        f"page 2: {ELSEWHERE}",
    ),
    "a link has no address": (
        [page("a", link=[{"relation": "next", "url": 7}])],
        "page 1: the next link has no address",
    ),
    "a page is no Bundle": (
        [WHOLE[0], {"resourceType": "OperationOutcome", "issue": [{"diagnostics": PATIENT_DATA}]}],
        "page 2: the answer to a search is not a Bundle",
    ),
    "a page is no JSON": ([WHOLE[0], "html"], "page 2: HTTP 200 without a JSON object"),
    "a page is a list": ([WHOLE[0], "list"], "page 2: HTTP 200 without a JSON object"),
    "the total is a text": ([page("a", total="4")], "page 1: the total of a search is not a number"),
    "the total is missing from what is no search's": (
        [page("a", total=None, type="collection")],
        "page 1: it has no `total`, so it is not the result of a search",
    ),
    "entries are no list": ([page(entry={"resource": report("a")})], "page 1: an entry of a page has no resource"),
    "an entry is empty": ([page(entry=[{"resource": report("a")}, {}])], "page 1: an entry of a page has no resource"),
    "a report has no id": (
        [entries(report("a"), {"resourceType": "DiagnosticReport", "conclusion": PATIENT_DATA})],
        "page 1: a resource of a page has no id",
    ),
    "a report is nested without end": (
        [entries(report("a"), report("b", **nested(300)))],
        "page 1: report b cannot be kept (Recursion limit reached)",
    ),
    "a report's id is none": ([entries(report(PATIENT_DATA))], "page 1: a resource of it has no FHIR id"),
}


class Handler(Answers):
    pages: list[Page]
    url = ""
    sweeps = 0

    def do_GET(self) -> None:
        number = int(self.path.partition("page=")[2] or 0)
        type(self).sweeps += number == 0
        found = self.pages[number]
        if isinstance(found, int) or found == "cut":  # a fault that passes
            del self.pages[number]
        match found:
            case "cut" | "always cut":
                self.connection.close()
            case "always silent":
                time.sleep(SECONDS * 2)
                self.close_connection = True
            case "always 500" | "always 403":
                self.answer(int(found[-3:]), b"{}")
            case "html":
                self.answer(200, f"<html>{PATIENT_DATA}</html>".encode())
            case "list":
                self.answer(200, b"[]")
            case int():
                self.answer(found, b"")
            case _:
                self.answer(200, json.dumps(found).replace("{url}", self.url).encode())


@pytest.fixture
def server() -> Iterator[type[Handler]]:
    """A server whose `pages` a test sets."""
    scripted: type[Handler] = type("Scripted", (Handler,), {"pages": [], "sweeps": 0})
    with served(scripted) as scripted.url:
        yield scripted


def sweep_of(server: type[Handler], pages: Sequence[Page], home: Path) -> Sweep:
    server.pages = list(pages)
    patience = RetryPauses(attempts=2, sleep=lambda _: None)
    timeout = SECONDS if "always silent" in pages else 60.0
    client = FhirClient(server.url, Credentials(token="t"), timeout=timeout, patience=patience)
    try:
        with reading("DiagnosticReport"):
            return sweep(client, home, TARGET)
    finally:
        client.close()


def ids(done: Sweep) -> list[str]:
    with duckdb.connect() as db:
        return [name for (name,) in db.read_parquet(str(done.path)).order("report_id").project("report_id").fetchall()]


@pytest.mark.parametrize("case", READS)
def test_a_sweep_is_complete_although_pages_are_odd(case: str, server: type[Handler], tmp_path: Path) -> None:
    """REPORT-06"""
    done = sweep_of(server, READS[case], tmp_path)
    assert (done.total, ids(done)) == (4, ["a", "b", "c", "d"])


@pytest.mark.parametrize("case", FAILS)
def test_a_sweep_of_wrong_pages_fails_with_the_reason(case: str, server: type[Handler], tmp_path: Path) -> None:
    """REPORT-06, REPORT-25: the kept reports stay, and the next sweep is complete."""
    before = sweep_of(server, [page("a", "x", total=2)], tmp_path)
    pages, why = FAILS[case]
    with pytest.raises(TargetUnusable) as failure:
        sweep_of(server, pages, tmp_path)
    assert str(failure.value) == f"DiagnosticReport could not be read from the target ({why})"
    assert failure.value.__suppress_context__
    assert (kept_sweep(tmp_path, TARGET), ids(before)) == (before, ["a", "x"])
    after = sweep_of(server, WHOLE, tmp_path)
    assert (after.total, after.new, after.changed, after.gone) == (4, 3, 0, 1)


def test_a_sweep_whose_pages_disagree_with_the_total_is_repeated_twice(server: type[Handler], tmp_path: Path) -> None:
    """REPORT-06: resources may have moved between pages; a malformed page is not requested again."""
    for total, times in ((2, 3), ("2", 1)):
        server.sweeps = 0
        with pytest.raises(TargetUnusable):
            sweep_of(server, [page("a", total=total)], tmp_path)
        assert server.sweeps == times


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_target_that_refuses_to_count_is_asked_for_it_once(is_refused: bool) -> None:
    """REPORT-06, TARGET-04"""
    totals = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        totals.append(wanted := request.url.params.get("_total", ""))
        if wanted and is_refused:
            return httpx.Response(400, json={"resourceType": "OperationOutcome"})
        return httpx.Response(200, json=page("a", total=1 if wanted else None))

    profile = as_declared(PLAIN, Capabilities(transaction=True))
    transport = httpx.MockTransport(answer)
    client = FhirClient("http://127.0.0.1:1", Credentials(token="t"), transport=transport, profile=profile)
    shown = [each.get("total") for _ in range(2) for each in client.pages("DiagnosticReport")]
    assert totals == (["accurate", "", ""] if is_refused else ["accurate", "accurate"])
    assert shown == ([None, None] if is_refused else [1, 1])
    client.close()
