"""Replies of models that don't keep to the form: what was meant counts, and nobody reads what was not."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from memserver.cli.doctor import examine_model
from memserver.llm.reply_parser import RawCall, RawReply
from memserver.messages import PromptMessage
from memserver.testing.scripted import Call, ScriptedModel, Step, say
from tests.support.model_endpoint import endpoint, serving_over_http
from tests.support.server import OneDatabase, Server, serving

MODES = ["tools", "json_schema", "text"]
WORDS = "Hello! How can I help?"
SCOLDING = ("Your answer", "Call exactly", "Call one of", "nobody has seen")
CALL = '{"tool": "send_message", "arguments": {"message": "%s"}}'
EXAMPLE = '{"tool": "archival_memory_insert", "arguments": {"content": "wrong"}}'
THOUGHTS = ["<think>%s</think>\n", "%s</think>\n", "[THINK]%s[/THINK]", "<thinking>%s</thinking>"]


def native(name: str, arguments: str) -> RawReply:
    return RawReply(calls=(RawCall(name, arguments),), finish_reason="tool_calls")


class Replies:
    """What the model says next: the same again and again, or one after the other."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.prompts: list[str] = []

    def __call__(self, prompt: Sequence[PromptMessage], _tools: object = ()) -> Step:
        self.prompts.append(prompt[-1].text)
        return self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]


@dataclass
class Heard:
    """What came of a message: the text that was streamed while it came, and what is committed."""

    reported: str
    text: str
    usage: dict[str, int]
    agent: str


async def hear(server: Server, *, streamed: bool = True, **agent: Any) -> Heard:
    made = await server.create_agent(**agent)
    if not streamed:
        answer = await server.say(made, "hello")
        return Heard(answer["text"], answer["text"], answer["usage"], made)
    return await hear_on(server, made)


async def hear_on(server: Server, agent: str) -> Heard:
    events = await server.events(agent, "hello")
    reported, text = (
        "".join(data["text"] for each, data in events if each == kind)
        for kind in ("message_delta", "message")
    )
    return Heard(reported, text, dict(events)["usage"], agent)


@asynccontextmanager
async def speaking(database: OneDatabase, replies: Replies, mode: str) -> AsyncIterator[Server]:
    with endpoint(replies, summary=replies, context_window=32_000) as over:
        async with serving_over_http(database, over.url, llm_mode=mode) as server:
            yield server


@pytest.mark.parametrize("mode", MODES)
async def test_plain_words_become_the_answer_after_one_retry(
    database: OneDatabase, mode: str
) -> None:
    replies = Replies(f"<think>They greet.</think>{WORDS}")
    async with speaking(database, replies, mode) as server:
        whole = await hear(server, streamed=False)
        stream = await hear(server)
        history = await server.get(f"{stream.agent}/messages", order="asc")
    assert (whole.text, stream.text) == (WORDS, WORDS)
    assert len(replies.prompts) == 4
    assert "nobody has seen it" in replies.prompts[1]
    *_, said = history["items"]
    assert (said["text"], said["tool_call"]["name"]) == (WORDS, "send_message")
    assert said["thought"] == "They greet."


async def to_openai(server: Server, api: str, *, stream: bool) -> str:
    """All that comes back of a request to one of OpenAI's routes."""
    if api == "chat":
        messages = [{"role": "user", "content": "hello"}]
        body = {"model": "sam", "messages": messages, "stream": stream}
        answer = await server.http.post("/v1/chat/completions", json=body)
    else:
        body = {"model": "sam", "input": "hello", "stream": stream}
        answer = await server.http.post("/v1/responses", json=body)
    return answer.text


async def test_plain_words_become_the_answer_on_the_routes_of_openai_too(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel(Replies(WORDS))) as server:
        await server.create_agent(name="sam")
        for api in ("chat", "responses"):
            for stream in (False, True):
                reported = await to_openai(server, api, stream=stream)
                assert WORDS in reported
                assert "follow the protocol" not in reported


