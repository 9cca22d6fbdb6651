"""Agents whose model is spoken with in plain chat, as a policy is that was trained on chats."""

import math
from collections.abc import Sequence

import pytest

from memserver.errors import ModelUnavailable
from memserver.messages import PromptMessage
from memserver.testing.scripted import Broken, Call, ScriptedModel, Step, say
from tests.support.server import OneDatabase, serving

CHAT = {"reply_mode": "chat"}
JOBS = """SELECT args -> 'args' ->> 'agent_id' FROM procrastinate_jobs
    WHERE status = 'todo' AND task_name = 'compact'"""


def shown(prompt: Sequence[PromptMessage]) -> list[tuple[str, str]]:
    assert all(message.call is None for message in prompt)
    return [(message.role, message.text) for message in prompt]


async def test_the_model_sees_a_plain_chat_and_what_it_writes_is_the_message(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(summary=lambda prompt: f" What is rule {len(prompt)}?\n")
    async with serving(database, model) as server:
        agent = await server.create_agent(system_prompt="Ask.", sections=[], options=CHAT)
        first = await server.say(agent, "Write a function.")
        again = await server.say(agent, "Round up.", **{"Idempotency-Key": "k"})
        repeated = await server.say(agent, "Round up.", **{"Idempotency-Key": "k"})
        context = await server.get(f"{agent}/context")
        found = await server.get(f"{agent}/recall/search", query="rule 2", mode="exact")
        refused = await server.http.put(f"/v1/agents/{agent}/tools/archival_memory_search", json={})
    assert (first["text"], first["stop_reason"], first["steps"]) == (
        "What is rule 2?",
        "message_sent",
        1,
    )
    [message] = first["messages"]
    assert message["tool_call"]["name"] == "send_message"
    assert message["tool_call"]["state"] == "done"
    assert again == repeated
    assert [shown(prompt) for prompt in model.writes] == [
        [("system", "Ask."), ("user", "Write a function.")],
        [
            ("system", "Ask."),
            ("user", "Write a function."),
            ("assistant", "What is rule 2?"),
            ("user", "Round up."),
        ],
    ]
    assert model.seen == []
    assert [item["text"] for item in found["items"]] == ["What is rule 2?"]
    sizes = {part["name"]: part["tokens"] for part in context["parts"]}
    assert sizes["tools"] == sizes["working_context"] == sizes["summary"] == 0
    assert sizes["instructions"] == 1
    assert refused.status_code == 422
    assert "reply_mode" in refused.json()["error"]["hint"]


async def test_its_text_streams_while_it_is_written_and_counts_only_once_it_is_whole(
    database: OneDatabase,
) -> None:
    written: list[Step] = [Broken("Half a", ModelUnavailable("gone")), "Who are you today?"]
    model = ScriptedModel(summary=lambda _: written.pop(0))
    async with serving(database, model) as server:
        agent = await server.create_agent(options=CHAT)
        broken = await server.events(agent, "Hi!")
        whole = await server.events(agent, "Hi again!")
        history = await server.get(f"{agent}/messages", order="asc")
    heard = [
        "".join(data["text"] for kind, data in events if kind == "message_delta")
        for events in (broken, whole)
    ]
    assert heard == ["Half a", "Who are you today?"]
    assert [kind for kind, _ in whole].count("message_delta") > 1
    assert broken[-1][1]["stop_reason"] == "error"
    assert whole[-1][1]["stop_reason"] == "message_sent"
    texts = [each["text"] for each in history["items"]]
    assert texts == ["Hi!", "Hi again!", "Who are you today?"]
    assert model.writes[-1][0].text.startswith("You are a companion")
    assert "Recall storage" not in model.writes[-1][0].text


async def test_an_empty_text_is_said_to_the_model_and_never_to_the_person(
    database: OneDatabase,
) -> None:
    written = [" ", "Sorry. Hello!", "", "", ""]
    model = ScriptedModel(summary=lambda _: written.pop(0))
    async with serving(database, model) as server:
        agent = await server.create_agent(sections=[], options=CHAT)
        fixed = await server.say(agent, "Hi!")
        failed = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": "And?"})
        history = await server.get(f"{agent}/messages")
    assert fixed["text"] == "Sorry. Hello!"
    role, note = shown(model.writes[1])[-1]
    assert role == "user"
    assert note.startswith("[system] Your last answer was empty")
    assert failed.json()["error"]["code"] == "model_protocol_violation"
    assert [
        each for each in history["items"] if each["role"] == "assistant" and not each["text"]
    ] == []


async def test_what_was_before_the_switch_to_plain_chat_is_shown_plainly_and_back_again(
    database: OneDatabase,
) -> None:
    kept = {"section": "human", "content": "Name: Ada", "request_heartbeat": True}
    script = [Call("working_context_append", {**kept, "inner_thought": "Keep."}), say("Hello Ada!")]
    model = ScriptedModel([*script, say("I act again.")], summary="I remember.")
    async with serving(database, model) as server:
        agent = await server.create_agent(
            sections=[{"name": "human", "text": "Likes figs."}, {"name": "notes"}]
        )
        await server.say(agent, "I am Ada.")
        past = [{"role": "user", "text": "Old?"}, {"role": "assistant", "text": "Old. "}]
        done = await server.http.post(
            f"/v1/agents/{agent}/messages/import", json={"messages": past}
        )
        assert done.status_code == 200
        await server.http.patch(f"/v1/agents/{agent}", json={"options": CHAT})
        assert (await server.say(agent, "And now?"))["text"] == "I remember."
        await server.http.patch(f"/v1/agents/{agent}", json={"options": {}})
        assert (await server.say(agent, "Act!"))["text"] == "I act again."
    (_, head), *queue = shown(model.writes[0])
    assert "human:\nLikes figs.\nName: Ada" in head
    assert "notes" not in head
    assert queue == [
        ("user", "I am Ada."),
        (
            "user",
            '[system] You called working_context_append {"section": "human", "content": "Name: Ada"}. OK',
        ),
        ("assistant", "Hello Ada!"),
        ("user", "Old?"),
        ("assistant", "Old."),
        ("user", "And now?"),
    ]
    *_, call, result, _ = model.last_prompt
    assert call.call is not None
    assert call.call.arguments == {"message": "I remember."}
    assert result.text == "OK"


@pytest.mark.parametrize("method", ["model", "extract"])
async def test_a_long_chat_is_evicted_and_summarised_without_an_alert(
    database: OneDatabase, method: str
) -> None:
    window, reserved = 600, 100

    def writer(prompt: Sequence[PromptMessage]) -> str:
        return "They spoke of days." if "notes" in prompt[0].text else "Tell me more of that day."

    model = ScriptedModel(summary=writer, context_window=window)  # raises ContextOverflow itself
    async with serving(
        database, model, llm_max_output_tokens=reserved, summary_method=method
    ) as server:
        agent = await server.create_agent(system_prompt="Listen.", sections=[], options=CHAT)
        queued: list[object] = []
        texts = [f"This is message {number}, and it tells of day {number}." for number in range(30)]
        for text in texts:
            assert (await server.say(agent, text))["text"] == "Tell me more of that day."
            queued += server.rows(JOBS)
            await server.run_jobs()
        context = await server.get(f"{agent}/context")
        found = await server.get(f"{agent}/recall/search", query=texts[0], mode="exact")
    asked = [prompt for prompt in model.writes if prompt[0].text.startswith("Listen.")]
    assert len(asked) == len(texts)
    assert [item["text"] for item in found["items"]] == texts[:1]
    head = asked[-1][0].text
    assert head.startswith("Listen.\n\nWhat was said before, in short:\n")
    assert not any("Memory pressure" in message.text for prompt in asked for message in prompt)
    assert queued, "no job made room after the turns"
    assert server.rows("SELECT count(*) FROM summaries") == [(len(queued),)]
    assert context["used"] <= window - reserved
    around = math.ceil(model.message_overhead * context["token_scale"])
    assert context["used"] == sum(part["tokens"] for part in context["parts"]) + around


async def test_the_option_s_old_name_is_refused_with_the_new_one(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        refused = [
            await server.http.post("/v1/agents", json={"options": {"protocol": "chat"}}),
            await server.http.patch(
                f"/v1/agents/{agent}", json={"options": {"protocol": "chat", "reply_mode": "chat"}}
            ),
        ]
    for answer in refused:
        assert answer.status_code == 422
        assert answer.json()["error"]["message"] == (
            "options: Value error, the option `protocol` is called `reply_mode` now"
        )


async def test_an_older_server_on_the_same_database_reads_the_reply_mode(
    database: OneDatabase,
) -> None:
    query = "SELECT options ->> 'protocol', options ? 'reply_mode' FROM agents WHERE id = %s"
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent(options=CHAT)
        stored = server.rows(query, agent)
        await server.http.patch(f"/v1/agents/{agent}", json={"options": {"reply_mode": "tools"}})
        changed = server.rows(query, agent)
        shown_now = await server.get(agent)
    assert (stored, changed) == ([("chat", False)], [("tools", False)])
    assert shown_now["options"]["reply_mode"] == "tools"
    assert "protocol" not in shown_now["options"]
