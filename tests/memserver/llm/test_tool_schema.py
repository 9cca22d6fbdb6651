import json

import pytest
from jsonschema import Draft202012Validator

from memserver.errors import InvalidInput, ProtocolViolation
from memserver.llm.tool_arguments import check_arguments, check_schema
from memserver.llm.tool_schema import (
    answer_schema,
    native_tools_json,
    response_format_json,
    tools_as_text,
)
from memserver.messages import ToolSpec

SEND = ToolSpec(
    "send_message",
    "Say something to the user.",
    {
        "type": "object",
        "properties": {
            "inner_thought": {"type": "string", "maxLength": 50},
            "message": {"type": "string", "description": "what to say", "maxLength": 200},
        },
        "required": ["message"],
    },
)
SEARCH = ToolSpec(
    "search",
    "",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "page": {"type": "integer", "default": 0},
            "exact": {"type": "boolean"},
            "order": {"enum": ["newest", "oldest"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "weight": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        },
        "required": ["query"],
    },
)
NOTHING = ToolSpec("now", "The time.", {"type": "object"})


def reported(spec: ToolSpec, arguments: dict[str, object]) -> str:
    with pytest.raises(ProtocolViolation) as caught:
        check_arguments(spec, arguments)
    return caught.value.message


def test_valid_arguments_come_back_unchanged():
    given = {"query": "2", "page": 2, "exact": True, "order": "newest", "tags": ["a"]}
    assert check_arguments(SEARCH, given) == given


@pytest.mark.parametrize(
    ("name", "given", "fitted"),
    [
        ("page", "2", 2),
        ("page", " -3 ", -3),
        ("page", 2.0, 2),
        ("exact", "true", True),
        ("exact", "False", False),
        ("weight", "2.5", 2.5),
        ("weight", "3", 3),
        ("tags", '["a", "b"]', ["a", "b"]),
        ("query", 5, "5"),
    ],
)
def test_a_value_that_can_be_had_without_loss_is_coerced(name: str, given: object, fitted: object):
    result = check_arguments(SEARCH, {"query": "x", name: given})[name]
    assert result == fitted
    assert type(result) is type(fitted)


PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "floor": {"type": "integer"},
        "within": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None},
    },
    "required": ["city"],
}
VISIT = ToolSpec(
    "visit",
    "",
    {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place", "description": "Where."},
            "others": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
            "note": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "string"}]},
        },
        "$defs": {"Place": PLACE},
    },
)


@pytest.mark.parametrize(
    ("given", "fitted"),
    [
        ({"place": '{"city": "Oslo", "floor": 2}'}, {"place": {"city": "Oslo", "floor": 2}}),
        ({"place": {"city": "Oslo", "floor": "2"}}, {"place": {"city": "Oslo", "floor": 2}}),
        (
            {"place": {"city": "Oslo", "within": '{"city": "Norway", "floor": 0.0}'}},
            {"place": {"city": "Oslo", "within": {"city": "Norway", "floor": 0}}},
        ),
        (
            {"others": '["{\\"city\\": \\"Oslo\\"}", {"city": 7}]'},
            {"others": [{"city": "Oslo"}, {"city": "7"}]},
        ),
        ({"note": '{"city": "Oslo"}'}, {"note": '{"city": "Oslo"}'}),
    ],
)
def test_an_object_within_is_read_from_text_and_fitted_as_an_argument_is(
    given: dict[str, object], fitted: dict[str, object]
):
    assert check_arguments(VISIT, given) == fitted


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("page", "two"),
        ("page", "007"),
        ("page", 2.5),
        ("page", True),
        ("page", ""),
        ("page", "9" * 400),
        ("exact", "yes"),
        ("exact", 1),
        ("query", True),
        ("query", ["x"]),
        ("tags", "a"),
        ("tags", '{"a": 1}'),
        ("tags", "[" * 5000),
        ("weight", "NaN"),
    ],
)
def test_a_value_that_would_lose_something_is_a_violation_naming_the_argument(
    name: str, given: object
):
    assert f"The argument {name} of search" in reported(SEARCH, {"query": "x", name: given})


def test_a_missing_argument_is_named():
    assert reported(SEND, {}) == "send_message needs the argument message: call it again with it."


