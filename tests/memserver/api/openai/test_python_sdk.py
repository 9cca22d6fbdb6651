"""OpenAI's own Python client, unmodified, against the server on a real socket."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from memserver.api.openai import turns
from memserver.client import Client
from memserver.errors import ContextOverflow, ModelUnavailable, ProtocolViolation
from memserver.testing.scripted import Broken, Call, ScriptedModel, say
from tests.support.client import Served, served
from tests.support.server import OneDatabase

SEARCH = Call("recall_memory_search", {"query": "x", "request_heartbeat": True})


@contextmanager
def speaking(
    database: OneDatabase, *script: Any, **settings: Any
) -> Iterator[tuple[openai.OpenAI, Served]]:
    with served(database, ScriptedModel(script), **settings) as server:
        with Client(server.url) as client:
            client.agents.create("sam")
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as sdk:
            yield sdk, server


def test_a_chat_completion_has_text_usage_and_the_turn(database: OneDatabase):
    with speaking(database, SEARCH, say("Hello, Ada.")) as (sdk, server):
        answer = sdk.chat.completions.create(
            model="sam", messages=[{"role": "user", "content": "Hi"}], temperature=0
        )
        [choice] = answer.choices
        assert (choice.message.role, choice.message.content) == ("assistant", "Hello, Ada.")
        assert (choice.finish_reason, answer.model) == ("stop", "sam")
        assert answer.usage is not None
        assert answer.usage.total_tokens == (
            answer.usage.prompt_tokens + answer.usage.completion_tokens
        )
        assert answer.usage.prompt_tokens > 0
        extra = (answer.model_extra or {})["memserver"]
        assert (extra["turn"], extra["unused"]) == (1, ["temperature"])
        with Client(server.url) as client:
            turn = client.turns.get(extra["agent_id"], extra["turn"])
            assert turn.usage.prompt_tokens == answer.usage.prompt_tokens


NOTE = Call("working_context_append", {"section": "human", "content": "Ada."})


@pytest.mark.parametrize("api", ["chat", "chat stream", "response", "response stream"])
def test_an_answer_whose_call_waits_stops_and_tells_of_it(database: OneDatabase, api: str):
    with speaking(database, NOTE, say("Noted.")) as (sdk, server), Client(server.url) as client:
        agent = client.agents.find("sam")
        assert agent is not None
        client.tools.attach(agent.id, "working_context_append", approval=True)
        reason, extra = asked_for(sdk, api)
        [waiting] = client.calls.all()
        assert reason in {"stop", "completed"}
        assert (extra["stop_reason"], extra["call_id"]) == ("requires_action", waiting.call_id)
        if api.startswith("response"):
            paused = sdk.responses.retrieve(f"resp_{agent.id.hex}_1")
            assert (paused.model_extra or {})["memserver"]["call_id"] == waiting.call_id
        assert client.calls.approve(agent.id, waiting.call_id).text == "Noted."
        ended = sdk.responses.retrieve(f"resp_{agent.id.hex}_1")
        assert ended.output_text == "Noted."
        extra = (ended.model_extra or {})["memserver"]
        assert (extra["stop_reason"], extra["call_id"]) == ("message_sent", None)


def asked_for(sdk: openai.OpenAI, api: str) -> tuple[Any, dict[str, Any]]:
    """Says hi by one of OpenAI's APIs; why the answer ended, and what memserver adds to it."""
    if api == "chat stream":
        said: Any = [{"role": "user", "content": "Hi"}]
        *_, last = sdk.chat.completions.create(model="sam", messages=said, stream=True)
        return last.choices[0].finish_reason, (last.model_extra or {})["memserver"]
    if api == "chat":
        said = [{"role": "user", "content": "Hi"}]
        whole = sdk.chat.completions.create(model="sam", messages=said)
        return whole.choices[0].finish_reason, (whole.model_extra or {})["memserver"]
    if api == "response":
        response = sdk.responses.create(model="sam", input="Hi")
    else:
        *_, end = sdk.responses.create(model="sam", input="Hi", stream=True)
        assert end.type == "response.completed"
        response = end.response
    return response.status, (response.model_extra or {})["memserver"]


