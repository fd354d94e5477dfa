"""Take the README's pictures of the samples: `.venv/bin/python -m tests.browser.pictures` fills docs/pictures.

Needs Chromium, and takes some minutes: everything is started, and the samples are dropped into the inbox.
"""

import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import open_browser
from tests.support.commands import load, run
from tests.support.standing import Standing, published, standing, until

ROOT = Path(__file__).parents[2]
SAMPLES, PICTURES = ROOT / "data" / "samples", ROOT / "docs" / "pictures"
FILES = {"answers": 2, "payments": 3, "tasks": 2}
PATIENT = "p188"
COLORS = 128


def main() -> None:
    expect.set_options(timeout=120_000)
    with tempfile.TemporaryDirectory() as folder, imported(Path(folder) / "home") as up, open_browser() as browser:
        for name, taken in (("lineage", lineage), ("asset", asset), ("chart", chart), ("report", report)):
            save(name, taken(browser, up))


@contextmanager
def imported(home: Path) -> Iterator[Standing]:
    """Everything up, with the samples imported and published."""
    load(home, SAMPLES / "reference")
    with standing(home) as up:
        shutil.copytree(SAMPLES / "inbox", home / "inbox", dirs_exist_ok=True)
        wanted = {feed: ["materialized"] * files for feed, files in FILES.items()}
        until(lambda: {feed: list(up.partitions(feed).values()) for feed in wanted} == wanted, "the imports", pause=2)
        until(lambda: published(home).total() == sum(FILES.values()) and up.nothing_under_way(), "the tables", pause=2)
        yield up


def lineage(browser: Browser, up: Standing) -> bytes:
    page = opened(browser, up.addresses["Dagster"] + "/locations/pipelines.definitions/asset-groups/payments/lineage")
    expect(page.get_by_text("loaded", exact=True).last).to_be_visible()
    expect(page.get_by_text("Loading...")).to_have_count(0)
    return settled(page)


def asset(browser: Browser, up: Standing) -> bytes:
    page = opened(browser, up.addresses["Dagster"] + "/assets/payments/loaded", height=800)
    page.get_by_text("Plots", exact=True).first.click()
    page.get_by_text("Metadata", exact=True).first.evaluate("heading => heading.scrollIntoView()")
    expect(page.locator("canvas").first).to_be_visible()
    return settled(page)


def chart(browser: Browser, up: Standing) -> bytes:
    store = up.home / "service.duckdb"
    client = json.loads(
        run("fhir-service", "client", "add", "--store", store, "--name", "Front desk", "--scope", "system/*.rs").stdout
    )
    page = opened(browser, f"{up.addresses['service']}/chart/patients/{PATIENT}", width=1280, height=880)
    page.get_by_label("Client id").fill(client["client_id"])
    page.get_by_label("Client secret").fill(client["client_secret"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    return settled(page)


def report(browser: Browser, up: Standing) -> bytes:
    return settled(opened(browser, (up.home / "published" / "report.html").as_uri(), width=1100, height=800))


def opened(browser: Browser, address: str, width: int = 1280, height: int = 720) -> Page:
    page = browser.new_context(viewport={"width": width, "height": height}).new_page()
    page.goto(address)
    return page


def settled(page: Page) -> bytes:
    """A picture of the page once its animations are over."""
    page.wait_for_timeout(3000)
    return page.screenshot()


def save(name: str, picture: bytes) -> None:
    """As a small PNG: few colors are enough for pages."""
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(COLORS).save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
