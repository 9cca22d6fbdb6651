"""What is read out of answers: a stream gives what the whole answer would have, in whatever shape servers cut it."""

import json
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memserver.llm.answers import StreamedReply, raw_reply
from memserver.llm.reply_parser import RawReply

JsonObject = dict[str, Any]
NAMES = ["send_message", "recall_memory_search", "recall_memory_search_ignore_case", "now"]
ARGUMENTS = st.one_of(
    st.dictionaries(
        st.text(max_size=4),
        st.recursive(
            st.text(max_size=8)
            | st.integers()
            | st.none()
            | st.sampled_from(['{"a": "', "\\", '"']),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
            max_leaves=4,
        ),
        max_size=4,
    )
)


def event(finish_reason: str | None = None, **delta: Any) -> JsonObject:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def completion(finish_reason: str = "tool_calls", **message: Any) -> JsonObject:
    message = {"role": "assistant", "content": None, "refusal": None, **message}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}


def call(name: str, arguments: object, **more: Any) -> JsonObject:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


def fed(events: list[JsonObject]) -> StreamedReply:
    reply = StreamedReply(NAMES)
    for each in events:
        reply.add(each)
    return reply


def cut(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted({each % (len(text) + 1) for each in cuts}), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


CUTS = st.lists(st.integers(0, 10_000), max_size=6)
INDEXES = st.sampled_from(["right", "none", "zero", "text", "from one"])
IDS = st.sampled_from(["first", "each", "late", "none", "other each time"])
NAMED = st.sampled_from(["first", "each", "late", "in pieces", "twice", "at the end"])
WHOLE_ARGUMENTS = st.sampled_from(["text", "object", "twice encoded"])


def pieces_of(
    place: int, asked: JsonObject, cuts: list[int], indexes: str, ids: str, named: str
) -> Iterator[JsonObject]:
    """One call, as a server cuts it."""
    function = asked["function"]
    arguments = function["arguments"]
    parts = cut(arguments, cuts) if isinstance(arguments, str) else [arguments]
    name = function["name"]
    names = {
        "first": [name],
        "each": [name] * len(parts),
        "late": [None, name],
        "in pieces": cut(name, [3, 7]),
        "twice": [name, name],
        "at the end": [*[None] * len(parts), name],
    }[named]
    count = max(len(parts), len(names))
    for number in range(count):
        said: JsonObject = {}
        if number < len(names) and names[number] is not None:
            said["name"] = names[number]
        if number < len(parts):
            said["arguments"] = parts[number]
        piece: JsonObject = {"type": "function", "function": said}
        if indexes != "none":
            piece["index"] = {
                "right": place,
                "zero": 0,
                "text": str(place),
                "from one": place + 1,
            }[indexes]
        given = {
            "first": number == 0,
            "each": True,
            "late": number == count - 1,
            "none": False,
        }.get(ids)
        if given is None:
            piece["id"] = asked["id"] if number == 0 else f"other{place}{number}"
        elif given:
            piece["id"] = asked["id"]
        yield piece


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), ARGUMENTS, CUTS), min_size=1, max_size=3),
    INDEXES,
    IDS,
    NAMED,
    WHOLE_ARGUMENTS,
)
@example([("send_message", {"a": '{"b": "'}, list(range(30)))] * 2, "zero", "none", "first", "text")
@example([("send_message", {"m": 1}, [3])] * 2, "none", "none", "each", "text")
@example([("now", {}, [])] * 2, "zero", "first", "twice", "object")
@example([("now", {"a": 1}, [2]), ("send_message", {}, [])], "none", "late", "late", "text")
@example([("now", {"a": 1}, [2])] * 2, "zero", "other each time", "first", "text")
def test_calls_come_out_as_in_the_whole_answer_however_they_are_cut(
    asked: list[tuple[str, JsonObject, list[int]]], indexes: str, ids: str, named: str, form: str
) -> None:
    unambiguous = indexes not in ("none", "zero")
    if not unambiguous and len(asked) > 1 and (named == "at the end" or ids == "other each time"):
        asked = asked[:1]  # nobody could tell whose name or id it is
    calls = []
    for place, (name, arguments, _) in enumerate(asked):
        text = json.dumps(arguments)
        given = {"text": text, "object": arguments or "{}", "twice encoded": json.dumps(text)}[form]
        calls.append(call(name, given, id=f"id{place}"))
    events = [
        event(tool_calls=[piece])
        for place, (each, (_, _, cuts)) in enumerate(zip(calls, asked, strict=True))
        for piece in pieces_of(place, each, cuts, indexes, ids, named)
    ]
    streamed = fed([event(role="assistant", content=""), *events, event("tool_calls")]).whole()
    whole = raw_reply(completion(tool_calls=calls))
    assert plain(streamed, with_ids=ids != "none") == plain(whole, with_ids=ids != "none")