async def test_words_that_can_not_be_requested_again_are_taken_at_once(
    database: OneDatabase,
) -> None:
    replies = Replies(WORDS)
    async with serving(database, ScriptedModel(replies)) as server:
        for before in ([WORDS, ""], ['{"tool": "fl', ""], [WORDS, native("fly", "{}")]):
            replies.steps = [*before, WORDS]
            assert (await hear(server, streamed=False)).text == WORDS
        replies.steps = [WORDS]
        assert (await hear(server, options={"max_steps": 1})).text == WORDS


HALF_CALLS: list[Step] = [
    'I will say it: {"tool": "send_message", "arguments": {"mess',
    'send_message(message="Hello!")',
    'send_message {"message": "Hello!"}',
    '[TOOL_CALLS]send_message{"message": "Hello!"}',
    "<tool_call>send_message</tool_call>",
    '{"message": "Hello!"}',
    '```json\n{"message": "Hello!"}\n```',
    "<think>Hello!</think>",
    "<think>Hello!",
    RawReply("Hello! I am", finish_reason="length"),
]


async def test_half_a_call_and_a_thought_are_never_said(database: OneDatabase) -> None:
    replies = Replies("")
    async with serving(database, ScriptedModel(replies)) as server:
        for half in HALF_CALLS:
            replies.steps = [half]
            agent = await server.create_agent()
            failed = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": "hello"})
            history = await server.get(f"{agent}/messages")
            assert failed.json()["error"]["code"] == "model_protocol_violation", half
            assert {each["role"] for each in history["items"]} == {"user", "system"}


async def test_words_are_no_answer_where_another_tool_has_to_be_called_first(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel(Replies(WORDS))) as server:
        agent = await server.create_agent()
        put = await server.http.put(
            f"/v1/agents/{agent}/tools/archival_memory_search", json={"first": True}
        )
        assert put.status_code in {200, 201, 204}, put.text
        failed = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": "hello"})
    assert failed.json()["error"]["code"] == "model_protocol_violation"


@pytest.mark.parametrize("mode", ["json_schema", "text"])
async def test_an_example_of_a_call_in_a_thought_is_never_executed(
    database: OneDatabase, mode: str
) -> None:
    replies = Replies("")
    async with speaking(database, replies, mode) as server:
        for thought in THOUGHTS:
            replies.steps = [RawReply(thought % f"A call is {EXAMPLE}." + CALL % "Done.")]
            for streamed in (False, True):
                heard = await hear(server, streamed=streamed)
                [said, *_] = (await server.get(f"{heard.agent}/messages"))["items"]
                passages = await server.get(f"{heard.agent}/archival")
                assert (heard.reported, heard.text, passages["items"]) == ("Done.", "Done.", [])
                assert said["thought"].startswith("A call is")


async def test_in_plain_chat_a_thought_that_nothing_opened_is_streamed_once_at_most(
    database: OneDatabase,
) -> None:
    replies = Replies("She greets.\n</think>\n\nHello Ada!")
    async with speaking(database, replies, "auto") as server:
        first = await hear(server, sections=[], options={"reply_mode": "chat"})
        second = await hear_on(server, first.agent)
        replies.steps = ["Hello again!"]
        third = await hear_on(server, first.agent)
    assert first.text == "Hello Ada!"
    assert (second.reported, second.text) == ("Hello Ada!", "Hello Ada!")
    assert (third.reported, third.text) == ("Hello again!", "Hello again!")


UNTIDY: list[dict[str, Any]] = [
    {"message": "Hi", "inner_thought": "t" * 400},
    {"inner_thought": "t" * 5000, "message": "Hi", "request_heartbeat": False, "color": "red"},
    {"message": ("Hi. " * 1200).strip()},
    {"message": "Hi", "request_heartbeat": "no", "tags": [{"a": 1}]},
]


@pytest.mark.parametrize("more", [False, True], ids=["answer ends", "answer may go on"])
@pytest.mark.parametrize("mode", ["tools", "text"])
async def test_no_private_field_and_no_length_costs_an_answer(
    database: OneDatabase, mode: str, more: bool
) -> None:
    replies = Replies("")
    with endpoint(replies, context_window=32_000) as over:
        settings = {"llm_mode": mode, "llm_thought_last": not more}
        async with serving_over_http(database, over.url, **settings) as server:
            for arguments in UNTIDY:
                replies.steps = [Call("send_message", arguments)]
                heard = await hear(server)
                [said, _] = (await server.get(f"{heard.agent}/messages"))["items"]
                assert heard.reported == heard.text == arguments["message"]
                assert len(said["thought"]) <= (300 if more else 60)
                known = {"message", "inner_thought", *(["request_heartbeat"] if more else [])}
                assert said["tool_call"]["arguments"].keys() <= known