def test_an_extra_argument_is_named_with_those_that_exist():
    message = reported(SEARCH, {"query": "hi", "name": "human"})
    assert message == (
        "search has no argument name; it takes query, page, exact, order, tags, weight."
    )


def test_a_wrong_type_says_what_is_wanted_and_what_came():
    assert reported(SEARCH, {"query": "x", "page": "two"}) == (
        'The argument page of search must be of type integer, not "two".'
    )


def test_a_text_that_is_too_long_says_both_lengths():
    note = ToolSpec("note", "", SEND.parameters)
    assert reported(note, {"message": "x" * 201}) == (
        "The argument message of note has 201 characters; at most 200 are allowed."
    )


def test_a_message_that_a_person_has_read_is_taken_beyond_its_limit_and_not_without_end():
    assert check_arguments(SEND, {"message": "x" * 20_000}) == {"message": "x" * 20_000}
    assert "has 20001 characters" in reported(SEND, {"message": "x" * 20_001})


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"inner_thought": "t" * 400}, {"inner_thought": "t" * 50}),
        ({"inner_thought": ["a", 1]}, {}),
        ({"inner_thought": None}, {}),
        ({"inner_thought": 7}, {"inner_thought": "7"}),
        ({"request_heartbeat": True}, {}),
        ({"color": "red", "tool": "x", "": None}, {}),
    ],
    ids=str,
)
def test_what_nobody_reads_never_costs_the_answer(given: dict[str, object], kept: object):
    assert check_arguments(SEND, {"message": "hi", **given}) == {"message": "hi", **kept}


def test_a_heartbeat_that_is_none_is_left_out_and_another_tools_private_words_as_well():
    assert check_arguments(SEARCH, {"query": "x", "request_heartbeat": "perhaps"}) == {"query": "x"}
    beating = {"type": "object", "properties": {"request_heartbeat": {"type": "boolean"}}}
    spec = ToolSpec("wait", "", beating)
    assert check_arguments(spec, {"request_heartbeat": "soon"}) == {}
    assert check_arguments(spec, {"request_heartbeat": "True"}) == {"request_heartbeat": True}


def test_a_forgiving_tool_leaves_out_what_it_does_not_know_and_another_one_refuses_it():
    deletes = {"type": "object", "properties": {"path": {"type": "string"}}}
    given = {"path": "a", "dry_run": True}
    assert check_arguments(ToolSpec("delete", "", deletes, forgiving=True), given) == {"path": "a"}
    assert "no argument dry_run" in reported(ToolSpec("delete", "", deletes), given)


def test_a_value_outside_the_choices_is_refused_with_the_choices():
    assert "must be one of: newest, oldest" in reported(SEARCH, {"query": "x", "order": "best"})


def test_several_faults_are_reported_together():
    message = reported(SEARCH, {"page": "x", "extra": 1})
    assert "needs the argument query" in message
    assert "has no argument extra" in message
    assert "The argument page" in message


@pytest.mark.parametrize(
    "arguments",
    [
        {f"extra {number}": number for number in range(500)},
        {"k" * 5000: 1},
        {"query": "x", "tags": [{"name": "x" * 500}] * 20_000},
    ],
)
def test_what_is_said_of_many_or_long_faults_is_short(arguments: dict[str, object]):
    message = reported(SEARCH, arguments)
    assert len(message) < 1000
    assert message.endswith(".")


def test_a_fault_deep_under_long_names_is_reported_in_short():
    spec = ToolSpec(
        "hook", "", {"type": "object", "additionalProperties": {"type": "string", "maxLength": 2}}
    )
    assert len(reported(spec, {"k" * 5000: 1, "l" * 5000: "abc"})) < 1000


def test_null_stands_for_an_optional_argument_left_out():
    assert check_arguments(SEARCH, {"query": "x", "page": None}) == {"query": "x"}


def test_null_is_kept_where_the_schema_takes_it():
    assert check_arguments(SEARCH, {"query": "x", "weight": None}) == {"query": "x", "weight": None}