def plain(reply: RawReply, *, with_ids: bool) -> list[object]:
    """Calls and the rest, arguments as text."""
    calls = [
        (
            each.name,
            each.arguments
            if isinstance(each.arguments, str)
            else json.dumps(each.arguments, ensure_ascii=False),
            each.id if with_ids else "",
            each.fields,
        )
        for each in reply.calls
    ]
    rest = (reply.content, reply.reasoning, reply.refusal, reply.finish_reason, reply.fields)
    return [calls, rest]


DETAIL_PIECES = [
    {"type": "reasoning.text", "text": "Let", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.text", "text": " me see.", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.text", "signature": "Et8B", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "index": 1},
    {"type": "reasoning.summary", "summary": "She ", "index": 2},
    {"type": "reasoning.summary", "summary": "asks.", "index": 2},
]
DETAILS = [
    {
        "type": "reasoning.text",
        "text": "Let me see.",
        "format": "anthropic-claude-v1",
        "index": 0,
        "signature": "Et8B",
    },
    {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "index": 1},
    {"type": "reasoning.summary", "summary": "She asks.", "index": 2},
]
BLOCK_PIECES = [
    {"type": "thinking", "thinking": "Let", "signature": None},
    {"type": "thinking", "thinking": " me see."},
    {"type": "thinking", "thinking": "", "signature": "Et8B"},
    {"type": "redacted_thinking", "data": "abc"},
    {"type": "redacted_thinking", "data": "def"},
    {"type": "thinking", "thinking": "More."},
]
BLOCKS = [
    {"type": "thinking", "thinking": "Let me see.", "signature": "Et8B"},
    {"type": "redacted_thinking", "data": "abc"},
    {"type": "redacted_thinking", "data": "def"},
    {"type": "thinking", "thinking": "More."},
]
SIGNED = {"google": {"thought_signature": "CpAB" * 40}}
FIELDS = {
    "reasoning_content": "Let me see.",
    "reasoning": "Let me see.",
    "reasoning_details": DETAILS,
    "thinking_blocks": BLOCKS,
    "provider_specific_fields": {"thinking_blocks": BLOCKS, "thought_signatures": ["a", "b"]},
    "extra_content": SIGNED,
    "something_new": {"deep": ["x"], "flag": True, "count": 3},
}
STREAMED_FIELDS = [
    {"role": "assistant", "content": "", "reasoning_content": "Let", "reasoning": "L"},
    {"reasoning_content": " me see.", "reasoning": "et me", "extra_content": SIGNED},
    {"reasoning": " see.", "reasoning_content": None, "extra_content": SIGNED},
    *({"reasoning_details": [each]} for each in DETAIL_PIECES),
    *({"thinking_blocks": [each]} for each in BLOCK_PIECES),
    *({"provider_specific_fields": {"thinking_blocks": [each]}} for each in BLOCK_PIECES),
    {"provider_specific_fields": {"thought_signatures": ["a"]}},
    {"provider_specific_fields": {"thought_signatures": ["b"]}},
    {"something_new": {"deep": ["x"], "flag": True}},
    {"something_new": {"count": 3}},
]


def test_fields_beyond_the_standard_come_out_as_in_the_whole_answer() -> None:
    empty: JsonObject = {
        "annotations": [],
        "audio": None,
        "function_call": None,
        "citations": [],
        "prefix": "",
    }
    whole = raw_reply(completion("stop", content="Hi", **FIELDS, **empty))
    assert whole.fields == FIELDS
    events = [event(**delta) for delta in [*STREAMED_FIELDS, {"content": "Hi", **empty}]]
    streamed = fed([*events, event("stop")]).whole()
    assert streamed == whole


