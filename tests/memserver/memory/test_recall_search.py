"""Recall storage found again by its very text, by dates and roles, however much of it has been indexed."""

import random
from typing import Any

import psycopg
import pytest

from memserver.testing.scripted import Call, ScriptedModel, say
from tests.memserver.memory.histories import find, remember, remember_indexed, texts
from tests.support.server import OneDatabase, serving

LETTERS = "aAbB%_\\ ßẞİIiıée\u0301😀ΣσςЖж中"  # noqa: RUF001 - that is the point
SIMPLE = {"İ": "i"}
"""Where Unicode's simple lower case is not what Python gives, which may be several characters."""


def fold(text: str) -> str:
    return "".join(SIMPLE.get(letter, letter.lower()) for letter in text)


SHARES = pytest.mark.parametrize("share", [0, 0.6, 1])
"""Of the history that is indexed when it is searched."""


@SHARES
async def test_every_search_finds_what_reading_all_messages_finds(
    database: OneDatabase, share: float
) -> None:
    chance = random.Random(0)
    history = ["".join(chance.choices(LETTERS, k=chance.randint(1, 12))) for _ in range(2500)]
    terms = [
        "".join(chance.choices(LETTERS, k=length)) for length in (1, 2, 3, 4) for _ in range(9)
    ]
    terms += [chance.choice(history) for _ in range(12)]
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, history, share)
        for term in terms:
            for ignore_case in (False, True):
                same = fold if ignore_case else str
                right = [text for text in reversed(history) if same(term) in same(text)]
                found = await find(server, agent, query=term, ignore_case=ignore_case, limit=100)
                assert [item["text"] for item in found["items"]] == right[:100], term
                assert (found["total"], found["total_is_exact"]) == (len(right), True), term


@SHARES
async def test_what_case_means_beyond_ascii(database: OneDatabase, share: float) -> None:
    said = ["Straße", "STRASSE", "İstanbul", "ΟΔΟΣ", "caf\u00e9", "cafe\u0301", "👩‍👩‍👧"]
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, said, share)

        async def found(term: str) -> list[str]:
            return await texts(server, agent, query=term, ignore_case=True)

        assert await found("straße") == ["Straße"]  # ß is not ss
        assert await found("STRAẞE") == ["Straße"]
        assert await found("istanbul") == ["İstanbul"]
        assert await found("οδοσ") == ["ΟΔΟΣ"]
        assert await found("οδος") == []  # ς is a letter of its own
        assert await found("CAFÉ") == ["caf\u00e9"]
        assert await found("CAFE") == ["cafe\u0301"]  # an accent may be a character of its own
        assert await found("👧") == ["👩‍👩‍👧"]


async def test_a_page_that_does_not_exist_is_empty_with_its_count(
    database: OneDatabase,
) -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"query": "tea"},
        {"query": "TEA", "ignore_case": True},
        {"start_date": "2026-01-01", "end_date": "today"},
        {"role": "user"},
        {"query": "tea", "role": "user", "start_date": "2026-01-01"},
    ]
    async with serving(database, ScriptedModel()) as server:
        empty, full = await server.create_agent(), await server.create_agent()
        remember(server, full, [f"tea {number}" for number in range(24)])
        for kind in kinds:
            total = 12 if "role" in kind else 24
            for page in (0, -1, 4, 9999, 2**53, -(2**53)):
                found = await find(server, full, page=page, **kind)
                assert (found["items"], found["total"], found["next"]) == ([], total, None), kind
                nothing = await find(server, empty, page=page, **kind)
                assert (nothing["items"], nothing["total"], nothing["pages"]) == ([], 0, 1)
            last = await find(server, full, page=3 if total == 24 else 2, **kind)
            assert (len(last["items"]), last["next"]) == (total % 10, None)


