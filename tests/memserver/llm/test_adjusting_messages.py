"""A prompt's messages in the order and the form that the endpoint takes."""

import json
from itertools import pairwise
from typing import Any

import pytest

from memserver.errors import (
    ModelRejected,
)
from memserver.messages import PromptMessage
from tests.memserver.llm.refusing_endpoint import (
    PLAIN,
    SHOWN,
    Body,
    Refusal,
    Stub,
    answer,
    call,
    openai,
    refusing,
)
from tests.support.model_contract import PROMPT, TOOLS


def mistral_order(body: Body) -> Refusal:
    roles = ["", *(message["role"] for message in body["messages"])]
    for before, role in pairwise(roles):
        if (before, role) in {("tool", "user"), ("user", "user"), ("assistant", "assistant")}:
            raw = json.dumps(
                {"object": "error", "message": f"Unexpected role '{role}' after role '{before}'"}
            )
            wrapped = {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}
            return 400, {"error": wrapped}
    return None


def gemma(body: Body) -> Refusal:
    """Gemma 2 on llama.cpp, by its template: strict roles, no system message, and no results of tools."""
    roles = [message["role"] for message in body["messages"]]
    if "system" in roles:
        return openai("Error: Jinja Exception: System role not supported", 500)
    if roles != [("user", "assistant")[place % 2] for place in range(len(roles))]:
        reported = "Error: Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/..."
        return openai(reported, 500)
    return None


def anthropic(body: Body) -> Refusal:
    if body["messages"][-1]["role"] == "assistant":
        return openai(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    for before, after in pairwise(body["messages"]):
        if before["role"] == after["role"] == "user":
            reported = 'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a row'
            return openai(reported)
    return None


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("refuse", [mistral_order, gemma, anthropic])
async def test_roles_are_put_in_the_order_that_a_template_demands(
    made, stub: Stub, refuse, streamed: bool
):
    stub.refuse = refuse
    model = made()
    for _ in range(2):
        assert await call(model, streamed=streamed) == "now"
    assert (await model.write(PROMPT, max_tokens=50)).text
    assert refuse(stub.last) is None
    asked = len(stub.bodies)
    await call(model, streamed=streamed)
    assert len(stub.bodies) == asked + 1


async def test_reasoning_that_may_not_come_back_stays_away(made, stub: Stub):
    def refuse(body: Body) -> Refusal:
        if any("reasoning_content" in message for message in body["messages"]):
            return openai(
                "'messages.2' : for 'role:assistant' the following must be satisfied"
                "[('messages.2' : property 'reasoning_content' is unsupported)]"
            )
        return None

    stub.refuse = refuse
    stub.reply = lambda body: {
        "choices": [
            {**choice, "message": {**choice["message"], "reasoning_content": "Hm."}}
            for choice in answer(body)["choices"]
        ]
    }
    model = made()
    reply = await model.call_tool(PLAIN, TOOLS, max_tokens=50)
    assert reply.fields is not None
    history = [
        *PLAIN,
        PromptMessage("assistant", "", reply.call, reply.fields),
        PromptMessage("tool", "OK", reply.call),
    ]
    await model.call_tool(history, TOOLS, max_tokens=50)
    assert model.profile.profile.returned_fields == "left_out"
    assert model.fields_of is None


async def test_a_server_without_templates_for_tools_keeps_its_roles(made, stub: Stub):
    stub.refuse = refusing("tools", openai("tools param requires --jinja flag", 500))
    model = made()
    assert await call(model) == "now"
    assert (model.mode, model.profile.unusual()) == ("json_schema", {})


async def test_where_no_form_is_taken_nothing_is_given_up(made, stub: Stub):
    model = made()
    await call(model)
    stub.refuse = lambda body: openai("Error: Jinja Exception: conversation roles must alternate")
    with pytest.raises(ModelRejected):
        await call(model)
    assert len(stub.bodies) > 3
    assert (model.mode, model.profile.unusual(), model.profile.changes) == ("tools", {}, ())
    stub.refuse = lambda body: None
    assert await call(model) == "now"


async def test_what_a_probe_gave_up_for_a_way_that_is_not_taken_stays(made, stub: Stub):
    stub.refuse = refusing("tools", openai("Error: Jinja Exception: there is no tool here", 500))
    model = made()
    await call(model)
    assert (model.mode, model.profile.unusual()) == ("json_schema", {})


async def test_text_beside_a_call_is_left_out_where_it_is_refused(made, stub: Stub):
    stub.refuse = lambda body: (
        openai("Assistant message must have either content or tool_calls, but not both.")
        if any(each.get("content") and "tool_calls" in each for each in body["messages"])
        else None
    )
    model = made(mode="tools")
    assert await call(model) == "now"
    step = next(each for each in stub.last["messages"] if "tool_calls" in each)
    assert (len(stub.bodies), step["content"]) == (2, "")


async def test_tools_that_a_template_can_not_render_have_their_own_schemas(made, stub: Stub):
    stub.refuse = lambda body: (
        openai("RecursionError: maximum recursion depth exceeded", 500)
        if '"null"' in json.dumps(body.get("tools", []))
        else None
    )
    model = made(mode="tools")
    assert await call(model) == "now"
    assert [tool["function"]["name"] for tool in stub.last["tools"]] == [
        each.name for each in TOOLS
    ]


@pytest.mark.parametrize("profile", [{}, {"roles": "alternating"}, {"system_role": "user"}])
@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_pictures_are_sent_as_parts_of_the_users_message(
    made, stub: Stub, mode: str, profile: Any
):
    model = made(mode=mode, profile=profile)
    await model.call_tool(SHOWN, TOOLS, max_tokens=50)
    [parts] = [each["content"] for each in stub.last["messages"] if type(each["content"]) is list]
    assert [part["type"] for part in parts][-2:] == ["text", "image_url"]
    assert parts[-1]["image_url"]["url"] == "data:image/png;base64,cG5n"
    assert model.takes_pictures


@pytest.mark.parametrize(
    "refusal",
    [
        openai("Invalid content type. image_url is only supported by certain models."),
        openai("Failed to deserialize: messages[1]: unknown variant `image_url`, expected `text`"),
        openai("image input is not supported - hint: you may need to provide the mmproj", 500),
        openai("m is not a multimodal model"),
    ],
)
async def test_a_model_without_pictures_is_sent_words_and_known_for_it(
    made, stub: Stub, refusal: Refusal
):
    stub.refuse = lambda body: refusal if "image_url" in json.dumps(body) else None
    model = made(mode="tools")
    await model.call_tool(SHOWN, TOOLS, max_tokens=50)
    assert "can't see pictures" in json.dumps(stub.last)
    assert not model.takes_pictures
    await call(model)
    assert model.profile.unusual() == {"pictures": False}
