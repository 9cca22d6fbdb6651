"""Answers that are held to a schema of the client's, by OpenAI's own Python client."""

import json
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from memserver.testing.scripted import Call, say
from tests.support.scripted_agent import Scripted

ASK: Any = [{"role": "user", "content": "Who am I?"}]


class Address(BaseModel):
    city: str
    zip: str | None = None


class Person(BaseModel):
    name: str
    kind: Literal["person", "robot"] = "person"
    addresses: list[Address] = []
    parent: "Person | None" = None


ADA = {
    "name": "Ada",
    "kind": "person",
    "addresses": [{"city": "Oslo", "zip": None}],
    "parent": None,
}


def send(message: object) -> Call:
    return Call("send_message", {"message": message})


def test_an_answer_is_parsed_into_the_clients_model(scripted: Scripted):
    scripted.begin(send({**ADA, "kind": "cat"}), send(ADA))
    answer = scripted.sdk.chat.completions.parse(
        model=scripted.name, messages=ASK, response_format=Person
    )
    assert answer.choices[0].message.parsed == Person.model_validate(ADA)
    assert answer.model_extra
    assert answer.model_extra["memserver"]["unused"] == []
    assert "kind" in scripted.model.seen[1].prompt[-1].text
    assert json.loads(scripted.history()[-1].text) == ADA


def test_a_response_is_parsed_into_the_clients_model(scripted: Scripted):
    scripted.begin(send(ADA))
    answer = scripted.sdk.responses.parse(model=scripted.name, input="Who?", text_format=Person)
    assert answer.output_parsed == Person.model_validate(ADA)


def test_a_streamed_answer_is_held_to_the_schema(scripted: Scripted):
    scripted.begin(send(ADA))
    with scripted.sdk.chat.completions.stream(
        model=scripted.name, messages=ASK, response_format=Person
    ) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == Person.model_validate(ADA)


ROOTS: list[tuple[Any, Any, Any]] = [
    ({"type": "array", "items": {"type": "integer"}}, ["a"], [1, 2]),
    ({"enum": ["yes", "no"]}, "perhaps", "yes"),
    ({"type": "string"}, 3.5, "hello"),
    (
        {"definitions": {"N": {"type": "integer"}}, "anyOf": [{"$ref": "#/definitions/N"}]},
        "x",
        7,
    ),
    (
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
        {"next": {"last": 1}},
        {"next": {"next": {}}},
    ),
]


@pytest.mark.parametrize(("schema", "wrong", "right"), ROOTS)
def test_any_root_is_held_to(scripted: Scripted, schema: Any, wrong: Any, right: Any):
    scripted.begin(send(wrong), send(right))
    answer = scripted.sdk.chat.completions.create(
        model=scripted.name,
        messages=ASK,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )
    assert json.loads(answer.choices[0].message.content or "") == right


def test_what_may_be_left_out_may_be_null(scripted: Scripted):
    """Strict tool calling makes a model write null for what it leaves out."""
    scripted.begin(send({"a": 1, "b": None, "c": {"d": None}}))
    inner = {"type": "object", "properties": {"d": {"type": "string"}}}
    schema: Any = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": inner},
        "required": ["a"],
    }
    answer = scripted.sdk.chat.completions.create(
        model=scripted.name,
        messages=ASK,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )
    assert json.loads(answer.choices[0].message.content or "") == {"a": 1, "c": {}}


@pytest.mark.parametrize("written", ['{"name": "Ada"}', '```json\n{"name": "Ada"}\n```'])
def test_a_model_that_writes_the_answer_instead_of_a_call_is_understood(
    scripted: Scripted, written: str
):
    scripted.begin(written)
    answer = scripted.sdk.chat.completions.create(
        model=scripted.name, messages=ASK, response_format={"type": "json_object"}
    )
    assert json.loads(answer.choices[0].message.content or "") == {"name": "Ada"}


def test_the_order_of_a_schema_is_kept(scripted: Scripted):
    """A model writes what comes first with less before it: an answer after its reasons is another one."""
    scripted.begin(send({"reasons": "It rains.", "go": False}))
    names = ["reasons", "go", "a", "zzzzzzzzzzzz", "b"]
    properties = {name: {} for name in names}
    schema: Any = {"type": "object", "properties": properties, "required": names[:2]}
    scripted.sdk.chat.completions.create(
        model=scripted.name,
        messages=ASK,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )
    [send_message] = [t for t in scripted.model.seen[0].tools if t.name == "send_message"]
    assert list(send_message.parameters["properties"]["message"]["properties"]) == names


def test_a_model_that_never_keeps_to_the_schema_fails_the_turn_alone(scripted: Scripted):
    scripted.begin(send({}), "Ada", send(7), say("Hello."))
    with pytest.raises(openai.APIStatusError) as failed:
        scripted.sdk.chat.completions.parse(
            model=scripted.name, messages=ASK, response_format=Person
        )
    assert failed.value.code == "model_protocol_violation"
    assert failed.value.response.headers["x-should-retry"] == "false"
    answer = scripted.sdk.chat.completions.create(model=scripted.name, messages=ASK)
    assert answer.choices[0].message.content == "Hello."


def test_a_schema_holds_beside_tools_and_after_their_results(scripted: Scripted):
    scripted.begin(Call("look", {}), send({"n": 1}))
    tools: Any = [{"type": "function", "function": {"name": "look"}}]
    form: Any = {"type": "json_object"}
    first = scripted.sdk.chat.completions.create(
        model=scripted.name, messages=ASK, tools=tools, response_format=form
    )
    [call] = first.choices[0].message.tool_calls or []
    result: Any = [
        first.choices[0].message.to_dict(),
        {"role": "tool", "tool_call_id": call.id, "content": "1"},
    ]
    second = scripted.sdk.chat.completions.create(
        model=scripted.name, messages=[*ASK, *result], tools=tools, response_format=form
    )
    assert second.choices[0].message.content == '{"n": 1}'


@pytest.mark.parametrize(
    "schema", [{"$ref": "#/$defs/no"}, {"type": "nothing"}, {"$ref": "https://x.example/s"}]
)
def test_a_schema_that_can_not_be_kept_is_refused(scripted: Scripted, schema: Any):
    scripted.begin()
    with pytest.raises(openai.BadRequestError) as refused:
        scripted.sdk.chat.completions.create(
            model=scripted.name,
            messages=ASK,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        )
    assert refused.value.param == "response_format"
