"""One search of recall storage finds by the very text, by words in any order and form, and by meaning."""

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from typing_extensions import override

from memserver.embeddings.base import Vector
from memserver.errors import EmbeddingError
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.memserver.memory.histories import remember, remember_indexed
from tests.support.server import OneDatabase, Server, serving


class Pets(HashingEmbedder):
    """Texts of animals, and of whom, mean the same, and no other text does."""

    def __init__(self, *, away: bool = False) -> None:
        super().__init__(4, model="pets")
        self.away = away

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if self.away:
            raise EmbeddingError("The embedder is away.")
        animals = ("dog", "puppy", "hound", "pet", "whom")
        return [
            [1.0, 0.0, 0.0, 0.1]
            if any(animal in text.lower() for animal in animals)
            else [0.0, 1.0, len(text) % 7 / 10, 0.1]
            for text in texts
        ]


async def search(server: Server, agent: str, query: str, **more: Any) -> dict[str, Any]:
    return await server.get(f"{agent}/recall/search", query=query, **more)


async def found(server: Server, agent: str, query: str, **more: Any) -> list[tuple[str, str]]:
    items = (await search(server, agent, query, **more))["items"]
    return [(item["text"], "+".join(item["found_by"])) for item in items]


async def test_the_very_text_comes_first_then_words_and_meaning_together(
    database: OneDatabase,
) -> None:
    history = [
        "A hound needs a walk every morning.",
        "I walked the dog in the park.",
        "Let us walk the dog, then.",
        "We parked the car and walked.",
        "Bread is in the oven.",
        "You should walk the dog.",
    ]
    async with serving(database, ScriptedModel(), embedder=Pets()) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, history)
        page = await search(server, agent, "walk the dog")
        by = [(item["text"], item["found_by"]) for item in page["items"]]
        second = await found(server, agent, "walk the dog", limit=2, page=2)
        none = await search(server, agent, "walk the dog", limit=2, page=9)
        with_words = await found(server, agent, "walk the dog", mode="words")
        with_meaning = await found(server, agent, "walk the dog", mode="meaning", limit=4)
    assert by[:4] == [
        (history[5], ["exact"]),
        (history[2], ["exact"]),
        (history[1], ["words", "meaning"]),
        (history[0], ["words", "meaning"]),
    ]
    assert (history[3], ["words", "meaning"]) in by
    assert page["total"] == len(page["items"]) == 6
    assert page["coverage"] == {"embedded": 6, "messages": 6, "complete": True}
    assert [text for text, _ in second] == [text for text, _ in by[2:4]]
    assert (none["items"], none["total"], none["pages"]) == ([], 6, 3)
    assert {text for text, _ in with_words} == {*history[:4], history[5]}
    assert {text for text, _ in with_meaning} == {*history[:3], history[5]}


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("My daughters were running in the Prater.", "daughter runs"),
        ("The café by the Müller house is open.", "cafe Muller"),
        ("Straße 9 ist gesperrt.", "STRASSE gesperrt"),
        ("昨天和妹妹去西湖玩了一整天", "西湖什么时候去的"),
        ("부산 해운대에서 서핑을 했어요", "해운대 서핑"),
        ("เมื่อวานฉันไปเที่ยวเชียงใหม่", "ไปเชียงใหม่เมื่อไหร่"),
        ("Nun\u0303ez called", "Nu\u00f1ez"),
    ],
)
async def test_words_are_found_in_any_order_form_and_language(
    database: OneDatabase, said: str, asked: str
) -> None:
    others = ["The weather is fine today.", "Ich backe Brot.", "今天天气很好", "오늘 날씨가 좋다"]
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, [*others[:2], said, *others[2:]])
        [first, *_] = await found(server, agent, asked, mode="words")
    assert first == (said, "words")


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("When did the old hound swallow a button on our trip?", "My puppy ate one at sea."),
        ("Who fell into the canal in Ghent?", "Marit fell into the canal in Ghent, of all things."),
        (
            "Did our pet end up in the canal in Ghent?",
            "Marit fell into the canal in Ghent, of all things.",
        ),
    ],
)
async def test_a_common_word_is_less_than_the_meaning_and_most_words_of_a_question_are_more(
    database: OneDatabase, asked: str, first: str
) -> None:
    history = [
        "We packed for the trip.",
        "A trip it was.",
        "My puppy ate one at sea.",
        "The trip was long.",
        "Marit fell into the canal in Ghent, of all things.",
        "Good trip, then.",
    ]
    async with serving(database, ScriptedModel(), embedder=Pets()) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, history)
        [(best, _), *_] = await found(server, agent, asked)
    assert best == first


