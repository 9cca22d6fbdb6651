"""Messages and passages expire, at a time of their own or by a rule, and nothing of them is left."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from memserver.cli.main import app
from memserver.storage.expiry import erase_expired
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.compacting import RESERVED, WINDOW, chat, talk_until_queued
from tests.support.erased import WORD, holding
from tests.support.server import OneDatabase, Server, serving

SOON = datetime.now(UTC) + timedelta(hours=1)
LATER = SOON + timedelta(minutes=1)


async def texts(server: Server, agent: str) -> list[str]:
    items = (await server.get(f"{agent}/messages", order="asc", limit=100))["items"]
    return [each["text"] for each in items]


async def import_past(server: Server, agent: str, *past: tuple[str, datetime]) -> None:
    messages = [{"role": "user", "text": text, "created_at": at.isoformat()} for text, at in past]
    url = f"/v1/agents/{agent}/messages/import"
    assert (await server.http.post(url, json={"messages": messages})).status_code == 200


async def passages(server: Server, agent: str, *new: dict[str, Any]) -> list[str]:
    answer = await server.http.post(f"/v1/agents/{agent}/archival", json={"passages": [*new]})
    assert answer.status_code == 201, answer.text
    return [each["id"] for each in answer.json()["items"]]


async def test_of_messages_and_passages_whose_time_has_come_nothing_is_left_anywhere(
    database: OneDatabase,
) -> None:
    spoken = [f"They spoke of the {WORD}."]
    model = ScriptedModel(chat, summary=lambda _: spoken[-1], context_window=WINDOW)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent(name="sam")
        await import_past(server, agent, (f"The {WORD} is in the barn.", datetime.now(UTC)))
        await talk_until_queued(server, agent)
        secret = {"text": f"A {WORD}.", "expires_at": SOON.isoformat()}
        [gone, other] = await passages(server, agent, secret, {"text": "Tea."})
        await server.run_jobs()
        assert {"messages", "summaries", "passages", "recall_blocks"} <= set(holding(database))
        url = f"/v1/agents/{agent}/messages/expire"
        body = {"positions": [1000], "expires_at": SOON.isoformat()}
        assert (await server.http.post(url, json=body)).json() == {"messages": 1}
        before = len(await texts(server, agent))
        assert await erase_expired(server.services.database, datetime.now(UTC)) == 0
        assert await erase_expired(server.services.database, LATER) == 2
        spoken.append("They spoke of tea.")
        await server.run_jobs()
        assert holding(database) == []
        assert len(await texts(server, agent)) == before - 1
        left = (await server.get(f"{agent}/archival"))["items"]
        assert [each["id"] for each in left] == [other]
        assert (await server.get(f"{agent}/context"))["parts"]
        assert (await server.say(agent, "Hello."))["text"] == "I see."
        assert gone not in str(left)


async def test_what_a_tenant_or_an_agent_keeps_for_so_many_days_is_erased_when_it_is_older(
    database: OneDatabase,
) -> None:
    now = datetime.now(UTC)
    old, older = now - timedelta(days=20), now - timedelta(days=40)
    async with serving(database, ScriptedModel(chat)) as server:
        await server.operate()
        theirs = await server.create_tenant("other")
        mine = await server.create_agent(name="long")
        short = await server.create_agent(name="short", options={"retention_days": 10})
        answer = await server.http.post("/v1/agents", json={"name": "x"}, headers=theirs)
        far = answer.json()["id"]
        for agent in (mine, short):
            await import_past(server, agent, ("older", older), ("old", old), ("new", now))
            past = ({"text": str(at.day), "created_at": at.isoformat()} for at in (older, old, now))
            await passages(server, agent, *past)
        body = {"messages": [{"role": "user", "text": "x", "created_at": older.isoformat()}]}
        await server.http.post(f"/v1/agents/{far}/messages/import", json=body, headers=theirs)
        refused = await server.http.patch(
            "/v1/tenants/default", json={"retention_days": 30}, headers=theirs
        )
        assert refused.status_code == 404
        answer = await server.http.patch("/v1/tenants/default", json={"retention_days": 30})
        assert answer.json()["retention_days"] == 30
        assert await erase_expired(server.services.database, now) == 6
        assert await texts(server, mine) == ["old", "new"]
        assert await texts(server, short) == ["new"]
        for agent, count in ((mine, 2), (short, 1)):
            assert len((await server.get(f"{agent}/archival"))["items"]) == count
        answer = await server.http.patch("/v1/tenants/default", json={"retention_days": None})
        assert answer.json()["retention_days"] is None
        kept = await server.http.get(f"/v1/agents/{far}/messages", headers=theirs)
        assert len(kept.json()["items"]) == 1


async def test_what_is_sent_with_a_time_expires_with_all_that_its_turn_adds_and_moves_with_it(
    database: OneDatabase,
) -> None:
    first = Call("archival_memory_search", {"query": "tea", "request_heartbeat": True})
    rest = [say(each) for each in ("Mint.", "Hi.", "Yes.", "No.", "I see.", "I see.")]
    at = SOON.isoformat()
    async with serving(database, ScriptedModel([first, *rest])) as server:
        agent = await server.create_agent(name="sam")
        url = f"/v1/agents/{agent}"
        sent = {"text": "Which tea?", "expires_at": at}
        answer = (await server.http.post(f"{url}/messages", json=sent)).json()
        assert [datetime.fromisoformat(each["expires_at"]) for each in answer["messages"]] == [
            SOON,
            SOON,
        ]
        await server.http.post(f"{url}/events", json={"type": "login", "expires_at": at})
        stream = await server.http.post(f"{url}/messages", json={**sent, "stream": True})
        assert f'"expires_at":"{SOON:%Y-%m-%dT%H:%M:%S}' in stream.text
        asked = {"model": "sam", "messages": [{"role": "user", "content": "And milk?"}]}
        header = {"X-Memserver-Expires-At": at}
        await server.http.post("/v1/chat/completions", json=asked, headers=header)
        past = [
            {"role": "user", "text": "Old.", "expires_at": at},
            {"role": "user", "text": "Kept."},
        ]
        await server.http.post(f"{url}/messages/import", json={"messages": past})
        await server.say(agent, "Hello.")
        file = (await server.http.get(f"{url}/export")).content
        copy = await server.http.post("/v1/agents/import?name=copy", content=file)
        for each in (agent, copy.json()["agent"]["id"]):
            found = (await server.get(f"{each}/messages", order="asc", limit=100))["items"]
            kept = [message["text"] for message in found if message["expires_at"] is None]
            assert (len(found), kept) == (13, ["Kept.", "Hello.", "I see."])
        assert await erase_expired(server.services.database, LATER) == 20
        for each in (agent, copy.json()["agent"]["id"]):
            assert await texts(server, each) == kept
        assert (await server.say(agent, "Hello."))["text"] == "I see."


async def test_a_time_of_a_passage_or_a_message_can_be_taken_back(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(chat)) as server:
        agent = await server.create_agent(name="sam")
        await server.say(agent, "Hello.")
        [passage] = await passages(server, agent, {"text": "Tea.", "expires_at": SOON.isoformat()})
        [stored] = (await server.get(f"{agent}/archival"))["items"]
        assert datetime.fromisoformat(stored["expires_at"]) == SOON
        collection = stored["collection_id"]
        url = f"/v1/agents/{agent}/messages/expire"
        for at in (SOON.isoformat(), None):
            done = await server.http.post(url, json={"turns": [1], "expires_at": at})
            assert done.json() == {"messages": 2}
            changed = await server.http.patch(
                f"/v1/collections/{collection}/passages/{passage}", json={"expires_at": at}
            )
            assert changed.status_code == 200, changed.text
        assert await erase_expired(server.services.database, LATER) == 0
        missing = await server.http.post(url, json={"turns": [7], "expires_at": None})
        assert missing.status_code == 404


def test_the_command_says_for_how_long_a_tenant_keeps_anything(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMSERVER_DATABASE_URL", database.owner)
    monkeypatch.setenv("MEMSERVER_DATABASE_APP_URL", database.app)
    for arguments, days in ((["default", "30"], 30), (["default"], None)):
        done = CliRunner().invoke(app, ["tenants", "retention", *arguments])
        assert done.exit_code == 0, done.output
        with psycopg.connect(database.superuser) as connection:
            found = connection.execute("SELECT retention_days FROM tenants").fetchall()
        assert found == [(days,)]
