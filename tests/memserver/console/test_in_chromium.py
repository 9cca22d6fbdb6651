"""What a person does in the console, in a real browser."""

import re

from playwright.sync_api import Page, expect

from memserver.messages import Prompt, ToolSpecs
from memserver.testing.scripted import Call, ScriptedModel, Step, say
from memserver.testing.scripted_rules import last_user_text
from tests.support.chromium import chromium, page_in
from tests.support.client import served
from tests.support.scripted_agent import HeldHere
from tests.support.server import OneDatabase

expect.set_options(timeout=30_000)
FILLER = "a long message with many words that nobody needs but that fill the queue. " * 3


def test_a_newcomer_makes_an_agent_sees_it_remember_and_forget_and_stops_it(
    database: OneDatabase,
) -> None:
    held = HeldHere(say("Too late."))

    def rule(prompt: Prompt, _tools: ToolSpecs) -> Step:
        said = last_user_text(prompt)
        if prompt[-1].role == "user" and said.startswith("My name is"):
            kept = {"section": "human", "content": "Name: Ada", "inner_thought": "Worth keeping."}
            return Call("working_context_append", {**kept, "request_heartbeat": True})
        return held.begin() if said == "Take your time." else say(f"I heard: {said[:20]}")

    model = ScriptedModel(rule, context_window=2048)
    with (
        served(database, model) as server,
        chromium() as browser,
        page_in(browser) as (page, faults),
    ):
        page.goto(server.url)
        page.get_by_role("link", name="Create the first one").click()
        page.get_by_label("Name", exact=True).first.fill("sam")
        page.get_by_role("button", name="Create").click()

        say_to(page, "My name is Ada.")
        expect(page.locator("#section-human")).to_contain_text("Name: Ada")
        expect(page.locator(".call", has_text="working_context_append")).to_be_visible()
        assert re.search(r"\d+ %", page.locator(".window").inner_text())

        while not page.locator(".message.evicted").count():
            say_to(page, FILLER)
        expect(page.get_by_text("Above: only in recall storage")).to_be_visible()
        expect(page.locator("#block-summary")).to_contain_text("They talked.")

        edit_and_undo(page)

        page.locator(".tabs").get_by_text("Recall").click()
        page.get_by_role("searchbox").fill("My name is Ada")
        page.get_by_role("searchbox").press("Enter")
        expect(page.locator("#side mark").first).to_be_visible()

        page.get_by_label("Message to sam").fill("Take your time.")
        page.get_by_role("button", name="Send").click()
        assert held.reached.wait(30)
        page.reload()  # the page finds the turn that runs, and follows it again
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("Stopped.")).to_be_visible()
        held.let_go()

        page.get_by_role("link", name="Settings").click()
        page.get_by_role("button", name="Duplicate").click()
        expect(page.get_by_label("Name", exact=True)).to_have_value(re.compile("^sam-copy-"))
    assert not faults


def say_to(page: Page, text: str) -> None:
    """Say it, and wait until the turn has ended."""
    before = page.locator(".turn").count()
    page.get_by_label("Message to sam").fill(text)
    page.get_by_label("Message to sam").press("Enter")
    expect(page.locator(".turn")).to_have_count(before + 1)
    expect(page.locator(".working")).to_have_count(0)


def edit_and_undo(page: Page) -> None:
    human = page.locator("#section-human")
    human.get_by_role("button", name="Edit human").click()
    page.locator("#side textarea").fill("Name: Grace")
    page.get_by_role("button", name="Save").click()
    expect(human).to_contain_text("Grace")
    human.get_by_role("button", name="History").click()
    expect(human.locator("ins").first).to_have_text("Grace")
    human.get_by_role("button", name="Undo the last edit").click()
    expect(human.locator("> .fact")).to_have_text("Name: Ada")