async def test_a_memory_tool_runs_without_an_argument_that_it_does_not_have(
    database: OneDatabase,
) -> None:
    keep = {"content": "Ada likes figs.", "tags": ["figs"], "request_heartbeat": "True"}
    model = ScriptedModel([Call("functions.archival_memory_insert", keep), say("Kept.")])
    async with serving(database, model) as server:
        agent = await server.create_agent()
        answer = await server.say(agent, "I like figs.")
        passages = await server.get(f"{agent}/archival")
    assert (answer["text"], answer["steps"]) == ("Kept.", 2)
    assert [each["text"] for each in passages["items"]] == ["Ada likes figs."]


@pytest.mark.parametrize("mode", MODES)
async def test_a_decorated_name_is_called_and_its_text_is_streamed_while_it_comes(
    database: OneDatabase, mode: str
) -> None:
    replies = Replies("")
    async with speaking(database, replies, mode) as server:
        for pattern in ("%s<|channel|>commentary", "functions.%s", "%sjson", "SendMessage"):
            name = pattern.replace("%s", "send_message")
            replies.steps = [Call(name, {"message": "Hello Ada!"})]
            heard = await hear(server)
            assert (heard.reported, heard.text) == ("Hello Ada!", "Hello Ada!")


async def test_the_tokens_of_refused_replies_count(database: OneDatabase) -> None:
    bad, replies = native("fly", "{}"), Replies("")
    async with speaking(database, replies, "tools") as server:
        for streamed in (False, True):
            replies.steps = [say("Hi.")]
            one = (await hear(server, streamed=streamed)).usage["prompt_tokens"]
            replies.steps = [bad, bad, say("Hi.")]
            assert (await hear(server, streamed=streamed)).usage["prompt_tokens"] > 3 * one
        replies.steps = [bad]
        failed = await server.create_agent()
        await server.http.post(f"/v1/agents/{failed}/messages", json={"text": "hello"})
        turn = await server.get(f"{failed}/turns/1")
        replies.steps = [RawReply("Once upon", finish_reason="content_filter")]
        stopped = await server.create_agent()
        answer = await server.http.post(f"/v1/agents/{stopped}/messages", json={"text": "hello"})
        refused = await server.get(f"{stopped}/turns/1")
    assert turn["usage"]["prompt_tokens"] > 3 * one
    assert turn["usage"]["completion_tokens"] > 0
    assert answer.json()["error"]["code"] == "model_refused"
    assert refused["usage"]["prompt_tokens"] > 0


async def test_no_caller_reads_what_was_written_for_the_model(database: OneDatabase) -> None:
    remedies: list[tuple[Step, str]] = [
        ('{"tool": "fly", "arguments": {}}', "MEMSERVER_LLM_MODE"),
        (native("fly", '{"message": "Off I fly"}'), "memserver doctor"),
        (RawReply('{"tool": "fly', finish_reason="length"), "MEMSERVER_LLM_MAX_OUTPUT_TOKENS"),
    ]
    replies = Replies("")
    async with serving(database, ScriptedModel(replies)) as server:
        agent = await server.create_agent(name="sam")
        for reply, remedy in remedies:
            replies.steps = [reply]
            whole = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": "hello"})
            streamed = dict(await server.events(agent, "hello"))["error"]
            reported = [
                await to_openai(server, api, stream=stream)
                for api in ("chat", "responses")
                for stream in (False, True)
            ]
            for text in (whole.text, str(streamed), *reported):
                assert "fly" in text
                assert not any(words in text for words in SCOLDING)
            assert remedy in whole.json()["error"]["hint"]
            assert remedy in streamed["error"]["hint"]


async def test_doctor_says_what_came_and_not_what_a_model_would_read() -> None:
    findings = [each async for each in examine_model(ScriptedModel([WORDS]))]
    assert WORDS in findings[-1].detail
    assert not any(words in findings[-1].detail for words in SCOLDING)
