"""One browser for all of these tests."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    from tests.browser.chromium import open_browser  # Playwright takes long to import, and `make test` uses none

    with open_browser() as opened:
        yield opened
