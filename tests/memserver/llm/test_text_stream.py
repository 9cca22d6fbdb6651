import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memserver.errors import ProtocolViolation
from memserver.llm.answers import MOST_CALLS, StreamedReply
from memserver.llm.reply_parser import RawReply, parse_text
from memserver.llm.text_stream import ArgumentText, CallText, PlainText
from memserver.text import clean

ANY_TEXT = st.text(st.characters(exclude_categories=[]))
"""Lone surrogates and NUL included."""
OTHER_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["message", "tool", "a"]), inner)
    ),
    max_leaves=6,
)


def fed(stream: ArgumentText | CallText | PlainText, text: str, cuts: list[int]) -> str:
    places = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    return "".join(stream.feed(text[start:end]) for start, end in pairwise(places))


def dumped(value: object, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only)


CUTS = st.lists(st.integers(0, 10_000), max_size=30)


@settings(deadline=None)
@given(ANY_TEXT, OTHER_VALUES, OTHER_VALUES, st.booleans(), CUTS)
@example("😀", None, None, True, list(range(200)))
@example("\ud83d", "\ude00", [{"message": "no"}], True, list(range(200)))
def test_the_argument_comes_out_whole_for_any_text_and_any_cut(
    message: str, before: object, after: object, ascii_only: bool, cuts: list[int]
):
    arguments = {"inner_thought": before, "x": {"message": "no"}, "message": message, "z": after}
    text = dumped(arguments, ascii_only)
    assert fed(ArgumentText(), text, cuts) == clean(message)


@settings(deadline=None)
@given(ANY_TEXT, OTHER_VALUES, st.booleans(), st.booleans(), CUTS)
def test_the_message_of_a_json_call_comes_out_whole_for_any_text_and_any_cut(
    message: str, before: object, tool_first: bool, ascii_only: bool, cuts: list[int]
):
    arguments = {"before": before, "message": message}
    call = {"tool": "send_message", "arguments": arguments}
    if not tool_first:
        call = {"arguments": arguments, "tool": "send_message"}
    text = f"I feel {{happy}}. ```json\n{dumped(call, ascii_only)}\n``` {dumped(call, ascii_only)}"
    assert fed(CallText(), text, cuts) == clean(message)


@settings(deadline=None)
@given(ANY_TEXT, st.sampled_from(["", "<think>", " <think>a\n</think>", "\n"]), CUTS)
@example("\ud83d\ude00 ", "", list(range(200)))
@example("a \ud83d", "", list(range(200)))
@example("a \x00 ", "", list(range(200)))
@example("<thin", "", list(range(200)))
def test_plain_text_comes_out_as_it_is_parsed_for_any_text_and_any_cut(
    text: str, before: str, cuts: list[int]
):
    stream = PlainText()
    heard = fed(stream, before + text, cuts) + stream.end()
    try:
        assert heard == parse_text(RawReply(before + text))
    except ProtocolViolation:
        assert heard == ""


@settings(deadline=None)
@given(ANY_TEXT, st.booleans(), CUTS)
def test_nothing_comes_out_for_another_tool(message: str, tool_first: bool, cuts: list[int]):
    call = {"tool": "archival_memory_insert", "arguments": {"message": message}}
    if not tool_first:
        call = dict(reversed(call.items()))
    second = {"tool": "send_message", "arguments": {"message": "later"}}
    assert fed(CallText(), json.dumps(call) + json.dumps(second), cuts) == ""


@settings(deadline=None)
@given(ANY_TEXT, CUTS)
def test_nothing_that_is_fed_raises(text: str, cuts: list[int]):
    fed(ArgumentText(), text, cuts)
    fed(CallText(), '{"tool": "send_message", "arguments": {"message": "' + text, cuts)


def test_each_fragment_gives_what_it_brought():
    stream = ArgumentText()
    pieces = [stream.feed(part) for part in ['{"message": "He', "llo", " wor", 'ld"}']]
    assert pieces == ["He", "llo", " wor", "ld"]


def test_a_surrogate_pair_cut_in_two_comes_out_as_one_character():
    stream = ArgumentText()
    assert [stream.feed(part) for part in ['{"message": "\\ud8', "3d\\", "ude0", '0!"}']] == [
        "",
        "",
        "",
        "😀!",
    ]


@pytest.mark.parametrize(
    "text", ['{"message": 3}', '{"message": ["a"]}', '["message"]', '"message"']
)
def test_a_message_that_is_no_text_gives_nothing(text: str):
    assert ArgumentText().feed(text) == ""


def test_an_object_without_a_tool_before_the_call_is_skipped():
    text = '{"mood": {"message": "no"}} {"tool": "send_message", "arguments": {"message": "yes"}}'
    assert CallText().feed(text) == "yes"


@given(CUTS, st.sampled_from(["<think>", "\n <think>"]))
def test_a_call_in_the_reasoning_before_a_call_is_not_streamed(cuts: list[int], begin: str):
    call = '{"tool": "send_message", "arguments": {"message": "%s"}}'
    text = f"{begin}Perhaps {call % 'no'}? <b></think>\n{call % 'yes'}"
    assert fed(CallText(), text, cuts) == "yes"


@given(CUTS, st.sampled_from(["", " ", "<", "<thin", "<b>", "</think>", "Well `<think>`: "]))
def test_what_only_looks_like_reasoning_holds_nothing_back(cuts: list[int], begin: str):
    text = begin + '{"tool": "send_message", "arguments": {"message": "yes"}}'
    assert fed(CallText(), text, cuts) == "yes"


def test_of_very_many_calls_in_an_event_the_first_ones_are_read():
    call = {"function": {"name": "a", "arguments": "{}"}}
    calls = [{**call, "index": number} for number in range(2 * MOST_CALLS)]
    reply = StreamedReply()
    reply.add({"choices": [{"delta": {"tool_calls": calls}}]})
    assert reply.first_name == "a"
    assert len(reply.whole().calls) == MOST_CALLS
