"""The chart: what holds for each of its pages."""

import asyncio
import json
import re
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from fhir_service.app import create_app
from fhir_service.reference.loading import load
from fhir_service.service import Service
from fhir_service.settings import Settings
from tests.conftest import BOTH, WORLD
from tests.service.chart.world import FULL, MARKUP, Tree, World, text_of
from tests.support import loopback

STORES = BOTH


def test_all_text_is_text_and_never_markup(fresh: World) -> None:
    """CHART-14: scripts, templates, entities and quotes stand as they were written."""
    task_id = fresh.task(
        "p5",
        description=MARKUP,
        input=[{"type": {"text": "label"}, "valueString": MARKUP}],
        note=[{"text": MARKUP, "authorReference": {"reference": "Practitioner/dr1"}}],
    )
    response_id = fresh.answer("p5", [{"linkId": "remarks", "answer": [{"valueString": MARKUP}]}])
    for path, times in (
        ("/chart/tasks", 3),
        (f"/chart/tasks/{task_id}", 3),
        (f"/chart/responses/{response_id}", 1),
        ("/chart/patients/p5", 4),
    ):
        page = fresh.browser.get(path)
        tree = Tree(page.text).root
        assert tree.find(".//script") is None
        assert text_of(tree).count(MARKUP) == times
        assert "Reader <1>" in text_of(tree)


def pages_of(world: World) -> list[httpx.Response]:
    """One of each page."""
    world.pay(1, claim="c1")
    task_id, response_id = world.task("p1", **FULL), world.answer("p1", encounter={"reference": "Encounter/e1"})
    signed = ["", "/tasks", f"/tasks/{task_id}", f"/responses/{response_id}", "/patients/p1", "/patients", "/nothing"]
    stranger = loopback.get(f"{world.running.url}/chart")
    return [stranger, *(world.browser.get(f"/chart{path}") for path in signed)]


def test_pages_need_nothing_from_elsewhere_and_forbid_it(world: World) -> None:
    """CHART-14."""
    for page in pages_of(world):
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self';")
        assert "frame-ancestors 'none'" in policy
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["x-content-type-options"] == "nosniff"
        addresses = re.findall(r'(?:href|src|action)="([^"]*)"', page.text)
        assert all(re.match(r"/chart(?:[/?]|\Z)|#|\?|data:,", address) for address in addresses)
        assert not re.search(r"<script|<style|\sstyle=|\son\w+=", page.text)
        (style,) = re.findall(r'rel="stylesheet" href="([^"]*)"', page.text)
        sheet = loopback.get(world.running.url + style)
        assert (sheet.status_code, sheet.headers["content-type"]) == (200, "text/css; charset=utf-8")
        assert not re.search(r"url\(|@import", sheet.text)


def test_pages_can_be_read_without_eyes_and_used_without_a_mouse(world: World) -> None:
    """One first heading, no level passed over, tables with headed columns and rows, fields with labels, unique ids."""
    for page in pages_of(world):
        root = Tree(page.text).root
        html = root.find("html")
        assert html is not None
        assert html.get("lang") == "en"
        levels = [int(part.tag[1]) for part in root.iter() if re.fullmatch(r"h[1-6]", part.tag)]
        assert levels.count(1) == 1
        assert levels[0] == 1
        assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
        for table in root.iter("table"):
            assert table.find("caption") is not None
            assert {part.get("scope") for part in table.iter("th")} == {"col", "row"}
        labelled = {label.get("for") for label in root.iter("label")}
        assert all(field.get("id") in labelled for field in root.iter("input") if field.get("type") != "hidden")
        ids = [part.get("id") for part in root.iter() if part.get("id")]
        assert len(ids) == len(set(ids))
        assert {part.get("aria-labelledby") for part in root.iter()} - {None} <= set(ids)
        assert root.find(".//a[@class='skip']") is not None


def test_an_unknown_address_is_a_small_page(world: World) -> None:
    for path in ("/nothing", "/tasks/none", "/responses/none", "/patients/none", "/patients/p1/x", "/"):
        page = world.browser.get(f"/chart{path}")
        assert page.status_code == 404
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "There is no such page" in page.text
        assert len(page.text) < 2000
    assert loopback.get(f"{world.running.url}/chartx").status_code == 401


def test_a_fault_is_a_page_that_shows_nothing_of_it(
    fresh: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("Ada Quill-One owes 5")

    monkeypatch.setattr("fhir_service.chart.tasks.open_ones", broken)
    page = fresh.browser.get("/chart/tasks")
    assert page.status_code == 500
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "Something went wrong" in page.text
    assert "Quill" not in page.text
    assert "ValueError" in caplog.text
    assert "Quill" not in caplog.text


def test_a_chart_behind_a_base_url_with_a_path_links_below_it(tmp_path: Path) -> None:
    """CHART-05: links and cookie lie below the base URL's path; under https the cookie is Secure."""
    service = Service.open(Settings(str(tmp_path / "store.duckdb"), base_url="https://clinic.example/fhir/"))
    load([WORLD], service.writer, service.store, service.clock, service.new_id, service.site)
    client = service.auth.add_client("Reader")
    credentials = {"client_id": client["client_id"], "client_secret": client["client_secret"], "to": "/patients/p1"}

    async def visit() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="https://clinic.example") as browser:
            form = await browser.get("/chart")
            sent = await browser.post("/chart", data=credentials, headers={"origin": "https://clinic.example"})
            cookie = {"cookie": sent.headers["set-cookie"].partition(";")[0]}
            return [form, sent, await browser.get("/chart/patients/p1", headers=cookie)]

    form, sent, page = asyncio.run(visit())
    service.close()
    assert 'action="/fhir/chart"' in form.text
    assert sent.headers["location"] == "/fhir/chart/patients/p1"
    assert "Path=/fhir/chart;" in sent.headers["set-cookie"]
    assert sent.headers["set-cookie"].endswith("Secure")
    assert page.status_code == 200
    found = re.findall(r'(?:href|action)="(/[^"]*)"', page.text)
    assert found
    assert all(address.startswith("/fhir/chart") for address in found)


def test_looks_at_a_chart_are_audited(fresh: World) -> None:
    """EXTRA-OPS-04: sign-ins and pages leave records of the client, with the patients shown."""
    fresh.browser.get("/chart/patients/p1")
    fresh.browser.get("/chart/patients/p2")
    fresh.browser.get("/chart/tasks")
    lines = fresh.running.service.audit.path.read_text().splitlines()
    found = [record for line in lines if (record := json.loads(line)).get("client") == fresh.client_id]
    shown = [(record["interaction"], record["type"], record.get("patients")) for record in found]
    sections = ("Task", "QuestionnaireResponse", "PaymentNotice")
    assert shown == [
        ("sign-in", "Chart", None),
        *(("read" if kind == "Patient" else "search", kind, ["p1"]) for kind in ("Patient", *sections)),
        *(("read" if kind == "Patient" else "search", kind, ["p2"]) for kind in ("Patient", *sections)),
        ("search", "Task", None),
    ]
