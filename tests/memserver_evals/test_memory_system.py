"""memserver as a system of an evaluation: over HTTP, on a real database, each prompt kept by a proxy."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memserver.client import AsyncClient
from memserver.client.failures import error_of
from memserver.errors import MemserverError, ModelUnavailable
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, Rule, Step, say
from memserver.testing.scripted_rules import last_user_text
from memserver_evals.runs.searches import Searches, count_searches
from memserver_evals.systems.failing import failed_reply
from memserver_evals.systems.memory import MemorySystem, OracleSystem
from memserver_evals.systems.oracle import searches_made
from memserver_evals.systems.recording import Recorder
from memserver_evals.task import (
    Document,
    Library,
    Material,
    Played,
    Reply,
    Search,
    Session,
    Turn,
    Utterance,
)
from tests.memserver_evals.memories import memory
from tests.support.server import OneDatabase

BEGAN = datetime(2021, 5, 3, 9, 0, tzinfo=UTC)
ASKED = BEGAN + timedelta(days=30)
SESSIONS = (
    Session(
        BEGAN,
        (
            Utterance("user", "I have a cat named Tom.", BEGAN, "Ada", "s1.1"),
            Utterance("assistant", "What a nice name!", BEGAN, "Bob", "s1.2"),
        ),
    ),
    Session(
        BEGAN + timedelta(days=2),
        (Utterance("user", "I moved to Bergen.", BEGAN + timedelta(days=2), "Ada", "s2.1"),),
    ),
)
LIBRARY = Library(
    "harbours",
    (Document("d1", "Its harbour is deep.", "Bergen"), Document("d2", "It has no harbour.", "Ulm")),
)


def searching(tool: str, query: str, page: int = 1) -> Rule:
    """Searches once, and then says what came of it."""

    def rule(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        if prompt[-1].role == "tool":
            return say(prompt[-1].text, inner_thought="I tell.")
        arguments = {"query": query, "page": page, "request_heartbeat": True, "inner_thought": "?"}
        return Call(tool, arguments)

    return rule


async def test_sessions_are_history_with_their_own_times_and_agents_go_with_their_example(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = searching("recall_memory_search", "cat")
    async with memory(rule, database, monkeypatch, tmp_path) as system:
        material = Material(SESSIONS, instructions="Say where.", persona="I am Bob.")
        async with system.begin("e1", material) as conversation:
            reply = await conversation.say("What is my cat's name?", at=ASKED)
            [agent] = (await system.client.agents.list()).items
            assert agent.metadata == {"example": "e1"}
        assert not (await system.client.agents.list()).items
    assert "[m1000, 2021-05-03 09:00, exact] user: Ada: I have a cat named Tom." in reply.text
    assert (reply.found[0].kind, reply.found[0].id) == ("utterance", "s1.1")
    assert reply.page_characters == len(reply.text.removeprefix("OK. "))
    assert len(reply.exchanges) == 2
    reported = str(reply.exchanges[0].prompt)
    for text in (
        "I am Bob.",
        "Say where.",
        "[2021-05-05 09:00] Ada: I moved to Bergen.",
        "[2021-06-02",
    ):
        assert text in reported
    assert str(datetime.now(UTC).year) not in reported
    assert reply.tokens_in == sum(each.tokens_in for each in reply.exchanges) > 0
    assert reply.tokens_out > 0
    assert "[result of recall_memory_search]" in str(reply.exchanges[1].prompt)


async def test_documents_are_found_by_their_ids_and_stored_once(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = searching("archival_memory_search", "harbour Bergen")
    async with memory(rule, database, monkeypatch, tmp_path) as system:
        for example in ("e1", "e2"):
            async with system.begin(example, Material(library=LIBRARY)) as conversation:
                reply = await conversation.say("How deep is it?")
            assert (reply.found[0].kind, reply.found[0].id) == ("document", "d1")
        [collection] = (await system.client.collections.list()).items
        assert collection.passage_count == 2
        again = MemorySystem(system.client)
        async with again.begin("e3", Material(library=LIBRARY)):
            pass
        assert len((await system.client.collections.list()).items) == 1


async def test_every_search_is_kept_with_what_it_found_also_one_that_failed(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [("cat", 1), ("dog", 1), ("cat", -1)]

    def three_times(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        made = len(searches_made(prompt))
        if made == len(wanted):
            return say("Tom.", inner_thought="I know.")
        query, page = wanted[made]
        return searching("recall_memory_search_ignore_case", query, page)(prompt[:1], tools)

    async with (
        memory(three_times, database, monkeypatch, tmp_path) as system,
        system.begin("e1", Material(SESSIONS)) as conversation,
    ):
        reply = await conversation.say("What is its name?", at=ASKED)
    assert reply.searches == (Search("cat", ("s1.1",)), Search("dog"), Search("cat"))


async def test_a_search_that_the_server_made_is_kept_apart_from_those_of_the_agent(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [
        Utterance("user", f"{'filler ' * 60}{number}", BEGAN + timedelta(days=3, minutes=number))
        for number in range(60)
    ]
    sessions = (*SESSIONS, Session(BEGAN + timedelta(days=3), tuple(old)))

    def searches_too(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        if any(made.call.arguments.get("query") == "dog" for made in searches_made(prompt)):
            return say("Tom.", inner_thought="I know.")
        return searching("recall_memory_search_ignore_case", "dog")(prompt[:1], tools)

    options = {"auto_recall": True, "context_window": 2048}
    async with (
        memory(searches_too, database, monkeypatch, tmp_path, options=options) as system,
        system.begin("e1", Material(sessions)) as conversation,
    ):
        reply = await conversation.say("What is the cat named?", at=ASKED)
    assert reply.searches is not None
    by_server, own = reply.searches
    assert (by_server.query, by_server.auto) == ("What is the cat named?", True)
    assert "s1.1" in by_server.found
    assert own == Search("dog")
    played = Played((Turn("?", reply),))
    assert count_searches(played, frozenset({"s1.1"})) == Searches(1, 0, 1, 1)


async def test_only_who_has_documents_in_a_storage_is_asked_to_search_there(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = searching("archival_memory_search", "harbour")
    reported = {"instructions": "Answer briefly.", "look_up": "Keep searching your storage."}
    async with memory(rule, database, monkeypatch, tmp_path) as system:
        async with system.begin("e1", Material(library=LIBRARY, **reported)) as conversation:
            with_documents = await conversation.say("Where?")
        async with system.begin("e2", Material(SESSIONS, **reported)) as conversation:
            without = await conversation.say("Where?", at=ASKED)
    assert "Answer briefly. Keep searching your storage." in str(with_documents.exchanges[0].prompt)
    assert "Answer briefly." in str(without.exchanges[0].prompt)
    assert "Keep searching" not in str(without.exchanges[0].prompt)


async def test_an_example_s_own_documents_go_with_it(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = searching("archival_memory_search", "harbour")
    own = Library(LIBRARY.name, LIBRARY.documents, shared=False)
    async with memory(rule, database, monkeypatch, tmp_path) as system:
        async with system.begin("e1", Material(library=own)) as conversation:
            reply = await conversation.say("Where?")
        assert {each.id for each in reply.found} == {"d1", "d2"}
        assert not (await system.client.collections.list()).items


async def test_in_the_mode_act_the_agent_takes_part_in_every_turn(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keeps(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        said = last_user_text(prompt)
        if prompt[-1].role == "tool" or said.endswith("?"):
            return say(f"I know: {prompt[0].text.rpartition('Tom')[1]}", inner_thought="I tell.")
        arguments = {"section": "human", "content": said, "request_heartbeat": True}
        return Call("working_context_append", {**arguments, "inner_thought": "Keep."})

    async with (
        memory(keeps, database, monkeypatch, tmp_path, mode="act") as system,
        system.begin("e1", Material(SESSIONS)) as conversation,
    ):
        reply = await conversation.say("What is my cat's name?", at=ASKED)
        [agent] = (await system.client.agents.list()).items
        said = [each async for each in system.client.messages.all(agent.id, order="asc")]
    assert reply.text == "I know: Tom"
    assert len(reply.exchanges) == 2 + 2 + 1
    texts = [(each.created_at, each.text) for each in said if each.text]
    assert (BEGAN, "Bob: What a nice name!") in texts
    assert (BEGAN + timedelta(days=2), "Ada: I moved to Bergen.") in texts


async def test_a_model_that_breaks_the_protocol_has_answered_and_one_that_is_down_has_not(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_question(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        return ModelUnavailable("down") if "down" in last_user_text(prompt) else '{"tool": "none"}'

    async with memory(by_question, database, monkeypatch, tmp_path) as system:
        async with system.begin("e1", Material()) as conversation:
            reply = await conversation.say("Hello?")
        assert (reply.text, reply.error) == ("", "model_protocol_violation")
        assert reply.exchanges
        async with system.begin("e2", Material()) as conversation:
            with pytest.raises(ModelUnavailable):
                await conversation.say("Are you down?")


async def test_the_oracle_finds_what_it_should_look_for_and_otherwise_the_question_s_words(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with memory(say_nothing, database, monkeypatch, tmp_path, oracle=True) as system:
        async with system.begin("e1", Material(SESSIONS, LIBRARY)) as conversation:
            reply = await conversation.say("Do you remember what my cat was called?", at=ASKED)
        assert "I have a cat named Tom." in reply.text
        async with system.begin("e2", Material(SESSIONS, look_for=("Bergen",))) as conversation:
            reply = await conversation.say("Where do I live?", at=ASKED)
        assert "I moved to Bergen." in reply.text
        assert "Tom" not in reply.text


def say_nothing(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
    raise AssertionError("the oracle asks no model")


async def test_messages_are_indexed_before_the_question(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = searching("recall_memory_search", "named a cat Tom")
    async with (
        memory(rule, database, monkeypatch, tmp_path) as system,
        system.begin("e1", Material(SESSIONS)) as conversation,
    ):
        reply = await conversation.say("What is my cat's name?", at=ASKED)
    assert reply.found[0].id == "s1.1"
    assert len(reply.found) == 3


async def test_a_recorder_or_an_oracle_that_is_down_is_an_outage_to_try_again_after() -> None:
    url = "http://127.0.0.1:9"
    with pytest.raises(ModelUnavailable, match="doesn't answer"):
        await Recorder(url).take("agent")
    async with AsyncClient(url) as client:
        oracle = OracleSystem(client, Recorder(url))
        for hints in (("blue",), ()):
            with pytest.raises(ModelUnavailable, match="doesn't answer"):
                async with oracle.begin("e1", Material(look_for=hints)):
                    pass


def test_a_fault_of_the_server_is_no_answer_of_the_model() -> None:
    fault = error_of({"error": {"code": "internal_error", "message": "The server has a fault."}})
    late = error_of({"error": {"code": "turn_timeout", "message": "It took too long."}})
    assert fault is not None
    assert late is not None
    with pytest.raises(MemserverError, match="fault"):
        failed_reply(fault)
    assert failed_reply(late) == Reply("", error="turn_timeout")