async def test_a_word_that_half_of_the_messages_hold_is_less_than_the_meaning(
    database: OneDatabase,
) -> None:
    trips = [f"On trip {number} it rained." for number in range(30)]
    others = [f"Loaf {number} is in the oven." for number in range(30)]
    async with serving(database, ScriptedModel(), embedder=Pets()) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, [*trips, "My puppy ate one at sea.", *others])
        [(best, _), (second, _), *_] = await found(server, agent, "With whom was the trip?")
        [(rare, _), *_] = await found(server, agent, "With whom was trip 17?")
    assert best == "My puppy ate one at sea."
    assert second in trips
    assert rare == trips[17]


@pytest.mark.parametrize("share", [0, 0.5])
async def test_what_was_just_said_is_found_by_its_words_before_it_is_indexed(
    database: OneDatabase, share: float
) -> None:
    history = ["I bake bread.", "Good.", "My daughters run in the Prater.", "Nice!"]
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, history, share)
        just_said = await found(server, agent, "DAUGHTER running")
        early = await found(server, agent, "daughter", end_date="2026-01-01T00:02")
        theirs = await found(server, agent, "a daughter", role="user", mode="words")
    assert just_said[0][0] == history[2]
    assert history[2] not in dict(early)
    assert theirs == [(history[2], "words")]


async def test_dates_and_roles_narrow_words_and_meaning_too(database: OneDatabase) -> None:
    history = [f"The dog of number {number} barks" for number in range(1, 41)]
    async with serving(database, ScriptedModel(), embedder=Pets()) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, history)
        noon = {"start_date": "2026-01-01T00:10", "end_date": "2026-01-01 00:13"}
        for query in ("barking dogs", "puppy"):
            early = await found(server, agent, query, **noon)
            users = await found(server, agent, query, role="user", **noon)
            assert {text for text, _ in early} == set(history[9:13]), query
            assert {text for text, _ in users} == {history[10], history[12]}, query
        both = await found(server, agent, "number 11", **noon)
    assert both[0] == (history[10], "exact")
    assert {text for text, _ in both[1:]} == {history[9], history[11], history[12]}


async def test_without_the_embedder_text_and_words_are_found(database: OneDatabase) -> None:
    embedder = Pets()
    async with serving(database, ScriptedModel(), embedder=embedder) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, ["The dog barks.", "Dogs were barking."])
        embedder.away = True
        by = await found(server, agent, "dog barks")
        alone = await server.http.get(
            f"/v1/agents/{agent}/recall/search", params={"query": "dog", "mode": "meaning"}
        )
    assert by == [("The dog barks.", "exact"), ("Dogs were barking.", "words")]
    assert (alone.status_code, alone.json()["error"]["code"]) == (503, "embedding_error")


async def test_where_many_hold_the_very_text_these_alone_are_found_and_all_can_be_paged(
    database: OneDatabase,
) -> None:
    again = {"request_heartbeat": True}
    calls = [
        Call("recall_memory_search", {"query": "tea", **again}),
        Call("recall_memory_search", {"query": "tea", "page": 35, **again}),
        Call("recall_memory_search", {"query": "tea at", **again}),
    ]
    async with serving(database, ScriptedModel([*calls, say("Done.")]), max_steps=9) as server:
        agent = await server.create_agent()
        history = [f"tea{' at four' if n < 120 else ''} {n}" for n in range(342)] + ["teas", "milk"]
        await remember_indexed(server, agent, history)
        many = await search(server, agent, "tea", page=12)
        last = await search(server, agent, "tea", page=35)
        answer = await server.say(agent, "Search!")
    heads = [
        message["tool_call"]["result"].partition("\n")[0]
        for message in answer["messages"]
        if message["tool_call"]
    ]
    assert (many["total"], many["total_is_exact"]) == (300, False)
    assert [item["text"] for item in many["items"]] == [f"tea {n}" for n in range(232, 222, -1)]
    assert [item["text"] for item in last["items"]] == [f"tea at four {n}" for n in (2, 1, 0)]
    assert last["total_is_exact"]
    assert heads[:3] == [
        "Showing 10 of more than 300 results (page 1):",
        "Showing 3 of 343 results (page 35/35):",
        "Showing 10 of 120 results (page 1/12):",
    ]


