"""What a model's messages come with beyond the standard goes back to it, and to no other: stubs refuse a history without it."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.http_app import serving as serving_app
from tests.support.model_endpoint import give_model, serving_over_http
from tests.support.server import OneDatabase, Server

JsonObject = dict[str, Any]
Check = Callable[["Provider", list[JsonObject]], str]


def deepseek(provider: "Provider", messages: list[JsonObject]) -> str:
    """DeepSeek's rule: each call in the history stands beside the reasoning that led to it."""
    for message in messages:
        for call in message.get("tool_calls", ()):
            came = provider.came_with(call)["message"]
            if message.get("reasoning_content") != came.get("reasoning_content"):
                return (
                    "The `reasoning_content` in the thinking mode must be passed back to the API."
                )
    return ""


def gemini(provider: "Provider", messages: list[JsonObject]) -> str:
    """Gemini's rule: each call since the user spoke has the signature that it came with."""
    for message in after_user(messages):
        for call in message.get("tool_calls", ()):
            came = provider.came_with(call)["call"]
            if call.get("extra_content") != came.get("extra_content"):
                return "Function call is missing a thought_signature in functionCall parts."
    return ""


def openrouter(provider: "Provider", messages: list[JsonObject]) -> str:
    """OpenRouter's rule: the reasoning's blocks come back whole, those of a call under the call's id."""
    for message in messages:
        for call in message.get("tool_calls", ()):
            blocks = provider.came_with(call)["message"].get("reasoning_details", ())
            blocks = [{**each, "id": call["id"]} if "id" in each else each for each in blocks]
            if message.get("reasoning_details", []) != blocks:
                return "Invalid signature in thinking block"
    return ""


def after_user(messages: list[JsonObject]) -> list[JsonObject]:
    places = [place for place, each in enumerate(messages) if each["role"] == "user"]
    return messages[places[-1] :]


def fields_of(check: Check, number: int, call_id: str, length: int) -> dict[str, JsonObject]:
    """What an answer comes with, each time something else."""
    if check is deepseek:
        return {"message": {"reasoning_content": f"Thought <{number}>. " * length}, "call": {}}
    if check is gemini:
        google = {"google": {"thought_signature": f"{number}AZ+/" * 30}}
        return {"message": {}, "call": {"extra_content": google}}
    blocks = [
        {"type": "reasoning.text", "text": f"I think {number}.", "signature": "s", "index": 0},
        {"type": "reasoning.encrypted", "data": f"{number}==", "id": call_id, "index": 1},
    ]
    return {"message": {"reasoning_details": blocks}, "call": {}}


@dataclass
class Provider:
    """An endpoint that thinks: it remembers first what it is told to remember, and then answers."""

    check: Check
    url: str = ""
    length: int = 20
    given: dict[str, dict[str, JsonObject]] = field(default_factory=dict)
    histories: list[list[JsonObject]] = field(default_factory=list)

    def came_with(self, call: JsonObject) -> dict[str, JsonObject]:
        """What a call of ours came with."""
        return self.given[call["function"]["arguments"]]

    async def complete(self, request: Request) -> Response:
        asked = await request.json()
        messages = asked["messages"]
        thinks = asked["model"] == "thinker"
        if not thinks:
            assert not any(each.keys() - STANDARD for each in messages)
            assert not any(
                call.keys() - CALL for each in messages for call in each.get("tool_calls", ())
            )
        elif refusal := self.check(self, messages):
            return JSONResponse({"error": {"message": refusal, "code": 400}}, 400)
        self.histories.append(messages)
        number = len(self.histories)
        name = "send_message"
        arguments: JsonObject = {"message": f"Done {number}."}
        now = after_user(messages)
        if "remember" in now[0]["content"] and not any(each["role"] == "tool" for each in now):
            name = "working_context_append"
            arguments = {"section": "human", "content": f"{number}", "request_heartbeat": True}
        text, call_id = json.dumps(arguments), f"tool_0_{name}"
        came = fields_of(self.check, number, call_id, self.length) if thinks else NOTHING
        self.given[text] = came
        function = {"name": name, "arguments": text}
        call = {"id": call_id, "type": "function", "function": function, **came["call"]}
        message = {"role": "assistant", "content": None, "tool_calls": [call], **came["message"]}
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        if asked.get("stream"):
            return StreamingResponse(streamed(message, usage), media_type="text/event-stream")
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return JSONResponse({"choices": [choice], "usage": usage})

    async def models(self, _request: Request) -> Response:
        return JSONResponse({"data": [{"id": "thinker", "max_model_len": 8192}]})


NOTHING: dict[str, JsonObject] = {"message": {}, "call": {}}
CALL = {"id", "type", "function"}
STANDARD = {"role", "content", "tool_calls", "tool_call_id"}


