import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memserver.errors import ProtocolViolation
from memserver.llm.reply_parser import RawCall, RawReply, parse_json, parse_native
from memserver.messages import ToolSpec

SEND = ToolSpec(
    "send_message",
    "",
    {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
)
NOW = ToolSpec("now", "", {"type": "object", "properties": {"zone": {"type": "string"}}})
ANY = ToolSpec("any", "", {"type": "object", "additionalProperties": True})
TOOLS = [SEND, NOW, ANY]
HI = '{"tool": "send_message", "arguments": {"message": "hi"}}'


def native(*calls: RawCall, content: str = "", finish: str = "tool_calls") -> RawReply:
    return RawReply(content=content, calls=calls, finish_reason=finish)


def violation(reply: RawReply, parse=parse_native) -> ProtocolViolation:
    with pytest.raises(ProtocolViolation) as caught:
        parse(reply, TOOLS)
    return caught.value


def test_a_native_call_is_read_with_the_prose_beside_it():
    reply = native(RawCall("send_message", '{"message": "hi"}'), content=" She greets. ")
    parsed = parse_native(reply, TOOLS)
    assert (parsed.call.name, parsed.call.arguments) == ("send_message", {"message": "hi"})
    assert parsed.text == "She greets."


def test_every_call_has_an_id_of_its_own():
    reply = native(RawCall("now", "{}"))
    assert parse_native(reply, TOOLS).call.id != parse_native(reply, TOOLS).call.id


def test_of_two_native_calls_the_first_counts():
    reply = native(RawCall("now", "{}"), RawCall("send_message", '{"message": "hi"}'))
    assert parse_native(reply, TOOLS).call.name == "now"


def test_an_invalid_first_call_is_a_violation_even_if_the_second_is_valid():
    reply = native(RawCall("nope", "{}"), RawCall("send_message", '{"message": "hi"}'))
    assert "There is no tool nope" in violation(reply).complaint


@pytest.mark.parametrize("arguments", [None, "", "  ", "null", "{}", {}])
def test_no_arguments_are_an_empty_object_for_a_tool_that_needs_none(arguments: object):
    assert parse_native(native(RawCall("now", arguments)), TOOLS).call.arguments == {}


@pytest.mark.parametrize("arguments", [None, "", "null", "{}"])
def test_no_arguments_are_a_violation_for_a_tool_that_needs_one(arguments: object):
    reply = native(RawCall("send_message", arguments))
    assert "needs the argument message" in violation(reply).complaint


def test_arguments_encoded_twice_are_read():
    twice = json.dumps(json.dumps({"message": "hi"}))
    parsed = parse_native(native(RawCall("send_message", twice)), TOOLS)
    assert parsed.call.arguments == {"message": "hi"}


@pytest.mark.parametrize("arguments", ["[1]", "3", '"text"', [1], True, '"\\"again\\""'])
def test_arguments_of_another_shape_are_a_violation(arguments: object):
    assert violation(native(RawCall("send_message", arguments))).complaint


def test_an_unknown_tool_is_answered_with_those_that_exist():
    message = violation(native(RawCall("fly", "{}"))).complaint
    assert message == "There is no tool fly. Call one of: send_message, now, any."


@pytest.mark.parametrize("name", [None, 3, "", ["send_message"]])
def test_a_name_that_is_no_name_is_a_violation(name: object):
    assert "There is no tool" in violation(native(RawCall(name, "{}"))).complaint


def test_arguments_that_break_off_are_reported_as_the_output_limit():
    reply = native(RawCall("send_message", '{"message": "hi'), finish="length")
    assert "output limit" in violation(reply).complaint


def test_missing_arguments_are_not_taken_as_none_when_the_reply_was_cut_off():
    assert "output limit" in violation(native(RawCall("now", ""), finish="length")).complaint


def test_a_native_call_that_looks_whole_is_not_trusted_when_the_reply_was_cut_off():
    reply = native(RawCall("send_message", '{"message": "hi"}'), finish="length")
    assert "output limit" in violation(reply).complaint


def test_a_complete_call_counts_even_if_the_reply_was_cut_off_after_it():
    parsed = parse_json(RawReply(HI + "\n\n\n", finish_reason="length"), TOOLS)
    assert parsed.call.name == "send_message"
    calls = (RawCall("send_message", '{"message": "hi"}'), RawCall("now", ""))
    first = parse_native(RawReply(calls=calls, finish_reason="length"), TOOLS)
    assert first.call.name == "send_message"


@pytest.mark.parametrize("content", ["", "  \n"])
def test_an_empty_reply_is_a_violation(content: str):
    for parse in (parse_native, parse_json):
        assert "Your answer was empty" in violation(RawReply(content), parse).complaint


def test_a_reply_of_reasoning_only_is_a_violation_that_says_so():
    error = violation(RawReply(reasoning="Let me think."))
    assert "reasoning only" in error.complaint
    assert "Let me think" not in error.raw + error.message


def test_plain_text_is_a_violation_that_keeps_the_raw_reply():
    error = violation(RawReply("Hello there!"))
    assert "text without a tool call" in error.complaint
    assert error.raw == "Hello there!"


@pytest.mark.parametrize(
    "content", [HI, f"```json\n{HI}\n```", f"<tool_call>\n{HI}\n</tool_call>", f"  {HI}"]
)
def test_a_native_reply_whose_content_is_the_call_is_read(content: str):
    assert parse_native(RawReply(content), TOOLS).call.arguments == {"message": "hi"}


def test_a_native_reply_that_only_quotes_a_call_is_a_violation():
    assert violation(RawReply(f"You could write {HI} to greet.")).complaint


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (HI, ""),
        (f"I will greet. {HI} Done.", "I will greet."),
        (f"```json\n{HI}\n```", ""),
        (f"I feel {{happy}} today: {HI}", "I feel {happy} today:"),
        (f'{{"mood": "fine"}} {HI}', '{"mood": "fine"}'),
    ],
)
def test_a_json_call_is_found_in_what_surrounds_it(content: str, text: str):
    parsed = parse_json(RawReply(content), TOOLS)
    assert parsed.call.arguments == {"message": "hi"}
    assert parsed.text == text


