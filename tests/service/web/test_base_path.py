"""A base URL with a path: what is asked for below it is what is asked for without it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Running, running
from tests.support import loopback
from tests.support.bodies import entry, task

PATH = "/records/fhir r4"
BASE = "https://clinic.example/records/fhir%20r4"


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("below"), base_url=BASE) as found:
        yield found


@pytest.mark.parametrize(
    "path", ["/Questionnaire/q-score", "/Questionnaire?name=Score", "/Task/none", "/Nothing", "/metadata", "/health",
             "/.well-known/smart-configuration", "/chart", "/Task/$validate"],
)  # fmt: skip
def test_a_path_below_the_base_is_the_path_itself(below: Running, path: str) -> None:
    """COMMON-18, BUNDLE-05: with the same links, which are relative to the base."""
    short, long = below.client.get(path), below.client.get(PATH + path)
    assert (long.status_code, long.content) == (short.status_code, short.content)


def test_a_created_resource_is_found_at_its_location_below_the_base_path(below: Running) -> None:
    """COMMON-18, COMMON-17: on the host that the base URL stands for."""
    made = below.client.post(f"{PATH}/Task", json=task(1))
    location = made.headers["location"]
    assert location.startswith(f"{BASE}/Task/")
    found = below.client.get(location.removeprefix("https://clinic.example"))
    assert found.json()["identifier"][0]["value"] == "1"
    page = below.client.get(f"{PATH}/Task?_count=1").json()
    assert page["link"][0]["url"] == "/Task?_count=1&_offset=0"
    assert below.client.get(PATH + page["link"][0]["url"]).json() == page


@pytest.mark.parametrize("path", [PATH, f"{PATH}/"])
def test_the_base_itself_takes_batches(below: Running, path: str) -> None:
    """EXTRA-BATCH-01."""
    body = {"resourceType": "Bundle", "type": "batch", "entry": [entry(task(2))]}
    assert below.client.post(path, json=body).json()["entry"][0]["response"]["status"] == "201"


@pytest.mark.parametrize("path", ["/Task", "/", "/Task/x", "/chart"])
def test_paths_below_the_base_path_need_a_token_as_well(below: Running, path: str) -> None:
    """AUTH-01: /chart has its own sign-in."""
    short, long = (loopback.get(below.url + one) for one in (path, PATH + path))
    assert (long.status_code, long.content) == (short.status_code, short.content)


@pytest.mark.parametrize("path", ["/records", "/records/fhir r4x/Task", "/records/other/Task", f"{PATH}{PATH}/Task"])
def test_paths_outside_the_base_path_are_unknown(below: Running, path: str) -> None:
    """ERR-404-04."""
    assert below.client.get(path).status_code == 404


@pytest.mark.alike
@pytest.mark.parametrize("base", ["/Task", "/chart", "/auth"])
def test_a_base_path_named_like_a_path_of_the_service_hides_neither(tmp_path: Path, base: str) -> None:
    """COMMON-18."""
    with running(tmp_path, base_url=f"https://clinic.example{base}") as service:
        made = service.client.post(f"{base}/Task", json=task(1)).headers["location"]
        path = made.removeprefix("https://clinic.example")
        for one in (path, path.removeprefix(base)):
            assert service.client.get(one).status_code == 200
        assert service.client.get("/chart").status_code == 200
        assert service.client.get("/Task").json()["total"] == 1
