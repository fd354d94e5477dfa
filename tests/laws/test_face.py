"""A law of the R4 face: what is written under /fhir is stored as by the interface, and shown as the interface shows it.

A history of writes is drawn from a seed and played at the interface of one service, and under /fhir of another.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest

from fhir_service.interface.json_text import parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.web.http import FACE
from tests.conftest import BOTH, Database, Running, counted_ids, running
from tests.laws.generated import BASE, Campaign, Step
from tests.laws.test_generated_requests import Played, SetClock, on_duckdb, shown

STORES = BOTH
ONES_OWN = {"x-correlation-id": "law"}
"""Headers of what looks at a store: without them, each request would take one of the counted ids."""
_SIGNED = re.compile(rb"expires=\d+&signature=[0-9a-f]+")


def is_write(step: Step) -> bool:
    """True for what may change a store, in words that both know: the face alone takes strong tags."""
    method, target = step.sent.method, step.sent.target
    tags = [text for name, text in step.sent.headers if name.lower() == b"if-match"]
    weak = all(re.fullmatch(rb'(\*|W/"\w*"(, ?W/"\w*")*)', text) for text in tags)
    asks = "?" in target or target.endswith("/_search")
    return method in ("POST", "PUT") and weak and not asks and not target.startswith("/auth/")


def stored(service: Running, below: str) -> Iterator[tuple[str, Any]]:
    """Every resource with its tag, as found by searching and by reading, and every version."""
    for name in RESOURCES:
        for entry in entries(service, f"{below}/{name}"):
            path = f"{below}/{name}/{entry['resource']['id']}"
            answer = service.client.get(path, headers=ONES_OWN)
            read = parse_json(_SIGNED.sub(b"", answer.content))
            yield name, (bare(entry["resource"]), bare(read), answer.headers["etag"])
        if "create" in RESOURCES[name].interactions:
            for entry in entries(service, f"{below}/{name}/_history"):
                yield name, (bare(entry["resource"]), entry["request"], entry["response"])


def entries(service: Running, path: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of all pages."""
    url: str | None = f"{path}?_count=100"
    while url:
        answer = service.client.get(url.removeprefix(BASE), headers=ONES_OWN)
        page = parse_json(_SIGNED.sub(b"", answer.content))
        yield from page.get("entry", ())
        url = next((link["url"] for link in page["link"] if link["relation"] == "next"), None)


def bare(resource: dict[str, Any]) -> dict[str, Any]:
    """Return a resource without what the face adds: version, time of the last change, a Questionnaire's `url`."""
    kept = {name: value for name, value in resource.items() if name not in ("meta", "url")}
    meta = {k: v for k, v in resource.get("meta", {}).items() if k not in ("versionId", "lastUpdated")}
    return kept | ({"meta": meta} if meta else {})


def outcomes(response: httpx.Response) -> list[str]:
    """Return the status of an answer, and those of its entries."""
    body = parse_json(response.content) if response.content else None
    within = body.get("entry", ()) if isinstance(body, dict) and body["resourceType"] == "Bundle" else ()
    return [str(response.status_code), *(entry["response"]["status"] for entry in within)]


def returned_is_read(service: Running, response: httpx.Response) -> None:
    """Assert that a write is answered with the resource as the interface shows it just then."""
    if response.status_code not in (200, 201) or not response.content:
        return
    body = parse_json(response.content)
    for one in (entry.get("resource", {}) for entry in body.get("entry", ())) if "entry" in body else (body,):
        if one.get("resourceType") in RESOURCES:
            answer = service.client.get(f"/{one['resourceType']}/{one['id']}", headers=ONES_OWN)
            assert bare(one) == bare(parse_json(answer.content))
            assert answer.headers["etag"] == f'W/"{one["meta"]["versionId"]}"'


def history(folder: Path, store: str, steps: int, seed: int) -> tuple[list[tuple[Step, list[str]]], list[Any]]:
    """Return the writes of a campaign at the interface, with their outcomes, and what is stored afterwards."""
    campaign = Campaign(seed)
    done: list[tuple[Step, list[str]]] = []
    with service(folder, store) as (played, one):
        while len(done) < steps:
            step = campaign.step()
            if is_write(step):
                response = played.answer(step)
                campaign.learn(response.headers.get("location", "") if response.status_code == 201 else "")
                step.check(response)
                done.append((step, outcomes(response)))
        return done, list(stored(one, ""))


@contextmanager
def service(folder: Path, store: str) -> Iterator[tuple[Played, Running]]:
    """A service over the store with a clock and ids that are the same each time."""
    clock = SetClock()
    options: Any = {"clock": clock, "new_id": counted_ids(), "base_url": BASE, "store": store}
    with running(folder, **options) as one, httpcore.ConnectionPool() as pool:
        yield Played(one, clock, pool), one


def faces_agree(folder: Path, database: Database, steps: int, seed: int) -> Counter[str]:
    """Play a history at both; return how often each outcome came."""
    plain, faced = folder / "plain", folder / "faced"
    plain.mkdir()
    faced.mkdir()
    with database(plain) as store:
        done, expected = history(plain, store, steps, seed)
    with database(faced) as store, service(faced, store) as (played, one):
        for step, expected_outcomes in done:
            sent = replace(step.sent, target=FACE + step.sent.target)
            response = played.answer(replace(step, sent=sent))
            assert outcomes(response) == expected_outcomes, shown(step)
            returned_is_read(one, response)
        assert list(stored(one, "")) == expected
        assert list(stored(one, FACE)) == expected
    return Counter(outcome for _, found in done for outcome in found)


def test_the_face_stores_and_shows_what_the_interface_does(tmp_path: Path) -> None:
    """EXTRA-R4-01, EXTRA-R4-02."""
    found = faces_agree(tmp_path, on_duckdb, 40, 1)
    assert {"200", "201", "400", "412", "422"} <= set(found)


@pytest.mark.long
@pytest.mark.parametrize("seed", [31, 32])
def test_the_face_stores_and_shows_what_the_interface_does_in_long_histories(
    tmp_path: Path, database: Database, seed: int
) -> None:
    """EXTRA-R4-01, EXTRA-R4-02."""
    found = faces_agree(tmp_path, database, 1_500, seed)
    assert found["200"] + found["201"] > 500, found