def test_a_chat_completion_is_streamed(database: OneDatabase):
    with speaking(database, SEARCH, say("Hello, dear Ada.")) as (sdk, _):
        chunks = list(
            sdk.chat.completions.create(
                model="sam",
                messages=[{"role": "user", "content": "Hi"}],
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        *spoken, last, counted = chunks
        pieces = [each.choices[0].delta.content or "" for each in spoken]
        assert "".join(pieces) == "Hello, dear Ada."
        assert len(pieces) > 2
        assert spoken[0].choices[0].delta.role == "assistant"
        assert last.choices[0].finish_reason == "stop"
        assert counted.choices == []
        assert counted.usage is not None
        assert counted.usage.completion_tokens > 0
        assert len({each.id for each in chunks}) == 1


def test_the_sdks_stream_helper_puts_a_completion_together(database: OneDatabase):
    with speaking(database, say("Hello, dear Ada.")) as (sdk, _):
        with sdk.chat.completions.stream(
            model="sam", messages=[{"role": "user", "content": "Hi"}]
        ) as stream:
            whole = stream.get_final_completion()
        assert whole.choices[0].message.content == "Hello, dear Ada."


def test_text_of_a_step_that_turns_out_void_is_followed_by_what_counts(database: OneDatabase):
    void = Broken(say("Hello, B"), ProtocolViolation("It broke off."))
    with speaking(database, void, say("Hello, Ada."), say("Bye.")) as (sdk, server):
        chat: list[Any] = [{"role": "user", "content": "Hi"}]
        stream = sdk.chat.completions.create(model="sam", messages=chat, stream=True)
        shown = "".join(each.choices[0].delta.content or "" for each in stream)
        assert shown == "Hello, B\n\nHello, Ada."
        chat += [{"role": "assistant", "content": shown}, {"role": "user", "content": "Bye"}]
        sdk.chat.completions.create(model="sam", messages=chat)
        with Client(server.url) as client:
            agent = client.agents.find("sam")
            assert agent is not None
            said = [each.text for each in client.messages.all(agent.id) if each.role != "system"]
        assert said == ["Bye.", "Bye", "Hello, Ada.", "Hi"]


def test_a_response_has_text_and_usage_and_is_found_again(database: OneDatabase):
    with speaking(database, say("Hello."), say("You said Hi.")) as (sdk, _):
        first = sdk.responses.create(model="sam", input="Hi", instructions="Be a pirate.")
        assert (first.output_text, first.status) == ("Hello.", "completed")
        assert first.usage is not None
        assert first.usage.input_tokens > 0
        assert (first.model_extra or {})["memserver"]["unused"] == ["instructions"]
        second = sdk.responses.create(
            model="sam", input="What did I say?", previous_response_id=first.id
        )
        assert second.output_text == "You said Hi."
        assert second.previous_response_id == first.id
        again = sdk.responses.retrieve(first.id)
        assert again.output == first.output
        assert again.usage == first.usage


def test_a_whole_conversation_as_input_is_read_once(database: OneDatabase):
    with speaking(database, say("Hello."), say("Two.")) as (sdk, server):
        chat: list[Any] = [{"role": "user", "content": "Hi"}]
        first = sdk.responses.create(model="sam", input=chat)
        chat += [each.model_dump() for each in first.output]
        chat.append({"role": "user", "content": [{"type": "input_text", "text": "Two?"}]})
        assert sdk.responses.create(model="sam", input=chat).output_text == "Two."
        with Client(server.url) as client:
            agent = client.agents.find("sam")
            assert agent is not None
            said = [each.text for each in client.messages.all(agent.id)]
        assert said == ["Two.", "Two?", "Hello.", "Hi"]


def test_a_response_is_streamed_as_events_in_order(database: OneDatabase):
    with speaking(database, SEARCH, say("Hello, dear Ada.")) as (sdk, _):
        events = list(sdk.responses.create(model="sam", input="Hi", stream=True))
        kinds = [each.type for each in events if each.type != "response.output_text.delta"]
        assert kinds == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
        assert [each.sequence_number for each in events] == list(range(len(events)))
        deltas = [each.delta for each in events if each.type == "response.output_text.delta"]
        assert "".join(deltas) == "Hello, dear Ada."
        last = events[-1]
        assert last.type == "response.completed"
        assert last.response.output_text == "Hello, dear Ada."
        with pytest.raises(openai.NotFoundError):
            sdk.responses.retrieve("resp_none")


def test_the_sdks_response_stream_helper_puts_a_response_together(database: OneDatabase):
    with speaking(database, say("Hello, dear Ada.")) as (sdk, _):
        with sdk.responses.stream(model="sam", input="Hi") as stream:
            whole = stream.get_final_response()
        assert whole.output_text == "Hello, dear Ada."


def test_agents_are_listed_as_models_and_found_by_name_and_id(database: OneDatabase):
    with speaking(database, say("Hello.")) as (sdk, server), Client(server.url) as client:
        other = client.agents.create("ada/1 ü")
        assert [model.id for model in sdk.models.list()] == ["sam", "ada/1 ü"]
        assert sdk.models.retrieve("ada/1 ü").id == "ada/1 ü"
        assert sdk.models.retrieve(str(other.id)).id == "ada/1 ü"
        answer = sdk.responses.create(model=str(other.id), input="Hi")
        assert answer.output_text == "Hello."


async def test_the_async_client_streams_too(database: OneDatabase):
    with speaking(database, say("Hello, dear Ada.")) as (_, server):
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as sdk:
            stream = await sdk.chat.completions.create(
                model="sam", messages=[{"role": "user", "content": "Hi"}], stream=True
            )
            assert await joined(stream) == "Hello, dear Ada."


async def joined(stream: AsyncIterator[Any]) -> str:
    return "".join([each.choices[0].delta.content or "" async for each in stream])


def test_an_unknown_model_is_openais_error(database: OneDatabase):
    with speaking(database) as (sdk, _):
        with pytest.raises(openai.NotFoundError) as error:
            sdk.responses.create(model="nobody", input="Hi")
        assert (error.value.code, error.value.type) == ("model_not_found", "invalid_request_error")
        with pytest.raises(openai.NotFoundError):
            sdk.models.retrieve("nobody")


@pytest.mark.parametrize("stream", [False, True])
def test_a_failed_turn_is_an_error_that_is_not_repeated(
    database: OneDatabase, stream: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(turns, "FIRST_SECONDS", 60)
    down = ModelUnavailable("The model is down.", hint="Start it.")
    with speaking(database, down, say("Hello.")) as (sdk, server):
        with pytest.raises(openai.InternalServerError) as error:
            sdk.chat.completions.create(
                model="sam", messages=[{"role": "user", "content": "Hi"}], stream=stream
            )
        assert error.value.status_code == 503
        assert (error.value.code, error.value.type) == ("model_unavailable", "server_error")
        assert "The model is down. Start it." in error.value.message
        assert [path for _, path in server.line.log].count("/v1/chat/completions") == 1


def test_a_turn_that_fails_behind_its_first_text_ends_the_stream_with_the_error(
    database: OneDatabase,
):
    down = ModelUnavailable("The model is down.")
    said = say("Wait.", request_heartbeat=True)
    with speaking(database, said, down, said, down) as (sdk, server):
        with Client(server.url) as client:
            agent = client.agents.find("sam")
            assert agent is not None
            client.agents.update(agent.id, options={"must_reply": False})
        stream = sdk.chat.completions.create(
            model="sam", messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        with pytest.raises(openai.APIError, match="The model is down"):
            list(stream)
        events = list(sdk.responses.create(model="sam", input="Hi", stream=True))
        last = events[-1]
        assert last.type == "response.failed"
        assert last.response.error is not None
        assert last.response.error.message == "The model is down."


def test_a_prompt_that_is_too_long_has_openais_code(database: OneDatabase):
    overflow = ContextOverflow("Too long.")
    with speaking(database, *[overflow] * 4) as (sdk, _):
        with pytest.raises(openai.BadRequestError) as error:
            sdk.responses.create(model="sam", input="Hi")
        assert error.value.code == "context_length_exceeded"


HI: Any = {"role": "user", "content": "Hi"}
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("asked", "parameter"),
    [
        ({"n": 2}, "n"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"logprobs": True}, "logprobs"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"modalities": ["text", "audio"], "audio": {"voice": "x"}}, "modalities"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"messages": [{"role": "User", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "wizard", "content": "x"}, HI]}, "messages[0].role"),
        ({"messages": [HI, {"role": "", "content": "x"}, HI]}, "messages[1].role"),
    ],
)
def test_what_an_agent_does_not_do_is_refused_by_its_name(
    database: OneDatabase, asked: dict[str, Any], parameter: str
):
    with speaking(database) as (sdk, _):
        with pytest.raises(openai.BadRequestError) as error:
            sdk.chat.completions.create(**{"model": "sam", "messages": [HI], **asked})
        assert error.value.param == parameter