@SHARES
async def test_dates_roles_and_text_narrow_each_other(database: OneDatabase, share: float) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        history = [f"{'tea' if n % 3 else 'milk'} {n}" for n in range(1, 31)]
        await remember_indexed(server, agent, history, share)
        noon = {"start_date": "2026-01-01T00:10", "end_date": "2026-01-01 00:20"}
        assert await texts(server, agent, query="tea", role="user", **noon) == [
            "tea 19",
            "tea 17",
            "tea 13",
            "tea 11",
        ]
        assert await texts(server, agent, role="user", **noon) == [
            "tea 11",
            "tea 13",
            "milk 15",
            "tea 17",
            "tea 19",
        ]
        assert await texts(server, agent, end_date="2026-01-01T00:02") == ["tea 1", "tea 2"]
        late = await find(server, agent, start_date="2026-01-01T00:29:00Z", end_date="9999-12-31")
        assert [item["text"] for item in late["items"]] == ["tea 29", "milk 30"]


async def test_following_the_cursor_sees_each_message_once_while_others_arrive(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel([say("More?")] * 9)) as server:
        agent = await server.create_agent()
        remember(server, agent, [f"tea {number}" for number in range(25)])
        page = await find(server, agent, query="tea", limit=7)
        seen = [item["text"] for item in page["items"]]
        while page["next"]:
            await server.say(agent, "tea, please")
            page = await find(server, agent, query="tea", limit=7, after=page["next"])
            assert (page["total"], page["page"], page["pages"]) == (None, None, None)
            seen += [item["text"] for item in page["items"]]
        oldest_first = await find(server, agent, role="user", limit=10)
        rest = await find(server, agent, role="user", limit=100, after=oldest_first["next"])
        history = await server.get(f"{agent}/messages", limit=20)
        await server.say(agent, "and again")
        older = await server.get(f"{agent}/messages", limit=100, after=history["next"])
    assert seen == [f"tea {number}" for number in reversed(range(25))]
    users = [item["text"] for item in oldest_first["items"] + rest["items"]]
    assert users == [f"tea {number}" for number in range(0, 25, 2)] + ["tea, please"] * 3
    positions = [item["position"] for item in history["items"] + older["items"]]
    assert positions == sorted(set(positions), reverse=True)
    assert len(positions) == 25 + 3 * 2


@pytest.mark.parametrize("cursor", ["x", "", "é", "AAAA", "MS4yLjM", "-" * 100])
async def test_what_is_no_cursor_is_refused(database: OneDatabase, cursor: str) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        answer = await server.http.get(
            f"/v1/agents/{agent}/recall/search", params={"after": cursor}
        )
    assert answer.status_code == 422
    assert "is no cursor" in answer.json()["error"]["message"]


async def test_a_term_may_be_long_but_not_empty(database: OneDatabase) -> None:
    long = "word " * 200
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        remember(server, agent, [f"<{long}>"] + ["filler"] * 3000)
        assert await texts(server, agent, query=long) == [f"<{long}>"]
        assert await texts(server, agent, query=long.upper(), ignore_case=True) == [f"<{long}>"]
        for term in ("", "\0", long + "x"):
            refused = await server.http.get(
                f"/v1/agents/{agent}/recall/search", params={"query": term}
            )
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_input")
        spaces = await find(server, agent, query=" ")
    assert spaces["total"] == 1


