"""The whole story in Chromium, over real processes: at night, or `NIGHTLY=1 PICTURES=docs/pictures` for new pictures of the docs."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from memserver.messages import Prompt, ToolSpecs
from memserver.testing.scripted import Call, Step, say
from memserver.testing.scripted_rules import last_user_text
from memserver.testing.scripted_server import create_scripted_app
from tests.support import servers
from tests.support.chromium import DESKTOP, PHONE, chromium, page_in
from tests.support.http_app import serving
from tests.support.nightly import NIGHTLY
from tests.support.scripted_agent import HeldHere
from tests.support.server import OneDatabase

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not NIGHTLY, reason="takes a minute: make nightly"),
]
expect.set_options(timeout=60_000)
TALK = [
    "My name is Ada, and my cello is called Hugo.",
    "I practise every morning before work, mostly Bach, and on Fridays I play in a quartet with three friends from school.",
    "We meet at Miriam's place, since she has the largest living room and a very patient neighbour downstairs.",
    "This spring we are learning Dvořák's American quartet, which is harder than it sounds, the second movement above all.",
    "Last week a peg slipped in the middle of it, and Hugo went out of tune by almost a third.",
    "So I would like to know how often strings should be changed, and whether gut is worth the trouble.",
]
ANSWERS = [
    (
        "Mornings and Fridays: she has a rhythm.",
        "Bach before work sounds like a good start. Who plays the first violin?",
    ),
    ("A patient neighbour is worth a word.", "Then I hope that the neighbour likes Bach, too."),
    (
        "The American quartet, second movement.",
        "Its long melody needs much air. Do you breathe together at the start?",
    ),
    (
        "Hugo is the cello; a peg slipped.",
        "Poor Hugo! A little peg paste often helps, and dry winters make it worse.",
    ),
    (
        "She asks about strings.",
        "Steel strings last about a year, gut some months. For Dvořák many like the warmth of gut.",
    ),
]


class Model:
    """What the agent says; the step that is held waits until the story lets it go."""

    def __init__(self) -> None:
        self.turns = -1
        self.held = HeldHere(say("Here I am again.", inner_thought="I was away for a moment."))

    def __call__(self, prompt: Prompt, _tools: ToolSpecs) -> Step:
        said, last = last_user_text(prompt), prompt[-1]
        if last.role != "user":
            return say("Noted. I will remember that.", inner_thought="It is stored; now I answer.")
        if said.startswith("My name is"):
            kept = {"section": "human", "content": "Name: Ada. Her cello is called Hugo."}
            thought = "A name, and a cello's name: that is worth keeping."
            return Call(
                "working_context_append",
                {"inner_thought": thought, **kept, "request_heartbeat": True},
            )
        if said.startswith("Keep"):
            thought = "Too long for the working context."
            kept = {"inner_thought": thought, "content": said}
            return Call("archival_memory_insert", {**kept, "request_heartbeat": True})
        if said.startswith("Take your time"):
            return self.held.begin()
        self.turns += 1
        thought, answer = ANSWERS[self.turns % len(ANSWERS)]
        return say(answer, inner_thought=thought)


@contextmanager
def server(folder: Path, model_url: str, database: OneDatabase, port: int) -> Iterator[str]:
    settings = servers.settings_for(
        model_url, database_url=database.owner, database_app_url=database.app
    )
    with servers.memserver(folder, settings, port=port) as process:
        yield process.url


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


def picture(page: Page, name: str, *, at: str = "") -> None:
    """A picture for the docs, where one is wanted, with a part of the page in its middle."""
    if "PICTURES" in os.environ:
        page.wait_for_timeout(6000)  # until nothing moves: a job may still evict
        if at:
            page.locator(at).evaluate("part => part.scrollIntoView({block: 'center'})")
        page.screenshot(path=Path(os.environ["PICTURES"]) / f"console-{name}.png")


def say_to(page: Page, text: str) -> None:
    before = page.locator(".turn").count()
    page.get_by_label("Message to sam").fill(text)
    page.get_by_label("Message to sam").press("Enter")
    expect(page.locator(".turn")).to_have_count(before + 1)
    expect(page.locator(".working, .approval").first).to_be_visible()
    expect(page.locator(".working")).to_have_count(0)


def open_tab(page: Page, name: str) -> None:
    page.locator(".tabs").get_by_text(name).click()


def test_the_whole_story(database: OneDatabase, browser: Browser, tmp_path: Path) -> None:
    model, port = Model(), servers.free_port()
    app = create_scripted_app(model, context_window=2048 + 192, summary="Ada told of her quartet.")
    with serving(app) as model_url, page_in(browser, accept_downloads=True) as (page, faults):
        page.on("dialog", lambda dialog: dialog.accept())
        with server(tmp_path, model_url, database, port) as url:
            talk(page, url)
            search_and_upload(page, browser)
            approve(page)
            copy_and_move(page, url, tmp_path)
            look_at_everything(browser, page.url)
            page.get_by_label("Message to sam").fill("Take your time.")
            page.get_by_label("Message to sam").press("Enter")
            assert model.held.reached.wait(60)
        # The server has gone, and comes again: the stream continues without a reload.
        model.held.reached.clear()
        with server(tmp_path, model_url, database, port):
            assert model.held.reached.wait(120)
            model.held.let_go()
            expect(page.get_by_text("Here I am again.").first).to_be_visible(timeout=60_000)
            expect(page.locator(".working")).to_have_count(0)
    gone = re.compile(
        r"object (Event|HTMLDivElement)|ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|503|sseError|sendError"
    )
    assert not [fault for fault in faults if not gone.search(fault)]


def talk(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_role("link", name="New agent").click()
    page.get_by_label("Name", exact=True).first.fill("sam")
    page.get_by_role("button", name="Create").click()
    for text in TALK:
        say_to(page, text)
    while not page.locator(".message.evicted").count():
        say_to(page, "And what would you change first?")
    expect(page.locator("#section-human")).to_contain_text("Hugo")
    expect(page.locator("#block-summary")).to_contain_text("Ada told of her quartet.")
    expect(page.locator(".message.evicted").first).to_be_attached()
    picture(page, "agent", at=".boundary")
    page.emulate_media(color_scheme="dark")
    picture(page, "agent-dark", at=".boundary")
    page.emulate_media(color_scheme="light")


def search_and_upload(page: Page, browser: Browser) -> None:
    open_tab(page, "Recall")
    page.get_by_role("searchbox").fill("quartet")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator("#side mark").first).to_be_visible()
    open_tab(page, "Archival")
    with page_in(browser) as (printing, _):
        printing.set_content("<h1>Care of a cello</h1><p>Gut strings last three months.</p>" * 9)
        content = printing.pdf()
    page.get_by_label("Files to upload").set_input_files(
        [{"name": "care.pdf", "mimeType": "application/pdf", "buffer": content}]
    )
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.locator("#documents .badge.good")).to_be_visible()
    page.get_by_role("searchbox").fill("gut strings")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator("#side mark").first).to_be_visible()
    picture(page, "archival")


def approve(page: Page) -> None:
    open_tab(page, "Tools")
    tool = page.locator("#side li", has_text="archival_memory_insert").first
    tool.get_by_text("Rules", exact=True).click()
    tool.get_by_label("A person has to approve").check()
    tool.get_by_role("button", name="Save rules").click()
    expect(page.locator("#side .badge.warn", has_text="approval")).to_be_visible()
    open_tab(page, "Memory")
    say_to(page, "Keep in mind: the luthier in the old town opens at ten.")
    picture(page, "approval")
    expect(page.get_by_role("button", name="Approve")).to_be_in_viewport()
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".turn").last).to_contain_text("Noted.")
    expect(page.locator(".working, .approval")).to_have_count(0)


def copy_and_move(page: Page, url: str, folder: Path) -> None:
    agent = page.url
    page.get_by_role("link", name="Settings").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export", exact=True).click()
    download.value.save_as(folder / "sam.zip")
    page.get_by_role("button", name="Fork").click()
    expect(page.locator("#section-human")).to_contain_text("Hugo")
    page.goto(f"{url}/console/agents")
    page.get_by_role("button", name="Import").click()
    page.get_by_label("File", exact=True).set_input_files(folder / "sam.zip")
    page.get_by_label(re.compile("^Name")).fill("samuel")
    page.locator("#import").get_by_role("button", name="Import").click()
    expect(page.get_by_role("heading", name="samuel is here")).to_be_visible()
    page.get_by_role("link", name="Open it").click()
    expect(page.locator("#section-human")).to_contain_text("Hugo")
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Delete samuel").click()
    page.get_by_label("Type its name").fill("samuel")
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_role("link", name="samuel")).to_have_count(0)
    page.goto(agent)


def look_at_everything(browser: Browser, agent: str) -> None:
    """Every page by axe, in light and dark, and on a phone, where nothing is wider than the screen."""
    agents = agent.rpartition("/")[0]
    tabs = [f"{agent}?tab={tab}" for tab in ("memory", "recall", "archival", "tools", "timers")]
    pages = [agents, f"{agents}/new", f"{agent}/settings", *tabs, f"{agent}/turns/1"]
    for scheme in ("light", "dark"):
        for size in (DESKTOP, PHONE):
            with page_in(browser, viewport=size, color_scheme=scheme, bypass_csp=True) as (
                page,
                _,
            ):
                for address in pages:
                    page.goto(address, wait_until="networkidle")
                    found = Axe().run(page)
                    serious = [
                        f"{each['id']}: {each['nodes'][0]['html'][:200]}"
                        for each in found.response["violations"]
                        if each["impact"] in {"serious", "critical"}
                    ]
                    assert not serious, (address, scheme, size)
                    wide = page.evaluate("document.documentElement.scrollWidth")
                    assert wide <= size["width"], address
                if size == PHONE and scheme == "light":
                    page.goto(agent, wait_until="networkidle")
                    picture(page, "phone")