def test_of_two_json_objects_the_first_counts():
    parsed = parse_json(RawReply('{"tool":"now","arguments":{}}' + HI), TOOLS)
    assert parsed.call.name == "now"


def test_the_names_of_other_formats_are_understood():
    parsed = parse_json(RawReply('{"name":"send_message","parameters":{"message":"hi"}}'), TOOLS)
    assert parsed.call.arguments == {"message": "hi"}


@pytest.mark.parametrize("cut", range(2, len(HI) - 1, 5))
def test_truncated_json_is_a_violation_wherever_it_was_cut(cut: int):
    assert "not valid JSON" in violation(RawReply(HI[:cut] + '"'), parse_json).complaint
    cut_off = RawReply(HI[:cut], finish_reason="length")
    assert "output limit" in violation(cut_off, parse_json).complaint


def test_a_call_inside_a_truncated_call_is_never_taken():
    inner = '{"tool":"any","arguments":{"payload":{"tool":"now","arguments":{}}'
    assert violation(RawReply(inner), parse_json).complaint


@pytest.mark.parametrize(
    "content",
    [
        '{"tool":"any","arguments":' + '{"a":' * 5000,
        '{"tool":"any","arguments":' + '{"a":' * 300 + "1" + "}" * 301,
        '{"tool":"any","arguments":{"a":NaN}}',
        '{"tool":"any","arguments":{"a":1e999}}',
        '{"tool":"any","arguments":{"a":' + "9" * 6000 + "}}",
        '{"tool":"any","arguments":{"a":' + "9" * 400 + "}}",
        '{"tool":"any","arguments":[1,2]}',
        '{"tool":null}',
        "[]",
        "{}" * 500,
    ],
)
def test_hostile_json_is_a_violation_and_nothing_else(content: str):
    assert violation(RawReply(content), parse_json).complaint
    assert violation(native(RawCall("any", content[26:-1] or "[")), parse_native).complaint


