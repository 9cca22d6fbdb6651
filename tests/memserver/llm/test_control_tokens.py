"""What people, tools and memory write can't be read as a control token of any family."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel

from memserver.llm.control_tokens import defused
from memserver.llm.openai_compatible import OpenAICompatible
from memserver.llm.tokens import ByteBound
from memserver.llm.wire import json_messages, native_messages
from memserver.messages import PromptMessage, ToolCall
from memserver.openai_http.client import Endpoint

TOKENS = {
    "chatml": ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_sep|>"],
    "llama3": ["<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>", "<|python_tag|>"],
    "llama2": ["<s>", "</s>", "<<SYS>>", "<</SYS>>"],
    "mistral": [
        "[INST]",
        "[/INST]",
        "[TOOL_CALLS]",
        "[/AVAILABLE_TOOLS]",
        "[SYSTEM_PROMPT]",
        "[ARGS]",
    ],
    "gemma": ["<bos>", "<start_of_turn>", "<end_of_turn>", "<start_function_call>", "<unused99>"],
    "gemma4": ["<|turn>", "<turn|>", "<|tool_call>", '<|"|>'],
    "qwen": ["<tool_call>", "</tool_call>", "<tool_response>", "<think>", "</think>"],
    "deepseek": ["<\uff5cUser\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"],
    "gpt_oss": ["<|start|>", "<|channel|>", "<|message|>", "<|call|>"],
    "phi_glm_kimi": ["<|user|>", "<|end|>", "[gMASK]", "<sop>", "<|im_middle|>"],
    "cohere": ["<|START_OF_TURN_TOKEN|>", "<BOS_TOKEN>", "<EOS_TOKEN>"],
}
ALL = [token for tokens in TOKENS.values() for token in tokens]
CALL = ToolCall("call_1", "search", {"query": "a <|im_end|> b"})


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """One that knows the control tokens of all families."""
    tokenizer = Tokenizer(WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ALL])
    return tokenizer


def controls(tokenizer: Tokenizer, text: str) -> int:
    return sum(number > 0 for number in tokenizer.encode(text).ids)


@pytest.mark.parametrize("token", ALL)
def test_a_control_token_of_any_family_becomes_text(tokenizer: Tokenizer, token: str) -> None:
    assert controls(tokenizer, token) == 1
    assert controls(tokenizer, defused(token)) == 0
    assert defused(token).replace(" ", "") == token


@given(
    st.lists(st.sampled_from([*ALL, "<|im_", "<", "|>", "_end|>", "[", "/", " ", "s>"]), max_size=8)
)
def test_no_pieces_in_any_order_make_one(tokenizer: Tokenizer, pieces: list[str]) -> None:
    text = defused("".join(pieces))
    assert controls(tokenizer, text) == 0
    assert defused(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "xs |> List.map f <| g",
        "parser <|> other <||> more",
        "if a <b || c> d: x[i] = y[INSTALL]",
        "<div class='s'><b>Hi</b></div> <T> Vec<Option<u8>> a<|b",
        "[1, 2] [inst] [link](http://x) [TODO] I <3 you",
        "<search> <system> <message|",
    ],
)
def test_ordinary_text_and_code_stay_as_they_are(text: str) -> None:
    assert defused(text) == text


@pytest.mark.parametrize("render", [native_messages, json_messages])
@pytest.mark.parametrize(
    "message",
    [
        PromptMessage("system", "Working context: <|im_end|>"),
        PromptMessage("user", "Hi <|im_end|>"),
        PromptMessage("assistant", "Well <|im_end|>"),
        PromptMessage("assistant", "Look <|im_end|>", CALL),
        PromptMessage("tool", "Found <|im_end|>", CALL),
        PromptMessage("tool", "Found <|im_end|>"),
    ],
)
@pytest.mark.parametrize("before", [(), (PromptMessage("user", "x"),)])
def test_each_kind_of_message_is_defused_on_its_way_to_the_model(render, message, before) -> None:
    sent = str(render([*before, message]))
    assert "<|im_end|>" not in sent
    assert "< |im_end|>" in sent


async def test_tokens_are_counted_as_the_model_will_see_them() -> None:
    model = OpenAICompatible(Endpoint("http://127.0.0.1:9/v1"), counter=ByteBound())
    text = "<|im_end|>" * 1000
    assert await model.count_tokens([text, "plain"]) == [len(defused(text)), 5]
    await model.aclose()
