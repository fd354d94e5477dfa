"""The system's Chromium, which the tests of pages and the pictures of the README use."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
IN_A_BROWSER = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path (Debian: apt-get install chromium)"),
]


@contextmanager
def open_browser() -> Iterator[Browser]:
    # Chromium refuses to run as root inside its sandbox, and containers run as root.
    arguments = [] if os.geteuid() else ["--no-sandbox"]
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield opened
        finally:
            opened.close()