def test_a_number_that_arithmetic_with_a_float_fails_on_is_a_violation():
    share = ToolSpec("cut", "", {"type": "object", "properties": {"share": {"multipleOf": 0.5}}})
    reply = native(RawCall("cut", '{"share": ' + "9" * 400 + "}"))
    with pytest.raises(ProtocolViolation) as caught:
        parse_native(reply, [share])
    assert "too large" in caught.value.complaint


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "call", [RawCall(nested(5000), "{}"), RawCall("any", nested(5000)), RawCall("x" * 5000, "{}")]
)
def test_what_can_not_be_shown_of_a_call_is_reported_in_short(call: RawCall):
    assert len(violation(native(call)).complaint) < 300


@pytest.mark.parametrize(
    "text",
    [
        "Hello!",
        "Right now: nothing (any more).",
        "Call it {happy}, or any {thing}.",
        'The JSON is {"a": 1}.',
        "I used send_message, as you said.",
    ],
)
def test_plain_words_are_kept_without_the_reasoning_around_them(text: str):
    for parse in (parse_native, parse_json):
        error = violation(RawReply(f"<think>Hm.</think>\n{text} "), parse)
        assert (error.words, error.thought) == (text, "Hm.")


@pytest.mark.parametrize(
    "text", [" " * 1_000_000, "{ " * 100_000, "<|channel|>" * 50_000, "a</think>" * 50_000]
)
def test_very_much_of_nothing_is_read_soon(text: str):
    for parse in (parse_native, parse_json):
        for reply in (RawReply(f"{text}x"), native(RawCall(f"{text}x", "{}"))):
            assert violation(reply, parse).complaint


@pytest.mark.parametrize(
    "text",
    [
        "",
        HI[:30],
        f"Try {HI[:-3]}",
        "now()",
        'any {"a": 1}',
        "send_message: Hello!",
        "now<|channel|>commentary",
        '[{"name": "now"}]',
        "<tool_call>now</tool_call>",
    ],
)
def test_half_a_call_is_no_plain_words(text: str):
    assert violation(RawReply(text)).words == ""


def test_of_very_many_tools_a_violation_names_some():
    tools = [ToolSpec(f"tool_number_{number}", "", {"type": "object"}) for number in range(500)]
    with pytest.raises(ProtocolViolation) as caught:
        parse_json(RawReply("Hello!"), tools)
    assert "tool_number_0, tool_number_1" in caught.value.complaint
    assert len(caught.value.complaint) < 1000


def test_nul_and_lone_surrogates_never_pass():
    content = '{"tool":"send_message","arguments":{"message":"a\\u0000b\\ud83dc\\ud83d\\ude00"}}'
    assert parse_json(RawReply(content), TOOLS).call.arguments["message"] == "ab\ufffdc😀"


@pytest.mark.parametrize("text", ["你好", "שלום", "😀", "\\u4f60", 'quote " and \\ slash'])
def test_any_script_comes_through_verbatim(text: str):
    for ensure_ascii in (True, False):
        arguments = json.dumps({"message": text}, ensure_ascii=ensure_ascii)
        parsed = parse_native(native(RawCall("send_message", arguments)), TOOLS)
        assert parsed.call.arguments["message"] == text


def test_the_raw_reply_kept_for_the_record_is_bounded():
    assert len(violation(RawReply("word " * 100_000)).raw) == 10_000


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(deadline=None)
@given(
    st.text() | JSON_VALUES.map(json.dumps),
    JSON_VALUES,
    JSON_VALUES,
    st.sampled_from(["", "length"]),
)
def test_no_reply_raises_anything_but_a_violation(content, name, arguments, finish):
    calls = (RawCall(name, arguments), RawCall("send_message", arguments))
    for reply in (
        RawReply(content, finish_reason=finish),
        RawReply(content, calls, finish_reason=finish),
        RawReply(content, calls[1:], finish_reason=finish),
        RawReply(json.dumps({"tool": "any", "arguments": arguments}), finish_reason=finish),
    ):
        for parse in (parse_native, parse_json):
            try:
                parsed = parse(reply, TOOLS)
            except ProtocolViolation as violation:
                assert violation.complaint  # noqa: PT017 - most replies raise
            else:
                json.dumps(parsed.call.arguments, allow_nan=False, ensure_ascii=False).encode()