async def test_in_a_long_history_rare_words_find_and_common_ones_order(
    database: OneDatabase,
) -> None:
    history = [f"We spoke about the weather of day {n} again" for n in range(3000)]
    history[::200] = ["We spoke about the picnic"] * 15
    history[700] = "Speaking of weather: Hugo is a cello"
    history[1500] = "The cellos were loud"
    async with serving(database, ScriptedModel(), embed_messages=False) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, history)
        common = server.rows("SELECT word FROM message_word_shares ORDER BY word")
        rare = await search(server, agent, "which cello, in what weather?", mode="words")
        only_common = await search(server, agent, "weather day", mode="words")
        a_day = await found(
            server, agent, "the weathers", end_date="2026-01-01T00:03", mode="words"
        )
    assert {word for (word,) in common} >= {"weather", "day", "spoke", "picnic"}
    assert "cello" not in {word for (word,) in common}
    assert {item["text"] for item in rare["items"]} == {history[700], history[1500]}
    assert len(only_common["items"]) == 10
    assert {text for text, _ in a_day} == set(history[1:3])


async def test_of_another_tenants_messages_no_words_are_found(database: OneDatabase) -> None:
    words = """SELECT count(*) > 0 FROM weigh_messages(
        %s, 'secret', NULL, NULL, '{user,assistant}', NULL, 10, 100)"""
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, ["It is a secret."])
    for tenant, sees in (("default", True), ("other", False), ("", False)):
        with psycopg.connect(database.app) as connection:
            connection.execute("SELECT set_config('memserver.tenant', %s, true)", [tenant])
            assert connection.execute(words, [agent]).fetchone() == (sees,), tenant


async def test_many_turns_of_many_agents_are_indexed_by_one_job(database: OneDatabase) -> None:
    queued = "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'index_messages'"
    async with serving(database, ScriptedModel([say("Hm.")] * 6)) as server:
        agents = [await server.create_agent() for _ in range(3)]
        for agent in agents * 2:
            await server.say(agent, f"I like {agent[-4:]}.")
        before = server.rows(queued)
        await server.run_jobs()
        waiting = server.rows("SELECT count(*) FROM recall_index WHERE waiting")
        everything = [await search(server, agent, "Hm", mode="meaning") for agent in agents]
    assert before == [(1,)]
    assert waiting == [(0,)]
    assert [page["coverage"]["embedded"] for page in everything] == [4, 4, 4]


async def test_a_job_that_has_failed_for_good_is_followed_by_another_after_the_next_turn(
    database: OneDatabase,
) -> None:
    embedder = Pets(away=True)
    async with serving(database, ScriptedModel([say("Fine.")] * 2), embedder=embedder) as server:
        agent = await server.create_agent()
        await server.say(agent, "The dog is well.")
        await server.run_jobs()
        by_words = await found(server, agent, "dogs", mode="words")
        embedder.away = False
        await server.say(agent, "And the puppy?")
        await server.run_jobs()
        page = await search(server, agent, "pet", mode="meaning")
    assert by_words == [("The dog is well.", "words")]
    assert page["coverage"] == {"embedded": 4, "messages": 4, "complete": True}


async def test_a_history_out_of_order_is_found_newest_first_all_the_same(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        remember(server, agent, [f"tea {n}" for n in range(400)])
        with psycopg.connect(server.database.owner) as owner:
            owner.execute(
                "UPDATE messages SET created_at = created_at - interval '1 day' WHERE position > 250000"
            )
        await server.run_jobs()
        pages = [await search(server, agent, "tea", page=page) for page in (1, 30)]
    assert [item["text"] for item in pages[0]["items"]] == [f"tea {n}" for n in range(249, 239, -1)]
    assert [item["text"] for item in pages[1]["items"]] == [f"tea {n}" for n in range(359, 349, -1)]
