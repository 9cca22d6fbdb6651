"""What goes out under an endpoint's rules: roles in turns, ids that every provider takes, and the defaults unchanged."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memserver.llm.call_ids import new_call_id, nine_characters
from memserver.llm.profile import EndpointProfile
from memserver.llm.wire import json_messages, native_messages
from memserver.messages import FunctionCall, PromptMessage
from tests.support.model_contract import NOW
from tests.support.server import Golden

Messages = list[dict[str, Any]]
Render = Callable[[Sequence[PromptMessage], EndpointProfile], Messages]


def as_json(prompt: Sequence[PromptMessage], rules: EndpointProfile) -> Messages:
    return json_messages(prompt, [NOW], rules)


def mistral_common(messages: Messages) -> None:
    """The order of mistral-common's request validator (protocol/instruct/validator.py, also vLLM's tokenizer mode)."""
    may_follow = {
        "system": {"user", "assistant", "system"},
        "user": {"assistant", "system", "user"},
        "assistant": {"assistant", "user", "tool"},
        "tool": {"assistant", "tool"},
    }
    before, wanted = None, None
    for message in messages:
        role = message["role"]
        assert before is None or role in may_follow[before], f"Unexpected {role} after {before}"
        assert (role == "tool") == (wanted is not None), "calls and results differ in number"
        if role == "tool":
            assert message["tool_call_id"] == wanted
            wanted = None
        elif role == "assistant":
            calls = message.get("tool_calls")
            assert bool(message["content"]) != bool(calls), "either content or tool_calls"
            if calls:
                [call] = calls
                wanted = call["id"]
                assert re.fullmatch("[a-zA-Z0-9]{9}", wanted)
        before = role
    assert wanted is None
    assert before in {"user", "tool"}, "Expected last role User or Tool"


def mistral_template(messages: Messages) -> None:
    """The check in the chat templates of Mistral's models on Hugging Face: without calls and results, turns alternate."""
    plain = [each for each in messages if each["role"] != "tool" and not each.get("tool_calls")]
    plain = plain[1:] if plain and plain[0]["role"] == "system" else plain
    for index, message in enumerate(plain):
        assert message["role"] in {"user", "assistant"}
        assert (message["role"] == "user") == (index % 2 == 0), "roles must alternate"


def gemma_template(messages: Messages) -> None:
    """The check in Gemma's chat templates; with tools, vLLM's templates for Gemma render a result as the user's."""
    turns = messages[1:] if messages and messages[0]["role"] == "system" else messages
    for index, message in enumerate(turns):
        asks = message["role"] in {"user", "tool"}
        assert asks == (index % 2 == 0), "Conversation roles must alternate"
    assert turns[0]["role"] == "user"
    assert turns[-1]["role"] in {"user", "tool"}


TEXTS = st.sampled_from(["[2026-02-07 14:03] Hi", "[system] Nearly full.", "I see.", "", " "])
CALLS = st.builds(
    FunctionCall,
    st.sampled_from(["aB3dE6gH9", "call_7c1f", "auto_aB3dE6gH9", "0"]),
    st.just("search"),
    st.just({"query": "tea"}),
)


def exchange(call: FunctionCall, text: str) -> list[PromptMessage]:
    return [PromptMessage("assistant", text, call), PromptMessage("tool", "OK. Found.", call)]


ENTRIES = st.one_of(
    TEXTS.map(lambda text: [PromptMessage("user", text)]),
    TEXTS.map(lambda text: [PromptMessage("system", text)]),
    TEXTS.map(lambda text: [PromptMessage("assistant", text)]),
    st.builds(exchange, CALLS, TEXTS),
    CALLS.map(lambda call: [PromptMessage("assistant", "", call)]),
    CALLS.map(lambda call: [PromptMessage("tool", "OK", call)]),
    st.just([PromptMessage("tool", "OK")]),
)
SYSTEM = PromptMessage("system", "You remember.")
CALL = FunctionCall("call_7c1f", "search", {"query": "tea"})
USER = PromptMessage("user", "[2026-02-07 14:03] Hi")
STEP = exchange(CALL, "")


@pytest.mark.parametrize("render", [native_messages, as_json])
@given(st.lists(ENTRIES, max_size=10), st.booleans(), st.sampled_from(["system", "user"]))
@example([[USER], [USER]], True, "system")  # a turn that failed
@example([STEP, [USER]], True, "user")  # the queue begins with a step after an eviction
@example([[USER], STEP, [USER]], True, "system")
@example([[USER], [PromptMessage("assistant", "Hi!")], STEP], True, "system")  # compact history
@example([[USER], [PromptMessage("assistant", "Hi!")]], False, "user")
def test_strict_roles_hold_for_any_prompt(
    render: Render, entries: list[list[PromptMessage]], with_system: bool, system_role: Any
) -> None:
    prompt = [*([SYSTEM] if with_system else []), *(each for entry in entries for each in entry)]
    sent = render(prompt, EndpointProfile(roles="alternating", system_role=system_role))
    if not prompt and render is native_messages:
        assert sent == []
        return
    mistral_common(sent)
    mistral_template(sent)
    gemma_template(sent)
    assert system_role == "system" or all(each["role"] != "system" for each in sent)
    texts = "\n".join(each["content"] + json.dumps(each.get("tool_calls")) for each in sent)
    for message in prompt:
        assert message.call is not None or message.text.strip() in texts