def test_a_calls_own_fields_come_out_wherever_they_stand() -> None:
    signature = "CpAB" * 40
    beside = call("now", "{}", id="a", extra_content={"google": {"thought_signature": signature}})
    inside = call("now", "{}", id="b")
    inside["function"]["provider_specific_fields"] = {"thought_signature": signature}
    whole = raw_reply(completion(tool_calls=[beside, inside]))
    google = {"google": {"thought_signature": signature}}
    within = {"function": {"provider_specific_fields": {"thought_signature": signature}}}
    assert [each.fields for each in whole.calls] == [{"extra_content": google}, within]
    repeated = [
        event(tool_calls=[{**deepcopy(each), "index": place}])
        for place, each in enumerate((beside, inside))
    ]
    more = event(tool_calls=[{"index": 0, "extra_content": google, "function": {"arguments": ""}}])
    assert fed([*repeated, more, event("tool_calls")]).whole() == whole


@pytest.mark.parametrize("streamed", [False, True])
def test_what_a_model_says_when_it_refuses_is_no_content(streamed: bool) -> None:
    if streamed:
        reply = fed([event(refusal="I can't"), event(refusal=" help."), event("stop")]).whole()
    else:
        reply = raw_reply(completion("stop", refusal="I can't help."))
    assert (reply.refusal, reply.content, dict(reply.fields)) == ("I can't help.", "", {})


def test_a_whole_answer_where_a_stream_was_requested_is_the_answer() -> None:
    answer = completion(content="Well.", tool_calls=[call("now", {"a": 1}, id="x")], reasoning="hm")
    reply = StreamedReply(NAMES)
    assert reply.add(answer) == ("Well.", '{"a": 1}')
    assert reply.first_name == "now"
    assert reply.whole() == raw_reply(answer)
    assert reply.finish_reason == "tool_calls"


def test_a_whole_message_after_its_pieces_adds_nothing() -> None:
    reply = fed([event(content="Hi"), event("stop"), completion("stop", content="Hi")])
    assert (reply.whole().content, reply.finish_reason) == ("Hi", "stop")


def test_a_stream_that_said_no_reason_to_end_has_none() -> None:
    assert fed([event(content="Half"), event()]).finish_reason == ""


def test_text_of_a_call_is_streamed_whose_name_comes_late() -> None:
    reply = StreamedReply(NAMES)
    first = reply.add(event(tool_calls=[{"index": 0, "function": {"arguments": '{"mess'}}]))
    assert (first, reply.first_name) == (("", '{"mess'), "")
    late = {"index": 0, "function": {"name": "send_message", "arguments": 'age": "Hi"}'}}
    assert reply.add(event(tool_calls=[late])) == ("", 'age": "Hi"}')
    assert reply.first_name == "send_message"


@pytest.mark.parametrize(
    ("pieces", "name"),
    [
        (["send_", "message"], "send_message"),
        (["send_", "send_message", "send_message"], "send_message"),
        (["functions.", "send_message"], "functions.send_message"),
        (["send_message", "<|channel|>json"], "send_message<|channel|>json"),
        (["send_message<|x|>", "send_message<|x|>"], "send_message<|x|>"),
        (["recall_memory_search", "_ignore_case"], "recall_memory_search_ignore_case"),
        (["unknown", "unknown"], "unknown"),
        (["now", "send_message"], "now"),
    ],
)
def test_a_name_is_put_together_by_the_names_there_are(pieces: list[str], name: str) -> None:
    reply = fed([event(tool_calls=[{"index": 0, "function": {"name": each}}]) for each in pieces])
    assert reply.whole().calls[0].name == name


@pytest.mark.parametrize(
    "odd",
    [
        {"tool_calls": {"index": 0, "function": {"name": "now", "arguments": "{}"}}},
        {"tool_calls": [None, 3, "x", {"function": None}, {"function": {"name": 3}}]},
        {"tool_calls": [{"index": True, "id": 7, "function": {"arguments": [1]}}]},
        {"reasoning_details": [{"index": [1]}, {"index": [1]}, 3], "a": {"b": 1}},
        {"a": 3},
        {"a": [{"b": "c"}]},
    ],
)
def test_whatever_comes_is_read_without_an_error(odd: JsonObject) -> None:
    assert fed([event(**odd), event(**odd), event("stop")]).whole().finish_reason == "stop"


def test_very_many_calls_are_bounded() -> None:
    reply = StreamedReply(NAMES)
    for number in range(3):
        places = range(900 * number, 900 * number + 900)
        calls = [{"index": place, "function": {"name": "now"}} for place in places]
        reply.add(event(tool_calls=calls))
    assert len(reply.whole().calls) == 1000
