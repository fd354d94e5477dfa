"""The chart: to whom its pages are shown, and how the way in is kept."""

from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.conftest import BOTH, FROZEN, running
from tests.service.chart.world import Tree, World, element, section, text_of
from tests.support import loopback

STORES = BOTH


def test_every_page_needs_a_sign_in_and_the_sign_in_leads_back_to_it(world: World) -> None:
    """CHART-14."""
    stranger = world.stranger()
    task_id = world.task()
    for page in (f"/tasks/{task_id}", "/tasks", "/patients/p1", "/responses/x"):
        answer = stranger.get(f"/chart{page}")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/chart?to={page}")
        assert not answer.content
    assert stranger.get("/chart/nothing").headers["location"] == "/chart"
    assert stranger.post("/chart/patients", data={"sought": "Quill"}).headers["location"] == "/chart"
    form = stranger.get(f"/chart?to=/tasks/{task_id}")
    assert "Quill" not in form.text
    hidden = Tree(form.text).root.find(".//input[@name='to']")
    assert hidden is not None
    answer = world.sign_in(stranger, "system/Task.r", to=hidden.get("value") or "")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/chart/tasks/{task_id}")
    assert stranger.get(answer.headers["location"]).status_code == 200


def test_wrong_credentials_open_nothing(world: World) -> None:
    """CHART-14."""
    client = world.running.service.auth.add_client("Somebody")
    stranger = world.stranger()
    for form in (
        {"client_id": client["client_id"], "client_secret": "wrong"},
        {"client_id": "nobody", "client_secret": client["client_secret"]},
        {"client_id": client["client_id"]},
        {},
    ):
        answer = stranger.post("/chart", data={"to": "", **form})
        assert answer.status_code == 403
        assert "The client is unknown or its secret is wrong." in answer.text
        assert "set-cookie" not in answer.headers
    assert stranger.post("/chart", content=b"x", headers={"content-type": "text/plain"}).status_code == 400
    stranger.cookies.set(f"chart_{world.running.service.store.id[:8]}", "x" * 43)
    assert stranger.get("/chart/tasks").status_code == 303
    assert "Your session has ended." in stranger.get("/chart").text


def test_a_chart_session_can_read_only_what_the_chart_shows_and_cannot_write(world: World) -> None:
    """CHART-14: whoever took the cookie could not write with it, nor read what the chart does not show."""
    browser = world.signed_in()
    (token,) = browser.cookies.values()
    bearer = {"authorization": f"Bearer {token}"}
    assert loopback.get(f"{world.running.url}/Task", headers=bearer).status_code == 200
    assert loopback.post(f"{world.running.url}/Task", headers=bearer, json={}).status_code == 403
    assert loopback.get(f"{world.running.url}/DiagnosticReport", headers=bearer).status_code == 403
    assert world.browser.put("/chart/tasks").status_code == 405
    assert world.browser.post("/chart/patients/p1").headers["allow"] == "GET"


def test_the_scopes_of_the_client_decide_what_is_seen(world: World) -> None:
    """CHART-14."""
    task_id, response_id = world.task("p1"), world.answer("p1")
    world.pay(1, claim="c1")
    reader = world.signed_in("system/Task.read")
    page = reader.get("/chart/patients/p1")
    assert element(page, f"task-{task_id}") is not None
    assert "This client may not read answers." in text_of(section(page, "notes"))
    assert "This client may not read payments." in text_of(section(page, "receipts"))
    assert not any(text in page.text for text in ("Balance", "$", response_id))
    refused = reader.get(f"/chart/responses/{response_id}")
    assert refused.status_code == 403
    assert "This client may not see this page" in refused.text
    answers = world.signed_in("system/QuestionnaireResponse.r system/Task.c")
    assert answers.get(f"/chart/responses/{response_id}").status_code == 200
    assert answers.get("/chart/tasks").status_code == 403
    assert answers.get(f"/chart/tasks/{task_id}").status_code == 403
    assert "Open tasks" not in answers.get("/chart").text


