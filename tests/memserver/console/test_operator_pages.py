"""The lens, and the operator's pages: load, models, runs, keys and tenants."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from memserver.console.lens import read_request
from memserver.testing.scripted import ScriptedModel, say
from tests.support.browsing import Browser, visiting
from tests.support.server import OneDatabase, Server, serving

EVIL = "<script>alert(1)</script>"
INLINE = re.compile(r"<script>|<script (?!defer src=)|\sstyle=|\son[a-z]+=|javascript:")
KEY = re.compile(r"msk_\w{20,}")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    def write(run: str, **files: Any) -> None:
        folder = tmp_path / "results" / run
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_text(json.dumps(content), encoding="utf-8")

    def scores(mean: float) -> dict[str, Any]:
        f1 = {"mean": mean, "low": mean - 0.05, "high": mean + 0.05, "count": 20}
        return {"main_score": "f1", "systems": {f"memserver {EVIL}": {"scores": {"f1": f1}}}}

    write("before", manifest__json={"about": EVIL}, results__json=scores(0.4))
    write("after", manifest__json={"about": EVIL}, results__json=scores(0.6))
    row = {"policy": "actor", "scores": {"success": {"mean": 0.31, "low": 0.2, "high": 0.4}}}
    write(
        "colbench", results__json={"tables": [{"split": "test", "mode": "greedy", "rows": [row]}]}
    )
    write("actor", metrics__jsonl={"step": 1, f"loss {EVIL}": 0.5}, training__json={"base": EVIL})
    return tmp_path / "results"


@pytest.fixture
async def server(database: OneDatabase, results: Path) -> AsyncIterator[Server]:
    model = ScriptedModel(lambda *_: say(f"Hello! {EVIL}"))
    async with serving(database, model, results_dir=results) as made:
        yield made


def shown(page: httpx2.Response, status: int = 200) -> str:
    assert page.status_code == status, page.text
    assert not INLINE.search(page.text), INLINE.search(page.text)
    assert len(page.content) < 150_000
    assert page.headers["referrer-policy"] == "same-origin"  # else no form would be taken
    return page.text


async def test_the_lens_shows_a_step_and_its_prompt_once_that_is_stored(
    server: Server, browser: Browser
) -> None:
    agent = await server.create_agent(name=EVIL, options={"max_steps": 3})
    await server.say(agent, f"Hi. {EVIL}")
    before = shown(await browser.open(f"/agents/{agent}/turns/1"))
    switched = await browser.send(f"/agents/{agent}/trace", turn="1", trace="on")
    await server.say(agent, "And again.")
    after = shown(await browser.open(f"/agents/{agent}/turns/2"))
    failed = shown(await browser.open(f"/agents/{agent}/turns/7"), 404)
    options = (await server.get(agent))["options"]
    assert "Store prompts from now on" in before
    assert "was sent it" not in before
    assert 'class="c-instructions"' in before
    assert switched.headers["location"].endswith(f"/agents/{agent}/turns/1")
    assert (options["max_steps"], options["trace"]) == (3, True)
    assert "was sent it" in after
    assert "And again." in after
    assert f"/agents/{agent}/turns/1" in after
    assert "The agent has no turn 7." in failed


async def test_the_operator_sees_load_models_and_runs_and_another_tenant_none_of_it(
    server: Server, browser: Browser
) -> None:
    await server.operate()
    await browser.sign_in(server.http.headers["authorization"].removeprefix("Bearer "))
    await server.say(await server.create_agent(name="sam"), "Hi.")
    load = shown(await browser.open("/operations"))
    part = shown(await browser.open("/operations?minutes=15", **{"HX-Request": "true"}))
    runs = shown(await browser.open("/runs"))
    compared = shown(await browser.open("/runs/show?name=before&name=after"))
    training = shown(await browser.open("/runs/show?name=actor"))
    policies = shown(await browser.open("/runs/show?name=colbench"))
    mixed = shown(await browser.open("/runs/show?name=actor&name=after"), 422)
    nothing = await browser.open("/models")  # a scripted model has no endpoint
    acme = await server.create_tenant("acme")
    await browser.sign_in(acme["Authorization"].removeprefix("Bearer "))
    refused = [
        await browser.open(path)
        for path in ("/operations", "/models", "/runs", "/runs/show?name=actor")
    ]
    assert "1 steps" in load
    assert "<html" not in part
    assert "Where the time of a step goes" in part
    assert all(name in runs for name in ("before", "after", "actor"))
    assert "+0.200" in compared
    assert "apart" in compared
    assert "<polyline" in training
    assert "success (test, greedy)" in policies
    assert "0.310" in policies
    assert "nothing to compare" in mixed
    assert nothing.status_code == 404
    for page in refused:
        assert "server&#39;s operator" in shown(page, 403)


async def test_a_key_is_shown_once_and_revoked_and_tenants_see_their_own_alone(
    server: Server, browser: Browser
) -> None:
    await browser.open("/keys")
    made = await browser.send("/keys", name=EVIL, scope=["read", "admin"], expires="2099-12-24")
    secret = KEY.search(shown(made))
    assert secret is not None
    listed = shown(await browser.open("/keys"))
    tenant = await browser.send("/tenants", tenant="acme")
    theirs = shown(await browser.open("/keys?tenant=acme"))
    await browser.send("/keys", name="for acme", tenant="acme", scope="admin")
    wrong = shown(await browser.send("/keys", name="x", expires="soon"), 422)
    server.http.headers["authorization"] = f"Bearer {secret[0]}"
    [key] = (await server.http.get("/v1/keys", params={"tenant": "acme"})).json()["items"]
    revoked = await browser.send(f"/keys/{key['id']}/revoke", tenant="acme")
    after = shown(await browser.open("/keys?tenant=acme"))
    assert made.headers["cache-control"] == "no-store"
    assert "signed in with this one" in made.text
    assert not KEY.search(listed)
    assert "admin, read" in listed
    assert tenant.headers["location"].endswith("/keys?tenant=acme")
    assert "No keys yet" in theirs
    assert "is no date" in wrong
    assert revoked.status_code == 303
    assert "revoked" in after


def test_a_prompt_is_read_in_every_form_that_endpoints_want() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    read = read_request(
        {
            "model": "m",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Look."}, picture]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
            ],
            "tools": [{"type": "function", "function": {"name": "f"}}],
        }
    )
    first, second = read.messages
    assert first.text == "Look.\n[a picture, 26 characters as sent]"
    assert (second.text, second.preview, "tool_calls" in second.rest) == ("", "f {}", True)
    assert [name for name, _ in read.tools] == ["f"]
    assert json.loads(read.rest) == {"model": "m"}


async def test_every_page_of_the_navigation_has_something_to_say_on_an_empty_server(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        browser = visiting(server.app)
        async with browser.http:
            first = await browser.open("/agents")
            nav = first.text[first.text.index("<nav") : first.text.index("</nav>")]
            paths = re.findall(r'href="/console(/[^"]+)"', nav)
            assert len(paths) >= 5
            for path in paths:
                page = await browser.open(path)
                # a scripted model in the server's process has no endpoint that /models could show
                assert page.status_code == (404 if path == "/models" else 200), path
                assert "<h1" in page.text, path
