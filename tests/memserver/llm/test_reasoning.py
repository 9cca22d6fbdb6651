"""Thoughts in the content of a reply, in the markings of many models, whole and in any pieces."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memserver.errors import ProtocolViolation
from memserver.llm.reasoning import separate
from memserver.llm.reply_parser import RawCall, RawReply, parse_json, parse_native, parse_text
from memserver.llm.text_stream import CallText, PlainText
from memserver.messages import ToolSpec

SEND = ToolSpec(
    "send_message",
    "",
    {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
)
TOOLS = [SEND, ToolSpec("now", "", {"type": "object", "properties": {}})]
THOUGHT = 'Hm. SECRET "quoted" {braces} \u65e5\u672c'
CALL = '{"tool": "send_message", "arguments": {"message": "%s"}}'
OPENED = [
    *("<think>%s</think>", "<thinking>\n%s\n</thinking>\n", "<THINK>%s</Think>"),
    *("<thought>%s</thought>", "<reasoning>%s</reasoning>", "<reflection>%s</reflection>"),
    *("<seed:think>%s</seed:think>", "<scratchpad>%s</scratchpad>", "<think>%s</thinking>"),
    *("[THINK]%s[/THINK]", "\u25c1think\u25b7%s\u25c1/think\u25b7"),
    "<|begin_of_thought|>%s<|end_of_thought|><|begin_of_solution|>",
    "<|START_THINKING|>%s<|END_THINKING|><|START_RESPONSE|>",
    "<|channel|>analysis<|message|>%s<|end|><|start|>assistant<|channel|>final<|message|>",
    "<|start|>assistant<|channel|>analysis<|message|>%s<|end|>",
    "<|channel|>commentary<|message|>%s<|end|><|channel|>final<|message|>",
    "<|channel>thought\n%s<channel|>",
    "<unused94>thought\n%s<unused95>",
    *("<think>%s</think>\n<answer>", "<think>a</think><think>%s</think>"),
]
LEADING = ["analysis%sassistantfinal", "Here is my thought process:%sHere is my response:"]
UNOPENED = ["%s</think>", "\n%s\n</think>\n", "%s</thinking>", "%s[/THINK]", "%s</seed:think>"]
CUTS = st.lists(st.integers(0, 10_000), max_size=30)
EACH_CHARACTER = list(range(500))


def spoken(text: str) -> str:
    """What is said in a plain reply; empty where nothing is."""
    try:
        return parse_text(RawReply(text))
    except ProtocolViolation:
        return ""


def heard(stream: PlainText | CallText, text: str, cuts: list[int]) -> str:
    places = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    return "".join(stream.feed(text[start:end]) for start, end in pairwise(places)) + stream.end()


@pytest.mark.parametrize("before", ["", " \n"])
@pytest.mark.parametrize("marking", [*OPENED, *LEADING, *UNOPENED])
def test_a_thought_in_any_marking_is_neither_text_nor_call(marking: str, before: str):
    thought = f"{before}{marking % (THOUGHT + CALL % 'no')}"
    assert parse_text(RawReply(thought + "Hello!")) == "Hello!"
    parsed = parse_json(RawReply(thought + CALL % "yes"), TOOLS)
    assert parsed.call.arguments == {"message": "yes"}
    assert "SECRET" in parsed.text
    call = RawCall("send_message", '{"message": "yes"}')
    assert "SECRET" in parse_native(RawReply(thought, (call,)), TOOLS).text


@pytest.mark.parametrize("marking", OPENED)
def test_a_thought_in_the_middle_or_without_an_end_is_none_of_the_text(marking: str):
    assert "SECRET" not in spoken(f"Hello {marking % THOUGHT} world")
    assert spoken(f"Hello {marking % THOUGHT} world").startswith("Hello")
    assert spoken(f"Hello {marking % THOUGHT} world").endswith("world")
    cut = (marking % (THOUGHT + CALL % "no")).rpartition("no")[0]
    assert spoken(cut) == spoken(f"{cut}\n\nmore") == ""
    with pytest.raises(ProtocolViolation) as caught:
        parse_json(RawReply(cut + 'no"}}'), TOOLS)
    assert "SECRET" not in caught.value.raw + caught.value.message + caught.value.words


def test_a_thought_is_kept_as_reasoning_beside_what_the_endpoint_took_apart():
    reply = RawReply(f"<think>b</think>{CALL % 'hi'}", reasoning="a")
    assert parse_json(reply, TOOLS).text == "a\n\nb"


@pytest.mark.parametrize(
    "text",
    [
        "The tag `<think>` opens a thought and `</think>` ends it.",
        'Write "<think>" and then "</think>".',
        "2 < 3, <b>bold</b>, [TODO], <channel>, <|",
        "An analysis: assistant final.",
        "analysis of the data shows little",
        "<answer>42</answer>",
        "Use </div>.",
        "<thinker>",
    ],
)
def test_what_only_speaks_of_markers_is_text(text: str):
    assert spoken(text) == text
    assert heard(PlainText(), text, EACH_CHARACTER) == text


@pytest.mark.parametrize("before", ["", " \n", "Well: ", "<", "`", "<think>a</think>\n"])
@pytest.mark.parametrize("marker", ["<think>", "</think>", "<|end|>", "[THINK]"])
def test_a_marker_in_a_message_of_a_call_is_its_text(marker: str, before: str):
    content = f"{before}{CALL % f'The tag {marker} is one.'}"
    assert parse_json(RawReply(content), TOOLS).call.arguments == {
        "message": f"The tag {marker} is one."
    }
    assert heard(CallText(), content, EACH_CHARACTER) == f"The tag {marker} is one."


@pytest.mark.parametrize(
    "content",
    [
        "<|channel|>analysis<|message|>SECRET<|end|><|start|>assistant<|channel|>commentary"
        ' to=functions.send_message <|constrain|>json<|message|>{"message": "hi"}<|call|>',
        '<|channel|>commentary to=functions.send_message<|message|>{"message": "hi"}',
        'analysisSECRETassistantcommentary to=functions.send_messagejson{"message": "hi"}',
        'commentary to=functions.send_message json{"message": "hi"}',
    ],
)
def test_a_call_in_a_channel_is_a_call_and_in_plain_chat_a_thought(content: str):
    for parse in (parse_native, parse_json):
        assert parse(RawReply(content), TOOLS).call.arguments == {"message": "hi"}
    assert heard(CallText(TOOLS), content, EACH_CHARACTER) == "hi"
    assert spoken(content) == heard(PlainText(), content, EACH_CHARACTER) == ""


PARTS = st.sampled_from(
    [
        *(marking % "SECRET" for marking in [*OPENED, *LEADING]),
        *(marking.partition("%s")[0] for marking in OPENED),
        *("<|end|>", "</answer>", "<answer>", "`", '"', "analysis", "assistantfinal", "<thi", "<"),
        *("Hello", " \n", "\ud83d", "\ude00", "\x00", "A"),
    ]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(PARTS, max_size=6).map("".join), CUTS)
@example("<think>a</think>`<think>`", EACH_CHARACTER)
@example("analysis", EACH_CHARACTER)
@example("<|channel|>final", EACH_CHARACTER)
def test_plain_text_streams_as_it_is_parsed_for_any_thoughts_and_any_cut(
    text: str, cuts: list[int]
):
    assert heard(PlainText(), text, cuts) == spoken(text)


@settings(deadline=None)
@given(st.lists(PARTS, max_size=3).map("".join), st.sampled_from(OPENED), CUTS)
def test_a_calls_message_streams_as_it_is_parsed_for_any_thoughts_and_any_cut(
    before: str, marking: str, cuts: list[int]
):
    content = before + marking % (THOUGHT + CALL % "no") + CALL % "yes" + before
    try:
        message = parse_json(RawReply(content), TOOLS).call.arguments["message"]
    except ProtocolViolation:
        message = ""
    assert message in {"yes", ""}
    assert heard(CallText(TOOLS), content, cuts) in {message, ""}


@settings(deadline=None)
@given(st.sampled_from([*UNOPENED, *OPENED, "%s"]), st.sampled_from(["", " ", "A {b}"]), CUTS)
def test_of_a_model_that_opens_no_thought_nothing_is_streamed_before_one_has_ended(
    marking: str, before: str, cuts: list[int]
):
    plain = before + marking % "SECRET" + "Hello!"
    assert heard(PlainText(holds=True), plain, cuts) == spoken(plain)
    content = before + marking % (CALL % "no") + CALL % "yes"
    reported = heard(CallText(TOOLS, holds=True), content, cuts)
    assert reported == parse_json(RawReply(content), TOOLS).call.arguments["message"]


@pytest.mark.parametrize(
    ("content", "unopened"),
    [
        *((marking % "a" + "b", True) for marking in UNOPENED),
        *((marking % "a" + "b", False) for marking in [*OPENED, *LEADING]),
        *(("a", False), ("`</think>`", False), ("<think>a</think>b</think>c", False)),
    ],
)
def test_a_thought_that_nothing_opened_is_reported(content: str, unopened: bool):
    assert separate(content).unopened is unopened


def test_a_long_reply_full_of_half_markers_is_read_to_its_end():
    text = '<think <|chan [THIN analysis { "a" } ' * 5_000
    assert spoken(text) == text.strip()
    stream, content = CallText(TOOLS), text + CALL % "yes"
    pieces = [content[start : start + 4] for start in range(0, len(content), 4)]
    assert "".join(map(stream.feed, pieces)) == "yes"