async def streamed(message: JsonObject, usage: JsonObject) -> AsyncIterator[str]:
    """The message in pieces, texts cut in two."""
    [call] = message.pop("tool_calls")
    deltas: list[JsonObject] = []
    for key, value in message.items():
        if isinstance(value, str) and len(value) > 10:
            deltas += [{key: value[:10]}, {key: value[10:]}]
        elif key == "reasoning_details":
            text = value[0]
            first, signed = {**text, "text": text["text"][:3]}, {**text, "text": text["text"][3:]}
            deltas += [{key: [{**first, "signature": None}]}, {key: [signed]}, {key: [value[1]]}]
        else:
            deltas.append({key: value})
    arguments = call["function"]["arguments"]
    named = {**call["function"], "arguments": arguments[:9]}
    deltas.append({"tool_calls": [{**call, "index": 0, "function": named}]})
    deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": arguments[9:]}}]})
    for delta in deltas:
        yield data({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield data({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    yield data({"choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def data(value: JsonObject) -> str:
    return f"data: {json.dumps(value)}\n\n"


@contextmanager
def provider(check: Check) -> Iterator[Provider]:
    made = Provider(check)
    routes = [
        Route("/v1/chat/completions", made.complete, methods=["POST"]),
        Route("/v1/models", made.models),
    ]
    with serving_app(Starlette(routes=routes)) as url:
        made.url = f"{url}/v1"
        yield made


async def say(server: Server, agent: str, text: str, *, stream: bool) -> str:
    """What the agent says to a message."""
    if not stream:
        return str((await server.say(agent, text))["text"])
    events = await server.events(agent, text)
    [message] = [reported["text"] for kind, reported in events if kind == "message"]
    assert (
        "".join(reported["text"] for kind, reported in events if kind == "message_delta") == message
    )
    return str(message)


@pytest.mark.parametrize(
    ("check", "stream"), [(deepseek, False), (deepseek, True), (gemini, True), (openrouter, True)]
)
async def test_what_a_message_came_with_goes_back_to_its_model_and_to_no_other(
    database: OneDatabase, check: Check, stream: bool
) -> None:
    settings: JsonObject = {"llm_mode": "tools", "llm_model": "thinker"}
    with provider(check) as endpoint:
        async with serving_over_http(database, endpoint.url, **settings) as server:
            agent = await server.create_agent()
            assert await say(server, agent, "remember tea", stream=stream) == "Done 2."
            assert await say(server, agent, "remember cake", stream=stream) == "Done 4."
        async with serving_over_http(database, endpoint.url, **settings) as server:
            assert await say(server, agent, "Well?", stream=stream) == "Done 5."
            await give_model(server, agent, "other")
            assert await say(server, agent, "And you?", stream=stream) == "Done 6."
            await give_model(server, agent, None)
            assert await say(server, agent, "And now?", stream=stream) == "Done 7."
            copy = await imported(server, await exported(server, agent))
            assert await say(server, copy, "Are you it?", stream=stream) == "Done 8."
            assert server.rows("SELECT count(*) FROM messages WHERE fields IS NOT NULL") == [(13,)]
            await server.http.delete(f"/v1/agents/{agent}")
            await server.http.delete(f"/v1/agents/{copy}")
            assert server.rows("SELECT count(*) FROM messages") == [(0,)]


async def exported(server: Server, agent: str) -> bytes:
    answer = await server.http.get(f"/v1/agents/{agent}/export")
    assert answer.status_code == 200
    return answer.content


async def imported(server: Server, content: bytes) -> str:
    made = await server.http.post("/v1/agents/import?name=copy", content=content)
    assert made.status_code == 201, made.text
    return str(made.json()["agent"]["id"])


async def test_provider_fields_count_where_they_are_sent_and_stay_away_where_they_do_not_fit(
    database: OneDatabase,
) -> None:
    settings: JsonObject = {"llm_mode": "tools", "llm_model": "thinker"}
    with provider(deepseek) as endpoint:
        async with serving_over_http(database, endpoint.url, **settings) as server:
            agent = await server.create_agent()
            await server.say(agent, "Hello")
            [written] = server.rows("SELECT tokens, fields FROM messages WHERE role = 'assistant'")
            own, scale = await used(server, agent)
            await give_model(server, agent, "other")
            foreign, _ = await used(server, agent)
            endpoint.given.clear()
            endpoint.length = 10_000
            await give_model(server, agent, None)
            await server.http.delete(f"/v1/agents/{agent}")
            agent = await server.create_agent()
            await server.say(agent, "Think long")
            endpoint.check = lambda *_: ""
            await server.say(agent, "And now?")
            shown = endpoint.histories[-1]
    thought = written[1]["message"]["reasoning_content"]
    assert written[1]["tokens"] > len(thought) / 10
    assert written[0] > written[1]["tokens"]
    assert own - foreign == pytest.approx(written[1]["tokens"] * scale, abs=2)
    assert any(each.get("tool_calls") for each in shown)
    assert not any("reasoning_content" in each for each in shown)


async def used(server: Server, agent: str) -> tuple[int, float]:
    """Tokens of the agent's prompt, and how many one of ours are."""
    context = await server.get(f"{agent}/context")
    return context["used"], context["token_scale"]
