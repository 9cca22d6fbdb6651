"""The lens and the operator's pages in a real browser: on a desk and a phone, light and dark, for all readers."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from memserver.client import Client
from memserver.testing.scripted import ScriptedModel, say
from tests.support.chromium import PHONE, chromium, page_in
from tests.support.client import served
from tests.support.nightly import NIGHTLY
from tests.support.server import OneDatabase

PLACES = ("agents/{agent}/turns/1", "operations", "runs", "runs/show?name=actor", "keys")
HARMFUL = {"serious", "critical"}


@pytest.mark.skipif(not NIGHTLY, reason="a browser looks at ten pages: make nightly")
def test_the_operators_pages_are_for_every_reader_and_fit_a_phone(
    database: OneDatabase, tmp_path: Path
) -> None:
    (tmp_path / "actor").mkdir()
    lines = '{"step": 1, "loss": 0.7}\n{"step": 2, "loss": 0.5}'
    (tmp_path / "actor" / "metrics.jsonl").write_text(lines, encoding="utf-8")
    model = ScriptedModel(lambda *_: say("Hello Ada!"))
    with served(database, model, trace=True, results_dir=tmp_path) as server, chromium() as browser:
        with Client(server.url) as client:
            agent = client.agents.create("sam").id
            client.messages.send(agent, "I am Ada.")
        addresses = [f"{server.url}/console/{place.format(agent=agent)}" for place in PLACES]
        for scheme, size in (("light", {}), ("dark", {"viewport": PHONE})):
            with page_in(browser, color_scheme=scheme, bypass_csp=True, **size) as (page, _):
                for address in addresses:
                    page.goto(address)
                    found = Axe().run(page).response["violations"]
                    harmful = [each["id"] for each in found if each["impact"] in HARMFUL]
                    assert not harmful, f"{address}, {scheme}: {harmful}"
                    widths = "[document.documentElement.scrollWidth, innerWidth]"
                    needed, there = page.evaluate(widths)
                    assert needed <= there, address
        with page_in(browser) as (page, faults):
            page.goto(addresses[0])
            system = page.locator(".fold", has_text="system").first
            system.locator("summary").focus()
            page.keyboard.press("Enter")
            expect(system.locator("pre").first).to_be_visible()
            page.goto(addresses[-1])
            page.get_by_role("button", name="New key").click()
            page.get_by_label("What it is for").fill("laptop")
            page.keyboard.press("Enter")
            expect(page.get_by_text("signed in with this one")).to_be_visible()
            key = page.locator(".secret").inner_text()
            page.get_by_role("link", name="I have copied it").click()
            page.get_by_role("button", name="Sign out").click()
            page.get_by_label("API key").fill(key)
            page.get_by_role("button", name="Sign in").click()
            page.get_by_role("link", name="Keys").click()
            page.get_by_role("button", name="Revoke laptop").click()
            page.get_by_role("button", name="Keep it").click()
            expect(page.get_by_text("valid")).to_be_visible()
        assert not faults
