"""Which tools an agent has, by which rules, and that the rules hold whatever the model says."""

from collections.abc import Sequence
from typing import Any

import pytest

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, ScriptedModel, Step, say
from memserver.tools.tool import RunnableTool, ToolContext, make_tool
from tests.support.server import OneDatabase, Server, serving


async def look(context: ToolContext) -> str:
    """Look around."""
    return "a door"


async def go(context: ToolContext) -> str:
    """Go through the door."""
    return "a garden"


async def fall(context: ToolContext) -> str:
    """Fall."""
    raise ValueError("ouch")


TOOLS = [make_tool(look), make_tool(go), make_tool(fall)]


async def ruled(server: Server, **rules: dict[str, Any]) -> str:
    agent = await server.create_agent()
    for name, rule in rules.items():
        answer = await server.http.put(f"/v1/agents/{agent}/tools/{name}", json=rule)
        assert answer.status_code == 200, answer.text
    return agent


def offered(model: ScriptedModel, step: int = -1) -> set[str]:
    return {spec.name for spec in model.seen[step].tools}


async def test_the_first_call_is_one_of_the_first_tools(database: OneDatabase) -> None:
    model = ScriptedModel([Call("look"), say("A door.")])
    async with serving(database, model, TOOLS) as server:
        agent = await ruled(server, look={"first": True}, go={"first": True})
        await server.say(agent, "What is there?")
    assert offered(model, 0) == {"look", "go"}
    assert {"look", "go", "fall", "send_message"} < offered(model, 1)


