"""Agents and an agent's page, as a browser without scripts sees them."""

import re
from html import unescape
from itertools import chain, repeat

import httpx2
from fastapi.routing import APIRoute, iter_route_contexts

from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.browsing import Browser, visiting
from tests.support.server import OneDatabase, Server, serving

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}"
TABS = ("memory", "recall", "archival", "tools", "timers")


def check(page: httpx2.Response) -> str:
    """Its text, in which nothing that somebody wrote became a tag."""
    assert page.status_code == 200, page.text
    assert "<script>" not in page.text
    assert "<img src=x" not in page.text
    assert "\"'>" not in page.text  # no attribute was left
    return page.text


async def test_all_that_people_models_and_documents_write_is_shown_as_text(
    database: OneDatabase,
) -> None:
    arguments = {"section": "human", "content": EVIL, "inner_thought": EVIL}
    script = [
        Call("working_context_append", {**arguments, "request_heartbeat": True}),
        Call("archival_memory_insert", {"content": f"{EVIL} cello", "request_heartbeat": True}),
        Call("no_such_tool", {"x": EVIL, "request_heartbeat": True}),
        say(EVIL, thought=EVIL),
    ]
    async with serving(database, ScriptedModel(chain(script, repeat(say(EVIL))))) as server:
        browser = visiting(server.app)
        made = await server.http.post(
            "/v1/agents",
            json={
                "name": EVIL[:200],
                "model": EVIL,
                "system_prompt": EVIL,
                "metadata": {"x": EVIL},
                "sections": [{"name": "human", "text": "Ada", "description": EVIL}],
            },
        )
        agent = made.json()["id"]
        await server.http.post(
            "/v1/tools", json={"kind": "client", "name": "evil", "description": EVIL}
        )
        await server.http.post(
            f"/v1/agents/{agent}/documents",
            params={"name": f"{EVIL}.txt", "tags": [EVIL]},
            content=f"{EVIL} about a cello".encode(),
            headers={"Content-Type": "application/octet-stream"},
        )
        await server.run_jobs()
        await server.http.post(
            f"/v1/agents/{agent}/timers", json={"text": EVIL, "in_seconds": 9999}
        )
        await browser.open("/agents")
        said = await browser.send(f"/agents/{agent}/messages", text=f"{EVIL} cello")
        check(said)
        stream = await browser.open(f"/agents/{agent}/turns/1/stream")
        assert "event: done" in stream.text
        pages = [
            stream,
            *[await browser.open(f"/agents{rest}") for rest in ("", "/new", "?search=zzz" + EVIL)],
            *[
                await browser.open(f"/agents/{agent}{rest}")
                for rest in (
                    "",
                    "/settings",
                    "/sections/human",
                    "/sections/human/edit",
                    "/sections/human/history",
                    "/side/recall?query=cello",
                    "/side/archival?query=cello",
                    *(f"/side/{tab}" for tab in TABS),
                )
            ],
        ]
        await browser.http.aclose()
    texts = [check(page) for page in pages]
    shown = sum("alert(1)" in unescape(text) for text in texts)
    assert shown >= len(texts) - 1


async def test_no_form_of_the_console_is_taken_from_another_page_or_without_its_token(
    server: Server, browser: Browser
) -> None:
    agent = await server.create_agent(name="sam")
    await browser.open("/agents")
    token = browser.token
    ids = {"agent": agent, "section": "human", "name": "send_message", "action": "delete"}
    other = "00000000-0000-7000-8000-000000000000"
    paths = [
        re.sub(r"\{(\w+)\}", lambda found: ids.get(found[1], other), route.path)
        for route in iter_route_contexts(server.app.routes)
        if isinstance(route.route, APIRoute)
        and route.path.startswith("/console/")
        and "POST" in (route.methods or ())
    ]
    paths = [path.replace(f"turns/{other}", "turns/1") for path in paths]
    assert len(paths) > 20
    for path in paths:
        path = path.removeprefix("/console")
        browser.token = token
        foreign = await browser.send(path, headers={"Origin": "https://evil.example"})
        browser.token = ""
        without = await browser.send(path)
        for answer in (foreign, without):
            assert answer.status_code == 403, path
            assert "nothing was done" in answer.text, path
    assert (await server.get(agent))["name"] == "sam"


