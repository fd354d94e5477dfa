"""The chart in a real browser: permalinks, keyboard, cookies, what a page may load, contrast and narrow screens."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.chromium import IN_A_BROWSER
from tests.conftest import running
from tests.service.chart.world import FULL, MARKUP, World

pytestmark = IN_A_BROWSER


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(tmp_path_factory.mktemp("browser")) as found:
        made = World(found)
        yield made
        made.close()


@pytest.fixture
def context(browser: Browser, world: World) -> Iterator[BrowserContext]:
    made = browser.new_context(base_url=world.running.url)
    made.set_default_timeout(10_000)
    yield made
    made.close()


def sign_in(page: Page, world: World, address: str, scope: str = "system/*.rs") -> None:
    """Opens an address as a stranger, and signs in with the keyboard alone."""
    client = world.running.service.auth.add_client("Front desk", scope)
    page.goto(address)
    expect(page.get_by_label("Client id")).to_be_focused()
    page.keyboard.type(client["client_id"])
    page.keyboard.press("Tab")
    page.keyboard.type(client["client_secret"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


def test_the_permalink_of_a_task_opens_it_after_a_sign_in_without_scripts_or_a_mouse(
    browser: Browser, world: World
) -> None:
    """CHART-01, CHART-02, CHART-03, CHART-04, CHART-05, CHART-14."""
    task_id = world.task("p5", **FULL)
    done = world.task("p5", description="Done already", status="completed")
    loose = world.task(None, description="Order paper")
    context = browser.new_context(base_url=world.running.url, java_script_enabled=False)
    page = context.new_page()
    sign_in(page, world, f"/chart/tasks/{task_id}")
    assert page.url == f"{world.running.url}/chart/tasks/{task_id}"
    expect(page.get_by_role("heading", level=1)).to_have_text("Call about <results>\nbefore noon")
    main = page.get_by_role("main")
    for fact in ("Per Lindqvist", "Ngozi Okafor", "Front desk", "urgent & new", "28 Feb 2026", "Yui Tanaka"):
        expect(main).to_contain_text(fact)
    expect(page.get_by_text("Left a message")).to_be_visible()
    page.get_by_role("link", name="Eve Quill-Five").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Eve Quill-Five")
    expect(page.locator(f"#task-{task_id}")).to_contain_text("Open")
    expect(page.locator(f"#task-{done}")).to_contain_text("Completed")
    expect(page.locator(f"#task-{loose}")).to_have_count(0)
    page.get_by_role("link", name="Open tasks").press("Enter")
    expect(page.get_by_role("row", name="Order paper")).to_be_visible()
    expect(page.locator(f"#task-{task_id}")).to_contain_text("Left a message")
    expect(page.locator(f"#task-{done}")).to_have_count(0)
    context.close()


def test_the_chart_shows_receipts_with_their_originator_and_what_they_paid_for(
    context: BrowserContext, world: World
) -> None:
    """CHART-06, CHART-07, CHART-08."""
    world.pay(30, claim="c2")
    page = context.new_page()
    sign_in(page, world, "/chart/patients/p1")
    receipts = page.get_by_role("region", name="Receipts")
    row = receipts.get_by_role("row", name="Copayment for Claim c2")
    expect(row.get_by_role("cell")).to_have_text(
        ["$30.00", "Copayment for Claim c2", "Automation user", "Claim c2 $30.00", "$120.25"]
    )
    expect(page.get_by_role("region", name="Charges").get_by_role("row", name="c2")).to_contain_text("$20.25")


def test_the_chart_shows_answers_in_their_note_and_strikes_through_those_in_error(
    context: BrowserContext, world: World
) -> None:
    """CHART-09, CHART-10, CHART-11, CHART-12, CHART-13."""
    smoker = {"system": "http://schemas.demo.example.com/fhir/systems/internal", "code": "N", "display": "No"}
    packs = {"linkId": "packs", "answer": [{"valueDecimal": 2}]}
    items = [
        {"linkId": "history", "item": [{"linkId": "smoker", "answer": [{"valueCoding": smoker, "item": [packs]}]}]}
    ]
    response_id = world.answer("p6", items, authored="2025-05-01T08:00:00Z")
    wrong = world.answer("p6", authored="2025-06-01")
    body = {"resourceType": "QuestionnaireResponse", "id": wrong, "status": "entered-in-error"}
    assert world.client.put(f"/QuestionnaireResponse/{wrong}", json=body).status_code == 200
    page = context.new_page()
    sign_in(page, world, f"/chart/responses/{response_id}")
    note = page.get_by_role("article")
    expect(note.get_by_role("heading", level=2)).to_contain_text("01 May 2025 08:00")
    expect(note.get_by_role("heading", level=2)).to_contain_text("Data import")
    expect(note).to_contain_text("Do you smoke?")
    expect(note).not_to_contain_text("Packs a day")
    page.goto("/chart/patients/p6")
    struck = page.locator(f"#response-{wrong}")
    expect(struck).to_contain_text("Entered in error")
    expect(struck.get_by_text("Tired")).to_have_css("text-decoration-line", "line-through")
    kept = page.locator(f"#response-{response_id}").get_by_text("No", exact=True)
    expect(kept).to_have_css("text-decoration-line", "none")


def test_pages_load_nothing_from_elsewhere_run_nothing_and_break_no_policy(
    context: BrowserContext, world: World
) -> None:
    """CHART-14."""
    note = {"text": MARKUP, "authorReference": {"reference": "Practitioner/dr1"}}
    task_id = world.task("p3", description=MARKUP, note=[note])
    page = context.new_page()
    asked: list[str] = []
    told: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: told.append(message.text))
    page.on("dialog", lambda dialog: told.append(dialog.message))
    sign_in(page, world, "/chart")
    for address in ("/chart", "/chart/tasks", f"/chart/tasks/{task_id}", "/chart/patients/p3"):
        page.goto(address)
        assert page.evaluate("document.cookie") == ""
        assert page.evaluate("document.styleSheets[0].cssRules.length") > 50
    expect(page.get_by_role("link", name=MARKUP)).to_be_visible()
    assert told == []
    assert all(url.startswith((f"{world.running.url}/chart", "data:,")) for url in asked)


def test_a_sign_out_leaves_nothing_behind_the_back_button(context: BrowserContext, world: World) -> None:
    """CHART-14."""
    page = context.new_page()
    sign_in(page, world, "/chart/patients/p1")
    page.get_by_role("button", name="Sign out").press("Enter")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert context.cookies() == []
    page.go_back()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_text("Quill")).to_have_count(0)


def test_another_site_cannot_sign_anybody_out(context: BrowserContext, world: World) -> None:
    """CHART-14: a form that another origin sends is refused, whatever the browser sends with it."""
    page = context.new_page()
    sign_in(page, world, "/chart")
    elsewhere = world.running.url.replace("127.0.0.1", "localhost")
    page.route(
        f"{elsewhere}/trap",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f'<form method="post" action="{world.running.url}/chart/sign-out"><button>Win</button></form>',
        ),
    )
    page.goto(f"{elsewhere}/trap")
    page.get_by_role("button").click()
    expect(page.get_by_role("heading")).to_have_text("This client may not see this page")
    page.goto("/chart")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


CONTRAST = (Path(__file__).parent / "contrast.js").read_text()


def test_chart_pages_have_enough_contrast_and_fit_a_narrow_screen(context: BrowserContext, world: World) -> None:
    """Every text has a contrast of 4.5 or more; nothing runs out of a screen 360 pixels wide."""
    world.answer("p2", authored="2025-01-01")
    task_id = world.task("p2", **FULL)
    world.task("p2", status="cancelled")
    world.task("p2", status="completed")
    page = context.new_page()
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto("/chart")
    assert page.evaluate(CONTRAST) == []
    sign_in(page, world, "/chart")
    for address in ("/chart", "/chart/tasks", f"/chart/tasks/{task_id}", "/chart/patients/p2", "/chart/nothing"):
        page.goto(address)
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        for table in page.locator(".wide").all():
            assert table.evaluate("it => it.scrollWidth <= it.clientWidth"), f"{address}: a column is out of sight"


def test_the_first_tab_key_leads_to_a_link_that_skips_the_navigation(context: BrowserContext, world: World) -> None:
    page = context.new_page()
    sign_in(page, world, "/chart/patients/p1")
    page.goto("/chart/patients/p1")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Timeline")).to_be_focused()