async def test_the_turn_ends_with_a_terminal_tool_but_not_if_it_fails(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([Call("fall"), Call("go", {"request_heartbeat": True})])
    async with serving(database, model, TOOLS) as server:
        agent = await ruled(server, go={"terminal": True}, fall={"terminal": True})
        answer = await server.say(agent, "Go!")
    assert (answer["stop_reason"], answer["text"], answer["steps"]) == ("terminal_tool", "", 2)


async def test_a_turn_does_not_end_before_the_required_tools_have_succeeded(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([Call("look"), Call("fall"), Call("go"), say("A garden.")])
    async with serving(database, model, TOOLS) as server:
        agent = await ruled(server, look={"required": True}, go={"required": True})
        answer = await server.say(agent, "What is there?")
    assert answer["text"] == "A garden."
    ends = ["send_message" in offered(model, step) for step in range(4)]
    assert ends == [False, False, False, True]


async def test_without_must_reply_a_required_tool_keeps_the_turn_going(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([Call("look"), Call("go")])
    async with serving(database, model, TOOLS) as server:
        agent = await server.create_agent(options={"must_reply": False})
        await server.http.put(f"/v1/agents/{agent}/tools/go", json={"required": True})
        answer = await server.say(agent, "Go!")
    assert (answer["steps"], answer["stop_reason"]) == (2, "no_heartbeat")


async def test_a_required_tool_that_can_be_called_no_more_holds_nothing_up(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([Call("fall"), Call("fall"), say("I can't.")])
    async with serving(database, model, TOOLS) as server:
        agent = await ruled(server, fall={"required": True, "max_calls": 2})
        answer = await server.say(agent, "Fall!")
    assert answer["text"] == "I can't."
    assert "fall" not in offered(model)


async def test_the_last_step_is_for_the_answer_whatever_is_required(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([Call("fall"), say("I couldn't.")])
    async with serving(database, model, TOOLS) as server:
        agent = await server.create_agent(options={"max_steps": 2})
        await server.http.put(f"/v1/agents/{agent}/tools/fall", json={"required": True})
        answer = await server.say(agent, "Fall!")
    assert (answer["text"], offered(model)) == ("I couldn't.", {"send_message"})


async def test_calls_are_counted_for_a_turn_and_the_next_turn_begins_again(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([Call("look"), say("A door."), Call("look"), say("The same door.")])
    async with serving(database, model, TOOLS) as server:
        agent = await ruled(server, look={"max_calls": 1})
        await server.say(agent, "What is there?")
        await server.say(agent, "And now?")
    assert ["look" in offered(model, step) for step in range(4)] == [True, False, True, False]


async def test_what_a_turn_called_counts_also_when_it_left_the_queue_meanwhile(
    database: OneDatabase,
) -> None:
    big = "word " * 150

    async def tell(context: ToolContext) -> str:
        """Tell a lot."""
        return big

    client = {"kind": "client", "name": "ask", "description": "Ask the caller."}
    steps: list[Step] = [*[Call("tell")] * 6, Call("ask"), say("Done.")]
    model = ScriptedModel(steps, context_window=1800)
    async with serving(database, model, [make_tool(tell)], max_steps=20) as server:
        await server.http.post("/v1/tools", json=client)
        agent = await ruled(server, tell={"max_calls": 6}, ask={})
        paused = await server.say(agent, "Go!")
        [[start]] = server.rows("SELECT queue_start FROM agent_state")
        assert start > 1000, "a part of the turn was evicted"
        call = paused["messages"][-1]["tool_call"]["id"]
        await server.http.post(f"/v1/agents/{agent}/calls/{call}/result", json={"result": "yes"})
    assert "tell" not in offered(model)
    assert any("Go!" in message.text for message in model.seen[-1].prompt), "it stays in sight"


async def test_a_model_that_calls_what_is_not_offered_learns_so_and_continues(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([say("No."), Call("look"), say("A door.")])
    async with serving(database, model, TOOLS) as server:
        agent = await ruled(server, look={"required": True})
        answer = await server.say(agent, "What is there?")
    assert answer["text"] == "A door."
    assert "There is no tool send_message. Call one of" in answer["messages"][0]["text"]


async def test_a_detached_memory_tool_is_gone_and_can_be_attached_again(
    database: OneDatabase,
) -> None:
    def rule(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        return say(" ".join(spec.name for spec in tools))

    async with serving(database, ScriptedModel(rule)) as server:
        agent = await server.create_agent()
        path = f"/v1/agents/{agent}/tools/archival_memory_insert"
        assert (await server.http.delete(path)).status_code == 204
        assert (await server.http.delete(path)).status_code == 404
        assert "archival_memory_insert" not in (await server.say(agent, "?"))["text"]
        await server.http.put(path, json={})
        assert "archival_memory_insert" in (await server.say(agent, "?"))["text"]


@pytest.mark.parametrize(
    ("path", "rules", "reason"),
    [
        ("send_message", {"approval": True}, "send_message can't have this rule"),
        ("send_message", {"max_calls": 1}, "send_message can't have this rule"),
        ("look", {"max_calls": 0}, "greater than or equal to 1"),
        ("look", {"frist": True}, "Extra inputs"),
        ("ask", {"approval": True}, "the caller runs this tool"),
    ],
)
async def test_a_rule_that_can_not_be_is_refused(
    database: OneDatabase, path: str, rules: dict[str, Any], reason: str
) -> None:
    client = {"kind": "client", "name": "ask", "description": "Ask the caller."}
    async with serving(database, ScriptedModel(), TOOLS) as server:
        await server.http.post("/v1/tools", json=client)
        agent = await server.create_agent()
        answer = await server.http.put(f"/v1/agents/{agent}/tools/{path}", json=rules)
        tools = await server.get(f"{agent}/tools")
    assert answer.status_code == 422
    assert reason in answer.json()["error"]["message"]
    assert not any(item["max_calls"] or item["approval"] for item in tools["items"])


async def test_rules_that_no_turn_could_keep_together_are_refused(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(), TOOLS) as server:
        agent = await server.create_agent(options={"max_steps": 2})
        path = f"/v1/agents/{agent}/tools"
        await server.http.put(f"{path}/look", json={"required": True})
        too_many = await server.http.put(f"{path}/go", json={"required": True})
        first = await server.http.put(f"{path}/send_message", json={"first": True})
        other = await ruled(server, look={"required": True, "terminal": True})
        endings = await server.http.put(
            f"/v1/agents/{other}/tools/go", json={"required": True, "terminal": True}
        )
        unknown = await server.http.put(f"{path}/nothing", json={})
        silent = await server.http.delete(f"{path}/send_message")
    assert "2 tools are required" in too_many.json()["error"]["message"]
    assert "can't come first" in first.json()["error"]["message"]
    assert "both terminal and required" in endings.json()["error"]["message"]
    assert unknown.status_code == 404
    assert "could say nothing" in silent.json()["error"]["message"]


def test_the_eight_memory_tools_are_what_they_were() -> None:
    from memserver.tools.memory_tools import memory_tools

    kinds = {tool.kind for tool in memory_tools()}
    assert kinds == {"memory"}
    assert isinstance(memory_tools()[0], RunnableTool)