async def test_a_key_of_another_tenant_sees_nothing_and_changes_nothing(
    server: Server,
) -> None:
    await server.operate()
    agent = await server.create_agent(name="secret-agent")
    other = await server.create_tenant("acme")
    browser = visiting(server.app)
    await browser.sign_in(other["Authorization"].removeprefix("Bearer "))
    listed = await browser.open("/agents")
    assert "No agents yet" in listed.text
    for rest in ("", "/settings", "/export", *(f"/side/{tab}" for tab in TABS)):
        page = await browser.open(f"/agents/{agent}{rest}")
        assert page.status_code == 404, rest
        assert "secret-agent" not in page.text
    for rest in ("/messages", "/fork", "/duplicate", "/delete"):
        assert (await browser.send(f"/agents/{agent}{rest}", text="x")).status_code == 404
    await browser.http.aclose()


async def test_an_agent_is_made_changed_copied_and_deleted(
    server: Server, browser: Browser
) -> None:
    await browser.open("/agents/new")
    made = await browser.send(
        "/agents/new",
        name="sam",
        system_prompt="You are Sam.",
        max_steps="3",
        must_reply="false",
        section_name="notes",
        section_description="What counts.",
        section_text="Ada plays\r\nthe cello.",
    )
    assert made.status_code == 303, made.text
    agent = made.headers["location"].rpartition("/")[2]
    kept = await server.get(agent)
    assert kept["options"]["max_steps"] == 3
    assert kept["options"]["must_reply"] is False
    assert (await server.get(f"{agent}/working-context"))["sections"][0]["text"] == (
        "Ada plays\nthe cello."
    )
    wrong = await browser.send("/agents/new", name="sam")
    assert wrong.status_code == 409
    assert "sam" in wrong.text
    await browser.send(f"/agents/{agent}/settings", name="samuel", max_steps="", language="auto")
    assert (await server.get(agent))["name"] == "samuel"
    assert (await server.get(agent))["options"]["max_steps"] is None
    copied = await browser.send(f"/agents/{agent}/duplicate")
    forked = await browser.send(f"/agents/{agent}/fork")
    assert copied.status_code == forked.status_code == 303
    listed = await browser.open("/agents?search=SAMUEL")
    assert listed.text.count('class="row"') == 3
    exported = await browser.open(f"/agents/{agent}/export")
    imported = await browser.http.post(
        "/console/agents/import",
        data={"form_token": browser.token, "name": "again"},
        files={"file": ("sam.zip", exported.content)},
        headers={"Origin": "http://localhost"},
    )
    assert "again is here" in imported.text
    kept_back = await browser.send(f"/agents/{agent}/delete", name="sam")
    assert kept_back.status_code == 422
    gone = await browser.send(f"/agents/{agent}/delete", name="samuel")
    assert gone.headers["location"] == "/console/agents"
    assert (await browser.open(f"/agents/{agent}")).status_code == 404


async def test_a_section_is_edited_compared_undone_and_not_overwritten(
    server: Server, browser: Browser
) -> None:
    agent = await server.create_agent(sections=[{"name": "human", "text": "Name: Ada"}])
    form = await browser.open(f"/agents/{agent}/sections/human/edit")
    assert "Name: Ada</textarea>" in form.text
    await browser.open("/agents")
    at = f"/agents/{agent}/sections/human"
    saved = await browser.send(f"{at}/edit", text="Name: Ada Lovelace", version="1")
    assert "Name: Ada Lovelace" in saved.text
    assert saved.headers["hx-trigger"] == "memory-changed"
    history = await browser.open(f"{at}/history")
    assert "<ins> Lovelace</ins>" in history.text
    late = await browser.send(f"{at}/edit", text="Name: Bob", version="1")
    assert late.status_code == 409
    undone = await browser.send(f"{at}/undo", version="2")
    assert "Lovelace" not in undone.text
    restored = await browser.send(f"{at}/restore", version="2")
    assert "Lovelace" in restored.text
