"""Reference data that is loaded again with other content: what is stored already follows it."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from fhir_service.admin import checks
from fhir_service.reference.loading import load
from tests.conftest import BOTH, WORLD, Running
from tests.support.bodies import task

STORES = BOTH
NOTE_ID = "http://schemas.example.com/fhir/extensions/note-id"
GROUP = "http://schemas.example.com/fhir/extensions/task-group"


def record(kind: str, record_id: str) -> dict[str, Any]:
    """A record of the small world."""
    lines = (WORLD / f"{kind}.ndjson").read_text(encoding="utf-8").splitlines()
    found: dict[str, Any] = next(body for body in map(json.loads, lines) if body["id"] == record_id)
    return found


def loaded(service: Running, folder: Path, *bodies: dict[str, Any]) -> list[Any]:
    """The records that were refused of a load."""
    file, parts = folder / "again.ndjson", service.service
    file.write_text("\n".join(map(json.dumps, bodies)), encoding="utf-8")
    report = load([file], parts.writer, parts.store, parts.clock, parts.new_id, parts.site)
    return list(report["refused"])


def sound(service: Running) -> bool:
    found = checks.check_store(service.service.store, service.service.site)
    return not [one for one in found if not one.notice]


def assigned(service: Running, group: str) -> str:
    """The path of a new task of a group."""
    extension = [{"url": GROUP, "valueReference": {"reference": f"Group/{group}"}}]
    made = service.client.post("/Task", json=task(1, extension=extension))
    assert made.status_code == 201, made.text
    return str(made.headers["location"])


def shown_group(service: Running, path: str) -> dict[str, str]:
    found: dict[str, str] = service.client.get(path).json()["extension"][0]["valueReference"]
    return found


def is_known(service: Running, path: str, tag: str) -> bool:
    """True if a client that has the version of a tag is told that it has the newest one."""
    face = path.replace("/Task/", "/fhir/Task/")
    return service.client.get(face, headers={"if-none-match": tag}).status_code == 304


def versions(service: Running, path: str) -> list[str]:
    """The names of its group in the versions of a task, oldest first."""
    entries = service.client.get(f"{path}/_history", params={"_count": 50}).json()["entry"]
    shown = [entry["resource"]["extension"][0]["valueReference"]["display"] for entry in entries]
    return shown[::-1]


@pytest.mark.alike
@pytest.mark.parametrize("name", ["Front desk", 'Größe "B" \\ 漢字', "Team"])
def test_a_renamed_group_shows_its_new_name(fresh_service: Running, tmp_path: Path, name: str) -> None:
    """TASK-09, REF-04: in reads, searches and after an update that keeps the group; of that group alone."""
    other = record("group", "g1") | {"id": "g9", "name": "Front"}
    loaded(fresh_service, tmp_path, other)
    one, elsewhere = assigned(fresh_service, "g1"), assigned(fresh_service, "g9")
    shown = fresh_service.client.get(one)
    for new in (name, "Between", name):
        assert loaded(fresh_service, tmp_path, record("group", "g1") | {"name": new}) == []
        before, shown = shown, fresh_service.client.get(one)
        assert shown_group(fresh_service, one)["display"] == new
        is_new = shown.content != before.content
        assert (shown.headers["etag"] != before.headers["etag"]) == is_new
        assert is_known(fresh_service, one, before.headers["etag"]) != is_new
    assert shown_group(fresh_service, elsewhere)["display"] == "Front"
    assert fresh_service.client.get(elsewhere).headers["etag"] == 'W/"1"'
    assert versions(fresh_service, one) == [new for new, _ in groupby(["Front desk", name, "Between", name])]
    assert fresh_service.client.put(one, json=task(1, description="changed")).status_code == 200
    assert shown_group(fresh_service, one) == {"reference": "Group/g1", "type": "Group", "display": name}
    assert sound(fresh_service)


def test_a_group_that_has_no_name_any_more_shows_its_id(fresh_service: Running, tmp_path: Path) -> None:
    """TASK-09."""
    path = assigned(fresh_service, "g1")
    nameless = {name: value for name, value in record("group", "g1").items() if name != "name"}
    assert loaded(fresh_service, tmp_path, nameless) == []
    assert shown_group(fresh_service, path)["display"] == "Group/g1"
    assert loaded(fresh_service, tmp_path, record("group", "g1")) == []
    assert shown_group(fresh_service, path)["display"] == record("group", "g1")["name"]


def test_an_encounter_with_another_note_replaces_it(fresh_service: Running, tmp_path: Path) -> None:
    """QR-NOTE-10, REF-04: its responses go along; the former note is gone, and its identifier free."""
    body = {
        "resourceType": "QuestionnaireResponse",
        "questionnaire": f"{fresh_service.url}/Questionnaire/q-intake",
        "status": "completed",
        "subject": {"reference": "Patient/p1"},
        "encounter": {"reference": "Encounter/e1"},
    }
    client, encounter = fresh_service.client, record("encounter", "e1")
    path = client.post("/QuestionnaireResponse", json=body).headers["location"]
    first = client.get(path).json()["extension"][0]["valueId"]
    for version, note in ((2, "other-note"), (3, first)):
        assert loaded(fresh_service, tmp_path, encounter | {"extension": [{"url": NOTE_ID, "valueId": note}]}) == []
        assert client.get(path).json()["extension"][0]["valueId"] == note
        assert client.get(path).headers["etag"] == f'W/"{version}"'
        made = client.post("/QuestionnaireResponse", json=body).headers["location"]
        assert client.get(made).json()["extension"][0] == {"url": NOTE_ID, "valueId": note}
        assert sound(fresh_service)
    former = body | {"extension": [{"url": NOTE_ID, "valueId": "other-note"}]}
    assert client.post("/QuestionnaireResponse", json=former).status_code == 422