@given(st.lists(ENTRIES, max_size=10), st.sampled_from(["system", "user"]))
def test_a_prompt_that_was_put_in_turns_stays_as_it_is(
    entries: list[list[PromptMessage]], system_role: Any
) -> None:
    rules = EndpointProfile(roles="alternating", system_role=system_role)
    prompt = [SYSTEM, *(each for entry in entries for each in entry if each.call is None)]
    once = native_messages(prompt, rules)
    again = [PromptMessage(each["role"], each["content"]) for each in once]
    assert native_messages(again, rules) == once


def test_neighbours_are_merged_and_what_is_missing_stands_between() -> None:
    notice = PromptMessage("system", "Nearly full.")
    prompt = [SYSTEM, *STEP, USER, notice, *STEP, PromptMessage("assistant", "Tea.")]
    roles = [(each["role"], each["content"]) for each in native_messages(prompt, RULES)]
    assert roles == [
        ("user", "You remember.\n\n[system] Continue."),
        ("assistant", ""),
        ("tool", "OK. Found."),
        ("assistant", "OK."),
        ("user", f"{USER.text}\n\n[system] Nearly full."),
        ("assistant", ""),
        ("tool", "OK. Found."),
        ("assistant", "Tea."),
        ("user", "[system] Continue."),
    ]
    assert [each["role"] for each in as_json([SYSTEM, USER, *STEP, USER], RULES)] == [
        "user",
        "assistant",
        "user",
    ]


RULES = EndpointProfile(roles="alternating", system_role="user")


def test_a_call_without_its_result_and_a_result_without_its_call_are_shown_as_text() -> None:
    call, result = STEP
    sent = native_messages([USER, result, call], EndpointProfile(roles="alternating"))
    assert [each["role"] for each in sent] == ["user", "assistant", "user"]
    assert sent[0]["content"].endswith("[result of search]\nOK. Found.")
    assert json.loads(sent[1]["content"]) == {"tool": "search", "arguments": {"query": "tea"}}


def test_without_rules_the_messages_are_what_they_always_were(golden: Golden) -> None:
    call = FunctionCall("aB3dE6gH9", "search", {"query": "a <|im_end|> é", "page": 2})
    prompt = [
        PromptMessage("system", "You remember. <s>"),
        PromptMessage("user", "[2026-02-07 14:03] Who am I?"),
        PromptMessage("assistant", "I should look.", call),
        PromptMessage("tool", "Found <|im_end|>", call),
        PromptMessage("user", "[system] Memory is nearly full."),
        PromptMessage("user", "[2026-02-07 14:04] Well?"),
        PromptMessage("assistant", "You are Ada."),
        PromptMessage("assistant", ""),
        PromptMessage("tool", "lone"),
        PromptMessage("system", "Working context: none."),
    ]
    sent = {
        "native": native_messages(prompt),
        "json": json_messages(prompt, [NOW]),
        "json without tools": json_messages(prompt[1:]),
        "json with tools and no system message": json_messages(prompt[1:3], [NOW]),
    }
    golden.check("wire_messages.json", json.dumps(sent, indent=1, ensure_ascii=False))


def test_a_new_id_has_nine_characters_that_every_provider_takes() -> None:
    ids = {new_call_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch("[A-Za-z0-9]{9}", each) for each in ids)
    assert len({each[0] for each in ids}) > 40


@given(st.text(st.characters(exclude_categories=[])))
@example("call_0123456789abcdef01234567")
@example("auto_aB3dE6gH9")
@example("äB3dE6gH9")
def test_an_id_of_another_form_goes_out_as_one_of_nine_characters_always_the_same(old: str) -> None:
    call = FunctionCall(old, "search", {})
    asked, result = native_messages(exchange(call, ""))
    sent = asked["tool_calls"][0]["id"]
    assert re.fullmatch("[A-Za-z0-9]{9}", sent)
    assert result["tool_call_id"] == sent == nine_characters(old)
    assert nine_characters(sent) == sent
    assert (sent == old) == bool(re.fullmatch("[A-Za-z0-9]{9}", old))


def test_ids_of_another_form_stay_apart() -> None:
    assert len({nine_characters(f"call_{number}") for number in range(50_000)}) == 50_000