def test_the_chart_shows_names_and_balances_only_to_clients_that_may_read_them(world: World) -> None:
    """CHART-14: others see ids. Charges are Claims, and need the right to read Claims."""
    task_id = world.task("p5", owner={"reference": "Practitioner/dr2"})
    response_id = world.answer("p5")
    world.pay(1, "p1")
    blind = world.signed_in("system/Task.rs system/QuestionnaireResponse.rs system/PaymentNotice.rs")
    pages = [blind.get(f"/chart{p}") for p in ("", "/tasks", "/patients/p5", f"/tasks/{task_id}")]
    pages.append(blind.get(f"/chart/responses/{response_id}"))
    for page in pages:
        assert page.status_code == 200
        assert "p5" in page.text
        assert [told for told in ("Quill", "Okafor", "Lindqvist") if told in text_of(Tree(page.text).root)] == [], (
            page.url
        )
    assert "Born" not in pages[2].text
    assert "No patient matches." in blind.post("/chart/patients", data={"sought": "Quill"}).text
    paid = blind.get("/chart/patients/p1")
    assert "This client may not read charges." in text_of(section(paid, "charges"))
    assert "Balance" not in paid.text
    named = world.signed_in("system/Task.rs system/Patient.rs system/Practitioner.r")
    assert "Eve Quill-Five" in named.get("/chart").text
    assert "Eve Quill-Five" in named.get("/chart/tasks").text
    assert "Per Lindqvist" in named.get("/chart/tasks").text


@pytest.mark.parametrize("scope", ["system/*.write", "system/DiagnosticReport.*"])
def test_a_client_that_may_read_nothing_of_the_chart_does_not_come_in(world: World, scope: str) -> None:
    """CHART-14."""
    answer = world.sign_in(world.stranger(), scope)
    assert answer.status_code == 403
    assert "This client may not read anything that the chart shows." in answer.text


def test_a_revoked_client_is_out_at_once(world: World) -> None:
    """CHART-14, AUTH-11."""
    browser = world.signed_in()
    assert browser.get("/chart/tasks").status_code == 200
    world.running.service.auth.revoke(world.client_id)
    assert browser.get("/chart/tasks").status_code == 303


def test_sign_out_ends_the_session_and_not_only_its_cookie(world: World) -> None:
    """CHART-14."""
    browser = world.signed_in()
    copied = world.stranger(cookies=browser.cookies)
    answer = browser.post("/chart/sign-out")
    assert (answer.status_code, answer.headers["location"]) == (303, "/chart")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert copied.get("/chart/tasks").status_code == 303
    assert world.browser.get("/chart/tasks").status_code == 200
    assert browser.post("/chart/sign-out").status_code == 303


@pytest.mark.long
def test_a_session_ends_after_half_an_hour_without_a_page_and_after_ten_hours_in_any_case(tmp_path: Path) -> None:
    """CHART-14, AUTH-10."""
    now = [FROZEN]

    def clock() -> datetime:
        return now[0]

    with running(tmp_path, clock=clock) as found, closing(World(found)) as made:
        browser = made.browser
        page = browser.get("/chart/tasks")
        cookie = page.headers["set-cookie"]
        assert "Max-Age=1800" in cookie
        for _ in range(20):
            now[0] += timedelta(minutes=29)
            assert browser.get("/chart/tasks").status_code == 200
        now[0] += timedelta(minutes=21)
        assert browser.get("/chart/tasks").status_code == 303


def test_a_session_ends_on_the_server_half_an_hour_after_its_last_page(tmp_path: Path) -> None:
    """CHART-15: whatever a copied cookie says of its age."""
    now = [FROZEN]
    with running(tmp_path, clock=lambda: now[0]) as found, closing(World(found)) as made:
        browser = made.browser
        for _ in range(4):
            now[0] += timedelta(minutes=29)
            assert browser.get("/chart/tasks").status_code == 200
        copied = {"cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
        [token] = browser.cookies.values()
        now[0] += timedelta(minutes=31)
        assert browser.get("/chart/tasks", headers=copied).status_code == 303
        bearer = {"authorization": f"Bearer {token}"}
        assert browser.get(f"{found.url}/Task", headers=bearer).status_code == 401


def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(world: World) -> None:
    """CHART-14."""
    cookie = world.browser.get("/chart").headers["set-cookie"]
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert parts == {"httponly", "max-age=1800", "path=/chart", "samesite=lax"}


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
def test_forms_of_other_sites_are_refused(world: World, headers: dict[str, str]) -> None:
    """CHART-14."""
    client = world.running.service.auth.add_client("Attacker")
    credentials = {"client_id": client["client_id"], "client_secret": client["client_secret"]}
    for path in ("/chart", "/chart/sign-out", "/chart/patients"):
        answer = world.browser.post(path, data=credentials, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    own = {"sec-fetch-site": "same-origin", "origin": world.running.url}
    assert world.browser.post("/chart/patients", data={"sought": "p1"}, headers=own).status_code == 303