def test_tools_that_may_not_be_called_are_taken(database: OneDatabase):
    with speaking(database, say("Hello.")) as (sdk, _):
        answer = sdk.chat.completions.create(
            model="sam",
            messages=[{"role": "user", "content": "Hi"}],
            tools=[TOOL],
            tool_choice="none",
        )
        assert answer.choices[0].message.content == "Hello."


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"tools": [{"type": "web_search"}]}, "invalid_input"),
        ({"background": True}, "invalid_input"),
        ({"text": {"format": {"type": "json_schema"}}}, "invalid_input"),
        ({"previous_response_id": "resp_x"}, "previous_response_not_found"),
        ({"model": None}, "invalid_input"),
        ({"input": 7}, "invalid_input"),
        ({"input": [{"role": "wizard", "content": "x"}, HI]}, "invalid_input"),
        ({"input": [{"content": "x"}]}, "invalid_input"),
    ],
)
def test_a_response_that_can_not_be_given_is_refused(
    database: OneDatabase, asked: dict[str, Any], code: str
):
    with speaking(database) as (sdk, _):
        with pytest.raises(openai.BadRequestError) as error:
            sdk.responses.create(**{"model": "sam", "input": "Hi", **asked})
        assert error.value.code == code


def test_other_methods_and_broken_bodies_have_the_same_shape(database: OneDatabase):
    with speaking(database) as (sdk, _):
        with pytest.raises(openai.APIStatusError) as refused:
            sdk.delete("/models/sam", cast_to=object)
        assert (refused.value.status_code, refused.value.type) == (405, "invalid_request_error")
        for ask in (sdk.conversations.create, sdk.files.list, sdk.batches.list):
            with pytest.raises(openai.NotFoundError) as unknown:
                ask()
            assert unknown.value.type == "invalid_request_error"
        with pytest.raises(openai.BadRequestError) as broken:
            sdk.post("/chat/completions", body={"model": "sam", "messages": []}, cast_to=object)
        assert broken.value.param == "messages"
