"""The two scenes of the MemGPT paper, on the real server and database with a scripted model."""

import re
from collections.abc import Sequence

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.server import Golden, OneDatabase, Server, serving

WINDOW = 2600


def keep(content: str) -> Call:
    arguments = {"inner_thought": "Worth keeping.", "section": "human", "content": content}
    return Call("working_context_append", {**arguments, "request_heartbeat": True})


def saves_under_pressure(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Call:
    """Appends both facts when the alert comes, one a step."""
    if any("James" in message.text for message in prompt):
        if "Birthday is February 7" not in prompt[0].text:
            return keep("Birthday is February 7")
        if "Boyfriend named James" not in prompt[0].text:
            return keep("Boyfriend named James")
    return Call("nothing_to_save")


def chats(_: Sequence[PromptMessage], __: Sequence[ToolSpec]) -> Call:
    return say("I see! Tell me more about your day, it sounds lovely.", thought="I chat.")


async def test_birthday_facts_saved_under_pressure_outlive_two_evictions(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(
        chats,
        on_alert=saves_under_pressure,
        context_window=WINDOW,
        summary="They talked about their days.",
    )
    async with serving(database, model, llm_max_output_tokens=200) as server:
        agent = await server.create_agent(name="companion")
        await fill_to_just_below_the_alert(server, agent)
        first = "It is February 7 and my boyfriend James baked me a birthday cake!"
        answer = await server.say(agent, first)
        called = [m["tool_call"]["name"] for m in answer["messages"] if m["tool_call"]]
        append = "working_context_append"
        assert called == ["send_message", append, append, "nothing_to_save"]
        assert answer["messages"][1]["role"] == "system"
        assert "Memory pressure" in answer["messages"][1]["text"]
        for number in range(200):
            await server.say(agent, f"Message {number}: I went for a walk and it was nice.")
        summaries = server.rows("SELECT method, failure FROM summaries ORDER BY until")
        found = await server.get(f"{agent}/recall/search", query="James baked")
        context = await server.get(f"{agent}/context")
    assert len(summaries) >= 2
    assert set(summaries) == {("model", None)}
    instructions = model.last_prompt[0].text
    assert "Birthday is February 7" in instructions
    assert "Boyfriend named James" in instructions
    assert "They talked about their days." in instructions
    assert not any("James baked" in message.text for message in model.last_prompt[1:])
    assert [item["text"] for item in found["items"]] == [first]
    assert context["used"] <= WINDOW - 200


async def fill_to_just_below_the_alert(server: Server, agent: str) -> None:
    while True:
        context = await server.get(f"{agent}/context")
        if context["used"] > 0.7 * (context["window"] - context["reserved"]) - 30:
            return
        await server.say(agent, "Hello again.")


def laureate(number: int) -> str:
    if number % 4 == 0:
        return f"Laureate {number} won the nobel prize in physics in {1900 + number}."
    return f"Report {number} is about the harvest of the year {1900 + number}."


async def test_the_nobel_question_is_answered_from_the_second_page(
    database: OneDatabase, golden: Golden
) -> None:
    def search(page: int) -> Call:
        arguments = {"query": "nobel physics", "page": page, "request_heartbeat": True}
        return Call(
            "archival_memory_search", {"inner_thought": f"Look at page {page}.", **arguments}
        )

    script = [search(1), search(2), say("It was laureate 72.", thought="Page 2 has it.")]
    model = ScriptedModel(script)
    async with serving(database, model) as server:
        agent = await server.create_agent(name="librarian")
        passages = [{"text": laureate(number)} for number in range(124)]
        answer = await server.http.post(f"/v1/agents/{agent}/archival", json={"passages": passages})
        assert answer.status_code == 201
        result = await server.say(agent, "Who won the nobel prize in physics in 1972?")
    assert result["text"] == "It was laureate 72."
    pages = [message["tool_call"]["result"] for message in result["messages"]]
    assert pages[0].startswith("Showing 10 of 124 results (page 1/13):\n")
    assert pages[1].startswith("Showing 10 of 124 results (page 2/13):\n")
    assert set(pages[0].split("\n")[1:]).isdisjoint(pages[1].split("\n")[1:])
    for step, seen in enumerate(model.seen, start=1):
        golden.check(f"nobel_step_{step}.txt", readable(seen.prompt))


def readable(prompt: Sequence[PromptMessage]) -> str:
    """A prompt as a reader can check it; times differ from run to run."""
    lines = []
    for message in prompt:
        call = ""
        if message.role == "assistant" and message.call is not None:
            call = f"{message.call.name} {dict(message.call.arguments)}"
        lines.append(f"--- {message.role}\n{message.text}{call}")
    text = "\n".join(lines)
    return re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d)?", "<time>", text)