def test_null_stands_for_an_argument_left_out_whose_schema_is_a_reference():
    spec = ToolSpec(
        "plan",
        "",
        {
            "type": "object",
            "properties": {"step": {"$ref": "#/$defs/step"}, "note": {"$ref": "#/$defs/note"}},
            "$defs": {"step": {"type": "string"}, "note": {"type": ["string", "null"]}},
        },
    )
    assert check_arguments(spec, {"step": None, "note": None}) == {"note": None}


def test_null_for_a_required_argument_is_a_violation():
    assert "The argument query of search" in reported(SEARCH, {"query": None})


def test_a_tool_that_allows_free_arguments_gets_them():
    spec = ToolSpec("hook", "", {"type": "object", "additionalProperties": True})
    assert check_arguments(spec, {"anything": [1]}) == {"anything": [1]}


@pytest.mark.parametrize(
    "parameters",
    [{"type": "string"}, {"type": "nonsense"}, {"type": "object", "properties": 3}],
)
def test_a_broken_schema_is_refused_at_registration(parameters: dict[str, object]):
    with pytest.raises(InvalidInput):
        check_schema(ToolSpec("bad", "", parameters))


def test_a_reference_to_another_host_is_never_fetched():
    spec = ToolSpec(
        "remote",
        "",
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}},
    )
    with pytest.raises(InvalidInput):
        check_arguments(spec, {"a": 1})


def test_native_tools_are_strict_and_name_every_property_as_required():
    send, search, now = json.loads(native_tools_json([SEND, SEARCH, NOTHING]))
    assert [tool["function"]["strict"] for tool in (send, search, now)] == [True, True, True]
    assert send["function"]["parameters"]["required"] == ["inner_thought", "message"]
    properties = search["function"]["parameters"]["properties"]
    assert properties["page"] == {"type": ["integer", "null"]}
    assert properties["order"]["anyOf"] == [{"enum": ["newest", "oldest"]}, {"type": "null"}]
    assert now["function"]["parameters"] == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
        "required": [],
    }


def test_a_schema_that_strict_mode_has_no_form_for_is_sent_as_it_is():
    parameters = {"type": "object", "properties": {"data": {"type": "object"}}}
    (tool,) = json.loads(native_tools_json([ToolSpec("hook", "", parameters)]))
    assert "strict" not in tool["function"]
    assert tool["function"]["parameters"]["properties"] == parameters["properties"]


@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        ({"tool": "send_message", "arguments": {"message": "hi"}}, True),
        ({"tool": "now", "arguments": {}}, True),
        ({"tool": "now", "arguments": {"message": "hi"}}, False),
        ({"tool": "send_message", "arguments": {"message": "x" * 201}}, False),
        ({"tool": "send_message", "arguments": {"message": "hi", "name": "x"}}, False),
        ({"tool": "send_message", "arguments": {"message": "hi"}, "more": 1}, False),
        ({"tool": "other", "arguments": {}}, False),
    ],
)
def test_the_schema_of_an_answer_takes_exactly_valid_calls(answer: object, fits: bool):
    assert Draft202012Validator(answer_schema([SEND, NOTHING])).is_valid(answer) is fits


def test_references_inside_a_tool_schema_hold_inside_the_schema_of_an_answer():
    spec = ToolSpec(
        "plan",
        "",
        {
            "type": "object",
            "properties": {"steps": {"type": "array", "items": {"$ref": "#/$defs/step"}}},
            "required": ["steps"],
            "$defs": {"step": {"type": "string", "maxLength": 3}},
        },
    )
    validator = Draft202012Validator(answer_schema([SEND, spec]))
    assert validator.is_valid({"tool": "plan", "arguments": {"steps": ["abc"]}})
    assert not validator.is_valid({"tool": "plan", "arguments": {"steps": ["abcd"]}})


def test_the_response_format_carries_the_schema_of_an_answer():
    form = json.loads(response_format_json([SEND, SEARCH]))
    assert form["type"] == "json_schema"
    assert form["json_schema"]["schema"] == answer_schema([SEND, SEARCH])


def test_the_tools_as_text_name_each_tool_with_its_description_and_arguments():
    text = tools_as_text([SEND, NOTHING])
    assert "- send_message: Say something to the user." in text
    assert "what to say" in text
    assert "- now: The time." in text
