"""A form of the answer, as each way of asking for a call puts it to the endpoint."""

import json
from typing import Any

import jsonschema
import pytest

from memserver.llm.tool_arguments import check_arguments
from memserver.llm.tool_schema import (
    native_tools_json,
    object_response_format_json,
    plain_tools_json,
    response_format_json,
)
from memserver.tools.memory_tools import SEND_MESSAGE, memory_tools
from memserver.tools.tool import SpecStyle
from memserver.tools.turn_request import TurnRequest

TREE = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/Node"}},
    "required": ["n"],
    "additionalProperties": False,
}
FORMS: list[tuple[Any, Any, Any]] = [
    ({"$defs": {"Node": TREE}, "$ref": "#/$defs/Node"}, {"n": 1, "next": {"n": 2}}, {"n": "x"}),
    ({"type": "array", "items": {"$ref": "#/$defs/Node"}, "$defs": {"Node": TREE}}, [{"n": 1}], 7),
    ({**TREE, "properties": {"n": {}, "next": {"$ref": "#"}}}, {"n": 1, "next": {"n": 2}}, [1]),
    ({"definitions": {"N": {"type": "integer"}}, "$ref": "#/definitions/N"}, 3, "x"),
    ({"enum": ["yes", "no"]}, "no", "perhaps"),
    ({"type": "object"}, {"a": 1}, [1]),
]


def parameters_of(tools: str) -> Any:
    [tool] = json.loads(tools)
    return tool["function"]["parameters"]


def answers_of(response_format: str) -> Any:
    return json.loads(response_format)["json_schema"]["schema"]


def full(value: Any) -> Any:
    """As strict schemas want it: what may be left out is null."""
    if isinstance(value, list):
        return [full(each) for each in value]
    if not isinstance(value, dict) or "n" not in value:
        return value
    return {"n": value["n"], "next": full(value.get("next"))}


def test_inner_objects_of_a_strict_schema_are_closed():
    """OpenAI refuses a strict schema that leaves that open."""
    city = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    form = {"type": "object", "properties": {"city": city}, "required": ["city"]}
    own = {each.spec.name: each for each in memory_tools()}
    [tool] = json.loads(
        native_tools_json([TurnRequest(form=form).add_to(own, SpecStyle())[SEND_MESSAGE].spec])
    )
    message = tool["function"]["parameters"]["properties"]["message"]
    assert tool["function"]["strict"] is True
    assert message["properties"]["city"]["additionalProperties"] is False


@pytest.mark.parametrize(("form", "right", "wrong"), FORMS)
def test_an_endpoint_can_hold_an_answer_to_its_form(form: Any, right: Any, wrong: Any):
    own = {each.spec.name: each for each in memory_tools()}
    request = TurnRequest.of(TurnRequest(form=form).stored())
    specs = [request.add_to(own, SpecStyle())[SEND_MESSAGE].spec]
    call = {"inner_thought": "So."}
    for schema, wrap in (
        (parameters_of(native_tools_json(specs)), lambda arguments: arguments),
        (parameters_of(plain_tools_json(specs)), lambda arguments: arguments),
        (answers_of(response_format_json(specs)), lambda a: {"tool": SEND_MESSAGE, "arguments": a}),
        (
            answers_of(object_response_format_json(specs)),
            lambda a: {"tool": SEND_MESSAGE, "arguments": a},
        ),
    ):
        jsonschema.Draft202012Validator.check_schema(schema)
        holds = jsonschema.Draft202012Validator(schema)
        assert not holds.is_valid(wrap({**call, "message": wrong}))
        found = [
            each for each in (right, full(right)) if holds.is_valid(wrap({**call, "message": each}))
        ]
        assert found
        taken = check_arguments(specs[0], {**call, "message": found[0]})
        assert taken["message"] == right
