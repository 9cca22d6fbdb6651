"""Debian's Chromium, driven by Playwright: pages whose faults are kept, as errors of scripts and of the policy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from memserver_evals.colbench.frontend.browser import find_chromium

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1360, "height": 900}


@contextmanager
def chromium() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("Chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_in(browser: Browser, **context: Any) -> Iterator[tuple[Page, list[str]]]:
    """A page, and the faults that its console reports."""
    opened = browser.new_context(**{"viewport": DESKTOP, **context})
    page = opened.new_page()
    page.set_default_timeout(30_000)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console",
        lambda said: faults.append(said.text) if said.type in {"error", "warning"} else None,
    )
    try:
        yield page, faults
    finally:
        opened.close()
