"""A compact history: what the agent said stands in its prompts as the text alone."""

from collections.abc import Sequence
from typing import Any

import pytest

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.model_endpoint import endpoint, listen, serving_over_http
from tests.support.server import OneDatabase, Server, serving

SEARCH = Call("recall_memory_search", {"query": "tea", "request_heartbeat": True})
COMPACT = {"history": "compact"}
LISTENED = str(listen((), ()).arguments["message"])


def lines(prompt: tuple[PromptMessage, ...]) -> list[tuple[str, str, str]]:
    """The queue as the model sees it, times apart."""
    return [
        (each.role, each.call.name if each.call else "", each.text.partition("] ")[2] or each.text)
        for each in prompt[1:]
    ]


async def fill(server: Server, agent: str) -> None:
    past = [{"role": "user", "text": "Tea?"}, {"role": "assistant", "text": "Gladly."}]
    done = await server.http.post(f"/v1/agents/{agent}/messages/import", json={"messages": past})
    assert done.status_code == 200


async def test_an_answer_is_one_line_and_other_calls_stand_with_their_results(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([SEARCH, say("  "), say("Milk as well?"), say("Yes.")])
    async with serving(database, model) as server:
        agent = await server.create_agent(options=COMPACT)
        await fill(server, agent)
        first = await server.say(agent, "What did I ask?")
        await server.say(agent, "Yes!")
        context = await server.get(f"{agent}/context")
    assert [m["tool_call"]["name"] for m in first["messages"]] == [
        "recall_memory_search",
        "send_message",
        "send_message",
    ]
    found, failed = lines(model.last_prompt)[4], lines(model.last_prompt)[6]
    assert lines(model.last_prompt) == [
        ("user", "", "Tea?"),
        ("assistant", "", "Gladly."),
        ("user", "", "What did I ask?"),
        ("assistant", "recall_memory_search", ""),
        found,
        ("assistant", "send_message", ""),
        failed,
        ("assistant", "", "Milk as well?"),
        ("user", "", "Yes!"),
    ]
    assert found[0] == failed[0] == "tool"
    queue = next(part for part in context["parts"] if part["name"] == "queue")
    assert "Gladly." in queue["text"]
    assert '"message"' not in queue["text"].replace('"message": "  "', "")


async def test_tokens_are_counted_by_what_is_shown(database: OneDatabase) -> None:
    async def sizes(server: Server, **options: Any) -> tuple[int, int, int]:
        agent = await server.create_agent(options=options)
        await fill(server, agent)
        await server.say(agent, "Hello.")
        counted = "SELECT tokens FROM messages WHERE agent_id = %s ORDER BY position"
        [_, [imported], [asked], [answer]] = server.rows(counted, agent)
        return imported, asked, answer

    model = ScriptedModel(lambda _p, _t: say("One two three four.", thought="I greet."))
    async with serving(database, model) as server:
        calls, compact = await sizes(server), await sizes(server, **COMPACT)
    around = model.message_overhead
    assert compact == (1 + around, calls[1], 4 + around)
    assert calls[0] > compact[0] + around
    assert calls[2] > compact[2] + around


@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_the_server_says_what_agents_have_that_say_nothing_in_either_mode(
    database: OneDatabase, mode: str
) -> None:
    prompts: list[Sequence[PromptMessage]] = []

    def note(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Call:
        prompts.append(prompt)
        return listen(prompt, tools)

    with endpoint(note) as model:
        settings = {"llm_mode": mode, "history": "compact"}
        async with serving_over_http(database, model.url, **settings) as server:
            compact = await server.create_agent()
            calls = await server.create_agent(options={"history": "calls"})
            for agent in (compact, calls):
                await server.say(agent, "Hello.")
                await server.say(agent, "And?")
            read = await server.http.get(f"/v1/agents/{calls}")
            odd = await server.http.post("/v1/agents", json={"options": {"history": "short"}})
    assert [each.role for each in prompts[1]] == ["system", "user", "assistant", "user"]
    assert prompts[1][2] == PromptMessage("assistant", LISTENED)
    assert len(prompts[3]) == 5
    assert read.json()["options"]["history"] == "calls"
    assert odd.status_code == 422
