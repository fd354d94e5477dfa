"""The pages of operators and analysts in a real browser, over a real `chartferry up`: files are imported without a
click.

The tests ask Dagster until it has a state; then its pages must show that state.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import IN_A_BROWSER
from tests.support.commands import load
from tests.support.standing import Standing, published, standing, until

pytestmark = IN_A_BROWSER

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
PATIENCE = 120_000
FRONT_DESK = """
name = "front_desk"
kind = "payments"
source = "front_desk"
files = ["desk*.csv"]
max_rejects = 1
[columns]
payment_id = "Receipt"
patient_id = "Patient"
amount = "Paid"
paid_on = "Day"
"""
TOO_MANY_BAD_ROWS = """Receipt,Patient,Paid,Day
R-1,p001,12.50,2026-03-02
R-2,p002,twelve,2026-03-02
R-3,p003,20.00,the third of March
R-4,p004,20.00,soon
"""
STAGES = ("received", "validated", "loaded")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Everything up, with a good file and one with too many bad rows dropped into the inbox and run to their ends."""
    home = tmp_path_factory.mktemp("operators") / "home"
    load(home, SAMPLES / "reference")
    for folder in ("inbox", "feeds"):
        (home / folder).mkdir(mode=0o700)
    (home / "feeds" / "front_desk.toml").write_text(FRONT_DESK)
    with standing(home) as found:
        for name in ("payments-2026-01.csv.control.json", "payments-2026-01.csv", "payments-2026-03.ndjson"):
            shutil.copy(SAMPLES / "inbox" / name, home / "inbox")
        (home / "inbox" / "desk-2026-03.csv").write_text(TOO_MANY_BAD_ROWS)
        wanted = {"payments": ["materialized"] * 2, "front_desk": ["failed"]}
        until(lambda: {feed: list(found.partitions(feed).values()) for feed in wanted} == wanted, "both ends", pause=2)
        until(lambda: published(home).total() == 3 and found.nothing_under_way(), "the tables of it all", pause=2)
        yield found


@pytest.fixture
def page(browser: Browser, up: Standing) -> Iterator[Page]:
    context = browser.new_context(base_url=up.addresses["Dagster"], viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    yield context.new_page()
    context.close()


def test_a_file_is_imported_by_the_sensor_and_its_partition_turns_green(page: Page, up: Standing) -> None:
    """CLI-CMD-13, STATE-HOME-01."""
    files = up.partitions("payments")
    assert len(files) == 2
    for stage in STAGES:
        page.goto(f"/assets/payments/{stage}?view=partitions")
        expect(page.get_by_text(re.compile(r"^Materialized \(2\)$"))).to_be_visible()
        expect(page.get_by_text(re.compile(r"^Failed \(0\)$"))).to_be_visible()
        for batch_id in files:
            expect(page.get_by_text(batch_id).first).to_be_visible()
    [run] = [run for run in up.runs() if run["jobName"] == "import_payments"]
    assert run["tags"]["dagster/sensor_name"] == "inbox"
    page.goto(f"/runs/{run['runId']}")
    expect(page.get_by_text("Success").first).to_be_visible()


def test_a_file_with_too_many_bad_rows_turns_red_and_the_check_says_why(page: Page, up: Standing) -> None:
    [batch_id] = up.partitions("front_desk")
    page.goto("/assets/front_desk/loaded?view=partitions")
    expect(page.get_by_text(re.compile(r"^Failed \(1\)$"))).to_be_visible()
    page.goto("/assets/front_desk/validated?view=checks&checkDetail=rejects_stay_within_the_limit")
    expect(page.get_by_text("Failed").first).to_be_visible()
    sentence = f"{batch_id}: 3 of 4 records are rejected, the feed front_desk allows 1; most often for "
    expect(page.get_by_text(sentence).first).to_be_visible()
    page.goto("/assets/front_desk/validated?view=events")
    expect(page.get_by_text("rejects_by_rule").first).to_be_visible()
    [run] = [run for run in up.runs() if run["jobName"] == "import_front_desk"]
    page.goto(f"/runs/{run['runId']}")
    expect(page.get_by_text(f"{batch_id} (desk-2026-03.csv): 3 of 4 records are rejected").last).to_be_visible()
    page.goto("/assets/front_desk/loaded?view=events")
    expect(page.get_by_text("3 of 4 records are rejected").first).to_be_visible()


def test_the_lineage_shows_every_stage_and_the_publication(page: Page) -> None:
    page.goto("/locations/pipelines.definitions/asset-groups/payments/lineage")
    for name in (*STAGES, "published"):
        expect(page.get_by_text(name, exact=True).last).to_be_visible()


def test_an_asset_shows_its_counts_as_plots(page: Page) -> None:
    page.goto("/assets/payments/loaded")
    page.get_by_role("button", name="Plots").or_(page.get_by_text("Plots", exact=True)).first.click()
    for name in ("created", "amount_created", "records_per_second"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    expect(page.locator("canvas").first).to_be_visible()


def test_the_report_page_opens_from_the_disk_and_requests_nothing_else(page: Page, up: Standing) -> None:
    """STATE-HOME-04: one self-contained file, whose charts have their tables with them."""
    asked: list[str] = []
    told: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: told.append(message.text))
    address = (up.home / "published" / "report.html").as_uri()
    page.goto(address)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("img")).to_have_count(5)
    expect(page.get_by_role("table")).to_have_count(6)
    assert (asked, told) == ([address], [])


@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_page_fits_its_screen_and_prints(width: int, browser: Browser, up: Standing) -> None:
    """STATE-HOME-04: no column is out of sight, and each picture is drawn for its screen."""
    page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    page.goto((up.home / "published" / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for region in page.locator(".wide").all():
        assert region.evaluate("it => it.scrollWidth <= it.clientWidth"), region.inner_text()
    expect(page.get_by_role("img")).to_have_count(5)
    for picture in page.get_by_role("img").all():
        assert 0.9 < picture.evaluate("it => it.clientWidth / it.viewBox.baseVal.width") < 1.3
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.set_viewport_size({"width": 700, "height": 900})
    page.emulate_media(media="print")
    whole = page.locator("#rejects table").bounding_box()
    words = [head.bounding_box() for head in page.locator("#rejects thead th:not(.number)").all()[1:]]
    assert whole
    shares = [box["width"] / whole["width"] for box in words if box]
    assert [0.2 < share < 0.3 for share in shares] == [True] * 3, "no column of words is thin"
    page.context.close()
