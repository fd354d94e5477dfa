"""The page to sign, in a real browser: on a screen, on a telephone, and on paper."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import IN_A_BROWSER
from tests.support.commands import load, run

pytestmark = IN_A_BROWSER

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("evidence") / "home"
    load(home, SAMPLES / "reference")
    run("chartferry", "--home", home, "import", SAMPLES / "inbox" / "payments-2026-01.csv")
    return dict(json.loads(run("chartferry", "--home", home, "evidence", "--json", "--seed", "1").stdout))


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_to_sign_fits_its_screen_and_prints(width: int, browser: Browser, evidence: dict[str, Any]) -> None:
    """EVID-01: no column is out of sight, and no paper without its columns either."""
    page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    page.goto(Path(evidence["page"]).as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for region in page.locator(".wide").all():
        assert region.evaluate("it => it.scrollWidth <= it.clientWidth"), region.inner_text()
    assert page.locator("#sample tbody tr").count() == len(evidence["sample"]["records"]) == 10
    link = page.locator("#sample tbody a").first.get_attribute("href")
    assert link
    assert link.startswith("http://127.0.0.1:8400/chart/patients/")
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.context.close()


def test_long_tables_are_short_on_a_telephone_until_all_is_asked_for(
    browser: Browser, evidence: dict[str, Any]
) -> None:
    """EVID-01: on a wide screen and on paper every row is shown."""
    days, most = len(evidence["days"]), 8_000
    assert days > 20
    page = browser.new_context(viewport={"width": 390, "height": 900}).new_page()
    page.goto(Path(evidence["page"]).as_uri())
    rows, ask = page.locator("#days-1-rows tbody tr:visible"), page.locator("label[for=all-days-1]")
    assert ask.inner_text() == f"Show all {days}"
    assert rows.count() == 5
    assert page.evaluate("document.documentElement.scrollHeight") < most
    ask.click()
    assert rows.count() == days
    ask.click()
    page.emulate_media(media="print")
    assert rows.count() == days
    assert ask.is_hidden()
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1280, "height": 900})
    assert rows.count() == days
    assert ask.is_hidden()
    page.context.close()