async def test_the_tools_count_right_and_say_when_they_stopped_counting(
    database: OneDatabase,
) -> None:
    again = {"request_heartbeat": True}
    calls = [
        Call("recall_memory_search", {"query": "rare", **again}),
        Call("recall_memory_search", {"query": "rare", "page": 13, **again}),
        Call("recall_memory_search_ignore_case", {"query": "RARE", "page": 14, **again}),
        Call("recall_memory_search_ignore_case", {"query": "COMMON", **again}),
        Call("recall_memory_search", {"query": "common", "page": 1006, **again}),
        Call(
            "recall_memory_search_date",
            {"start_date": "2026-01-01", "end_date": "2026-01-01T01:00", **again},
        ),
        Call("recall_memory_search_date", {"start_date": "soon", "end_date": "now", **again}),
        Call("recall_memory_search", {"query": " ", **again}),
    ]
    model = ScriptedModel([*calls, say("Done.")])
    async with serving(database, model, max_steps=20) as server:
        agent = await server.create_agent()
        history = ["common" + (" rare" if number < 124 else "") for number in range(10_055)]
        remember(server, agent, history)
        answer = await server.say(agent, "Search!")
    heads = [
        message["tool_call"]["result"].partition("\n")[0]
        for message in answer["messages"]
        if message["tool_call"]
    ]
    assert heads[:6] == [
        "Showing 10 of 124 results (page 1/13):",
        "Showing 4 of 124 results (page 13/13):",
        "Showing 0 of 124 results (page 14/13).",
        "Showing 10 of more than 10000 results (page 1):",
        "Showing 5 of 10055 results (page 1006/1006):",
        "Showing 10 of 60 results (page 1/6):",
    ]
    assert "'soon' is not a date. Write it as YYYY-MM-DD" in heads[6]
    assert "The query is empty" in heads[7]


async def test_the_total_of_all_messages_is_kept_and_not_counted(database: OneDatabase) -> None:
    past = [{"role": "user", "text": f"past {number}"} for number in range(600)]
    async with serving(database, ScriptedModel([say("Hello.")] * 2)) as server:
        agent, other = await server.create_agent(), await server.create_agent()
        await server.say(agent, "Hi!")
        await server.say(other, "Hi!")
        url = f"/v1/agents/{agent}/messages/import"
        assert (await server.http.post(url, json={"messages": past})).status_code == 200
        totals = [
            (await find(server, agent, **kind))["total"]
            for kind in ({}, {"role": "user"}, {"role": "assistant"})
        ]
        with psycopg.connect(server.database.owner) as owner:
            owner.execute("DELETE FROM messages WHERE content LIKE 'past 1%'")
        fewer = await find(server, agent, role="user")
        counted = server.rows(
            "SELECT count(*) FROM messages WHERE agent_id = %s AND role = 'user'", agent
        )
        gone = await server.http.delete(f"/v1/agents/{agent}")
        left = server.rows("SELECT agent_id::text, user_said, assistant_said FROM recall_counts")
    assert totals == [602, 601, 1]
    assert [(fewer["total"],)] == counted
    assert gone.status_code == 204
    assert left == [(other, 1, 1)]


async def test_another_tenants_messages_are_not_searched(database: OneDatabase) -> None:
    search = """SELECT positions, total FROM recall_search(%s, 'secret', false, NULL, NULL,
                    '{user,assistant}', NULL, true, NULL, NULL, 0, 10, 100)"""
    async with serving(database, ScriptedModel([say("I keep it.")])) as server:
        agent = await server.create_agent()
        await server.say(agent, "It is a secret.")
    found = {}
    with psycopg.connect(database.app) as connection:
        for tenant in ("default", "other", ""):
            connection.execute("SELECT set_config('memserver.tenant', %s, true)", [tenant])
            found[tenant] = connection.execute(search, [agent]).fetchone()
    assert found == {"default": ([1000], 1), "other": ([], 0), "": ([], 0)}


async def test_a_server_that_has_pg_trgm_searches_without_it_too(
    database_with_trigrams: OneDatabase,
) -> None:
    async with serving(database_with_trigrams, ScriptedModel()) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, ["My cello is called Hugo", "Hm", "hugo?"], 0.7)
        exact = await texts(server, agent, query="Hugo")
        any_case = await texts(server, agent, query="HUGO", ignore_case=True)
        left = server.rows("SELECT to_regclass('messages_trigrams')")
    assert exact == ["My cello is called Hugo"]
    assert any_case == ["hugo?", "My cello is called Hugo"]
    assert left == [(None,)]
