"""Tools whose effect is not in our database: stored as running first, and whatever they do contained."""

import asyncio

import pytest

from memserver.errors import SetupError
from memserver.testing.scripted import Call, ScriptedModel, say
from memserver.tools.tool import ToolContext, make_tool
from tests.support.server import OneDatabase, serving


async def weather(context: ToolContext, city: str, days: int = 1) -> str:
    """The weather of a city."""
    return f"{city}: sun for {days} days"


async def explode(context: ToolContext) -> str:
    """Raise."""
    raise ZeroDivisionError("boom")


async def chatter(context: ToolContext) -> str:
    """Return far too much."""
    return "x" * 1_000_000 + "\0"


async def test_a_tool_gets_its_arguments_and_its_result_reaches_the_model(
    database: OneDatabase,
) -> None:
    script = [Call("weather", {"inner_thought": "Look.", "city": "Oslo", "days": 3}), say("Sun!")]
    model = ScriptedModel(script)
    async with serving(database, model, [make_tool(weather)]) as server:
        agent = await server.create_agent()
        answer = await server.say(agent, "How is the weather?")
    assert answer["messages"][0]["tool_call"]["result"] == "Oslo: sun for 3 days"
    assert model.last_prompt[-1].text == "OK. Oslo: sun for 3 days"


@pytest.mark.parametrize(
    ("function", "result"),
    [(explode, "Failed: ZeroDivisionError: boom"), (chatter, "OK. xxx")],
)
async def test_whatever_a_tool_does_the_agent_continues(
    database: OneDatabase, function: object, result: str
) -> None:
    tool = make_tool(function)  # type: ignore[arg-type]
    model = ScriptedModel([Call(tool.spec.name), say("Done.")])
    async with serving(database, model, [tool]) as server:
        agent = await server.create_agent()
        answer = await server.say(agent, "Go!")
    assert answer["text"] == "Done."
    assert model.last_prompt[-1].text.startswith(result)
    assert len(model.last_prompt[-1].text) < 30_000


async def test_a_call_that_ran_when_its_worker_died_is_closed_and_the_model_learns_of_it(
    database: OneDatabase,
) -> None:
    started = asyncio.Event()

    async def hang(context: ToolContext) -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    hanging = make_tool(hang)
    async with serving(database, ScriptedModel([Call("hang")]), [hanging]) as one:
        agent = await one.create_agent()
        post = asyncio.create_task(
            one.http.post(f"/v1/agents/{agent}/messages", json={"text": "Go!"})
        )
        await started.wait()
        [[state]] = one.rows("SELECT state FROM tool_calls")
        assert state == "running"
    post.cancel()
    await asyncio.gather(post, return_exceptions=True)
    model = ScriptedModel([say("It was interrupted."), say("Yes.")])
    async with serving(database, model, [hanging]) as two:
        answer = await two.say(agent, "Are you there?")
        history = await two.get(f"{agent}/messages", order="asc")
    assert answer["text"] == "Yes."
    interrupted = history["items"][1]["tool_call"]
    assert (interrupted["name"], interrupted["state"]) == ("hang", "interrupted")
    assert model.seen[0].prompt[-1].text.startswith("Failed: The server stopped while this ran")
    said = [item["text"] for item in history["items"] if item["text"]]
    assert said == ["Go!", "It was interrupted.", "Are you there?", "Yes."]


async def test_times_in_the_prompt_and_in_results_are_in_the_agents_zone(
    database: OneDatabase,
) -> None:
    past = {"role": "user", "text": "Happy new year!", "created_at": "2025-12-31T15:30:00+00:00"}
    search = Call(
        "recall_memory_search_date", {"start_date": "2026-01-01", "end_date": "2026-01-01"}
    )
    model = ScriptedModel([search, say("Found it.")])
    async with serving(database, model) as server:
        agent = await server.create_agent(options={"timezone": "Asia/Tokyo"})
        await server.http.post(f"/v1/agents/{agent}/messages/import", json={"messages": [past]})
        await server.say(agent, "What did I say on New Year's Day?")
    assert model.last_prompt[1].text == "[2026-01-01 00:30] Happy new year!"
    assert "[m1000, 2026-01-01 00:30] user: Happy new year!" in model.last_prompt[-1].text


def test_a_schema_comes_from_the_functions_signature() -> None:
    spec = make_tool(weather).spec
    assert (spec.name, spec.description) == ("weather", "The weather of a city.")
    assert list(spec.parameters["properties"]) == [
        "inner_thought",
        "city",
        "days",
        "request_heartbeat",
    ]
    assert spec.parameters["required"] == ["city"]
    assert spec.parameters["properties"]["days"] == {"default": 1, "type": "integer"}


def test_a_bad_tool_is_refused_when_it_is_made() -> None:
    async def undocumented(context: ToolContext) -> str:
        return ""

    async def untyped(context: ToolContext, city) -> str:  # type: ignore[no-untyped-def]
        """Has an untyped parameter."""
        return ""

    async def reserved(context: ToolContext, inner_thought: str) -> str:
        """Takes a name that is ours."""
        return ""

    with pytest.raises(SetupError, match="undocumented has no docstring"):
        make_tool(undocumented)
    with pytest.raises(SetupError, match="no type for its parameter city"):
        make_tool(untyped)
    with pytest.raises(SetupError, match="can't have a parameter named inner_thought"):
        make_tool(reserved)


async def lecture(context: ToolContext) -> str:
    """Return more than a prompt holds."""
    return "word " * 3000


async def test_a_result_that_is_larger_than_the_window_is_shown_shortened(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([Call("lecture"), say("Done.")], context_window=2000)
    async with serving(database, model, [make_tool(lecture)]) as server:
        agent = await server.create_agent()
        await server.say(agent, "Go!")
    result = next(message.text for message in model.last_prompt if message.role == "tool")
    assert result.startswith("OK. word word")
    assert "shortened: the whole has" in result
