"""Observations: how loaded ones are shown, 500 ids in one search, the bare interface, and stores of older versions."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from fhir_service.admin.checks import check_store
from fhir_service.reference.loading import load
from fhir_service.store import migrations
from fhir_service.store.dialects import dialect_of
from fhir_service.store.tables import ASSERTION, BODIES, CLIENT_KEYS, SIDES, STORE
from tests.conftest import BOTH, Database, Running, running
from tests.support.taking_turns import take_turns

STORES = BOTH
PATIENT = {"reference": "Patient/p1", "type": "Patient"}
RICH: dict[str, Any] = {
    "resourceType": "Observation",
    "id": "rich",
    "meta": {"source": "http://elsewhere.example/1"},
    "text": {"status": "additional", "div": "<div><p onclick='x()'>Potassium</p><script>x()</script></div>"},
    "status": "final",
    "code": {"coding": [{"system": "http://example.com", "code": "K"}, {"system": "http://loinc.org", "code": "K-1"}]},
    "subject": {"reference": "Patient/p1"},
    "performer": [{"reference": "Organization/lab"}],
    "referenceRange": [{"low": {"value": 3.50, "unit": "mmol/L"}}],
    "component": [{"code": {"text": "part"}, "valueInteger": 3}],
}


def loaded(running: Running, tmp_path: Path, *records: dict[str, Any]) -> None:
    path = tmp_path / "more.ndjson"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    service = running.service
    report = load([path], service.writer, service.store, service.clock, service.new_id, service.site)
    assert report["refused"] == []


def test_a_loaded_observation_is_shown_whole_but_for_scripts_and_its_origin(
    fresh_service: Running, tmp_path: Path
) -> None:
    """EXTRA-OBS-01"""
    rich = {**RICH, "subject": {"reference": f"{fresh_service.url}/Patient/p1"}}
    loaded(fresh_service, tmp_path, rich)
    div = '<div xmlns="http://www.w3.org/1999/xhtml"><p>Potassium</p></div>'
    expected = {**RICH, "text": {"status": "generated", "div": div}, "subject": PATIENT}
    del expected["meta"]
    assert fresh_service.client.get("/Observation/rich").json() == expected
    loaded(fresh_service, tmp_path, {**rich, "status": "amended"})
    found = fresh_service.client.get("/Observation?code=K-1&patient=p1").json()
    assert [each["resource"] for each in found["entry"]] == [{**expected, "status": "amended"}]


def test_500_are_searched_by_id_at_once(service: Running) -> None:
    """EXTRA-OBS-01"""
    ids = ["o1", *(f"none-{n}" for n in range(499))]
    found = service.client.post("/Observation/_search", data={"_id": ",".join(ids)})
    assert (found.status_code, found.json()["total"]) == (200, 1)
    assert service.client.post("/Observation/_search", data={"_id": ",".join([*ids, "o2"])}).status_code == 400


def test_the_bare_interface_has_no_observations(tmp_path: Path) -> None:
    """EXTRA-02, EXTRA-OBS-01"""
    with running(tmp_path, interface_only=True) as service:
        for path in ("/Observation", "/Observation/o1", "/Observation?patient=p1"):
            assert service.client.get(path).status_code == 404
        named = (
            httpx.get(f"{service.url}/metadata").text + httpx.get(f"{service.url}/.well-known/smart-configuration").text
        )
        assert "Observation" not in named


@pytest.mark.alike
@pytest.mark.parametrize("page", [1, 2_000])
def test_a_store_of_the_version_before_shows_what_was_loaded(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """EXTRA-OBS-01"""
    monkeypatch.setattr(migrations, "PAGE", page)
    with database(tmp_path) as url:
        with running(tmp_path, store=url) as service:
            loaded(service, tmp_path, {name: value for name, value in RICH.items() if name != "text"})
            before = service.client.get("/Observation?patient=p1").json()
        if url.startswith("postgresql"):
            take_turns(url)
        dialect = dialect_of(url, "1GB")
        engine = dialect.open(create=False)
        with engine.begin() as connection:
            for table in (BODIES["Observation"], SIDES["Observation", "code"], CLIENT_KEYS, ASSERTION):
                table.drop(connection)
            connection.execute(update(STORE).where(STORE.c.name == "schema_version").values(value="1"))
        engine.dispose()
        with running(tmp_path, world=None, store=url) as service:
            after = service.client.get("/Observation?patient=p1").json()
            assert check_store(service.service.store, service.service.site) == []
    assert before["total"] == 3
    assert sorted(after["entry"], key=_id) == sorted(before["entry"], key=_id)


def _id(entry: dict[str, Any]) -> str:
    return str(entry["resource"]["id"])
