"""Providers of open models."""

from dataclasses import replace

from tests.endpoints.provider import (
    Asked,
    Provider,
    Refused,
    Rule,
    Stream,
    TooLong,
    flat_error,
)
from tests.endpoints.rules import (
    alternating,
    assistant_after_tool,
    comes_back,
    nine_characters,
    no_schema,
    no_strict_tools,
    no_tool_choice,
    no_tools,
    stays_away,
    thoughts_in_content,
    without,
)

DEEPSEEK = Provider(
    "deepseek-v4",
    "DeepSeek V4, thinking",
    ("deepseek-v4-flash", "deepseek-v4-pro"),
    (
        no_tool_choice(
            "Thinking mode does not support this tool_choice",
            "https://github.com/deepseek-ai/DeepSeek-V3/issues/1376",
        ),
        no_schema(
            "This response_format type is unavailable now",
            "https://github.com/UKGovernmentBEIS/inspect_ai/issues/4916",
        ),
        comes_back(
            "reasoning_content",
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            "https://github.com/openclaw/openclaw/issues/73417",
            every=True,
        ),
    ),
)
DEEPSEEK_REASONER = Provider(
    "deepseek-reasoner",
    "DeepSeek R1 (until 2025)",
    ("deepseek-reasoner", "deepseek-reasoner-2"),
    (
        no_tools(
            "deepseek-reasoner does not support Function Calling",
            "https://github.com/spring-projects/spring-ai/pull/2643",
        ),
        no_schema(
            "deepseek-reasoner does not support Json Output.",
            "https://github.com/deepseek-ai/DeepSeek-R1/issues/614",
        ),
        alternating(
            "https://github.com/deepseek-ai/DeepSeek-R1/issues/21",
            "deepseek-reasoner does not support successive user or assistant messages (messages[1] and messages[2] in "
            "your input). You should interleave the user/assistant messages in the message sequence.",
        ),
        stays_away(
            "reasoning_content",
            "The reasoning_content is an intermediate result for display purposes only and will not be included in the "
            "context for inference. Please remove the reasoning_content from your message to reduce network traffic.",
            "https://github.com/Euyug/Mirai-Gpt-Plugin/issues/4",
        ),
    ),
)
KIMI = Provider(
    "kimi-k2.5",
    "Moonshot Kimi K2.5",
    ("kimi-k2.5", "kimi-k2.6"),
    (
        no_tool_choice(
            "tool_choice 'specified' is incompatible with thinking enabled",
            "https://github.com/can1357/oh-my-pi/issues/827",
        ),
        comes_back(
            "reasoning_content",
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index {}",
            "https://github.com/JohnnyZ93/oai-compatible-copilot/issues/140",
        ),
    ),
    overflow=TooLong(
        "Invalid request: Your request exceeded model token limit: {window} (requested: {total})"
    ),
)
QWEN = Provider(
    "qwen-dashscope",
    "Alibaba DashScope, Qwen thinking",
    ("qwen3.5-plus", "qwen3.6-plus"),
    (
        no_tool_choice(
            "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being set to "
            "required or object in thinking mode",
            "https://github.com/cloudwego/eino/issues/994",
        ),
        thoughts_in_content(
            "",
            "\n</think>\n\n",
            "a thought in the content ends with `</think>` and has no beginning",
            "https://github.com/QwenLM/Qwen3-VL/issues/1504",
        ),
    ),
    path="/compatible-mode/v1",
    overflow=TooLong(
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {window}]"
    ),
)


def _forbidden(asked: Asked) -> Refused | None:
    """Mistral's validation by pydantic, which names each field that it doesn't know."""
    streams = asked.body.get("stream_options")
    for number, message in enumerate(asked.messages):
        for name in message.keys() - {
            "role",
            "content",
            "tool_calls",
            "tool_call_id",
            "name",
            "prefix",
        }:
            return _extra("messages", number, message["role"], name)
    if streams is not None:
        return _extra("stream_options", "include_usage")
    for name in ("max_completion_tokens", "reasoning_effort", "seed", "store"):
        if name in asked.body:
            return _extra(name)
    return None


def _extra(*place: object) -> Refused:
    fault = {
        "type": "extra_forbidden",
        "loc": ["body", *place],
        "msg": "Extra inputs are not permitted",
        "input": True,
    }
    return Refused(f"extra {place}", 422, more={"message": {"detail": [fault]}})


MISTRAL_ORDER = assistant_after_tool("https://github.com/mistralai/mistral-common/issues/169")
MISTRAL_IDS = nine_characters("https://github.com/nearai/ironclaw/issues/1241")
_MISTRAL_TOO_LONG = TooLong(
    "Prompt contains {read} tokens and 0 draft tokens, too large for model with {window} maximum context length"
)
MISTRAL = Provider(
    "mistral-api",
    "Mistral API",
    ("mistral-medium-latest", "mistral-small-latest"),
    (
        Rule(
            "422 for parameters and message fields that it doesn't know, `stream_options` among them (until 2025)",
            "https://github.com/avante-corp/avante.nvim/issues/2347",
            _forbidden,
        ),
        MISTRAL_IDS,
        MISTRAL_ORDER,
    ),
    error=flat_error,
    overflow=_MISTRAL_TOO_LONG,
    stream=Stream(pieces=False, usage=True),
)
NIM = replace(
    MISTRAL,
    slug="nim-mistral",
    title="NVIDIA NIM, Mistral",
    models=("mistralai/mistral-small-4-119b-2603", "mistralai/mistral-medium-3"),
    rules=(
        assistant_after_tool("https://github.com/NousResearch/hermes-agent/issues/20154"),
        MISTRAL_IDS,
    ),
    stream=Stream(),
)

TOGETHER = Provider(
    "together",
    "Together AI",
    ("openai/gpt-oss-120b", "openai/gpt-oss-20b"),
    (
        Rule(
            "the list of models is a bare list",
            "https://github.com/helixml/helix/issues/386",
        ),
    ),
    listing=lambda names: [{"id": name, "object": "model"} for name in names],
    overflow=TooLong(
        "The input ({total} tokens) is longer than the model's context length ({window} tokens)."
    ),
)


def _broken_call(asked: Asked) -> Refused | None:
    """Every fourth time the model writes a call that Groq can't read."""
    if not asked.tools or asked.memory.count("calls") % 4:
        return None
    return Refused(
        "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
        code="tool_use_failed",
        more={"failed_generation": '<function=send_message{"message": "wrong"}</function>'},
        is_overflow=True,
    )


GROQ = Provider(
    "groq",
    "Groq",
    ("openai/gpt-oss-120b", "openai/gpt-oss-20b"),
    (
        stays_away(
            "reasoning",
            "'messages.{0}' : for 'role:assistant' the following must be satisfied[('messages.{0}' : property "
            "'reasoning' is unsupported, did you mean 'role'?)]",
            "https://github.com/karthink/gptel/issues/774",
        ),
        Rule(
            "a call that can't be read is a 400 `tool_use_failed`",
            "https://github.com/agno-agi/agno/issues/4090",
            _broken_call,
        ),
    ),
    path="/openai/v1",
    overflow=TooLong("Please reduce the length of the messages or completion."),
    violations=20,
)


def _one_strictness(asked: Asked) -> Refused | None:
    if len({tool.get("strict", False) for tool in asked.tools}) < 2:
        return None
    return Refused(
        "Tools with mixed values for 'strict' are not allowed. Please set all tools to 'strict: true' or 'strict: "
        "false'",
        422,
    )


CEREBRAS = Provider(
    "cerebras",
    "Cerebras",
    ("gpt-oss-120b", "qwen-3.8-27b"),
    (
        without(
            "parallel_tool_calls",
            "parallel_tool_calls=False is not supported by this model.",
            "https://github.com/agno-agi/agno/issues/4508",
            value=False,
        ),
        Rule(
            "all tools are strict or none",
            "https://github.com/RooCodeInc/Roo-Code/issues/10334",
            _one_strictness,
        ),
        no_strict_tools(
            "Tools with strict=True are not supported by this model",
            "https://github.com/livekit/agents/pull/3134",
        ),
        stays_away(
            "reasoning_content",
            "messages.{0}.assistant.reasoning_content: property 'messages.{0}.assistant.reasoning_content' is "
            "unsupported",
            "https://github.com/QwenLM/qwen-code/issues/11045",
        ),
    ),
    error=flat_error,
    overflow=TooLong(
        "Please reduce the length of the messages or completion. Current length is {total} while limit is {window}",
        "context_length_exceeded",
    ),
)
FIREWORKS = Provider(
    "fireworks",
    "Fireworks AI",
    ("accounts/fireworks/models/glm-4p7", "accounts/fireworks/models/kimi-k2"),
    (
        without(
            "stream_options",
            "Extra inputs are not permitted, field: 'stream_options'",
            "https://github.com/FlowiseAI/Flowise/issues/2866",
        ),
    ),
    path="/inference/v1",
    overflow=TooLong("The prompt is too long: {read}, model maximum context length: {window}"),
)
COHERE = Provider(
    "cohere",
    "Cohere, OpenAI-compatible",
    ("command-a-03-2025", "command-r7b-12-2024"),
    (
        no_strict_tools(
            "unknown field: parameter 'strict' is not a valid field. For proper usage, please refer to "
            "https://docs.cohere.com/reference/chat",
            "https://github.com/OpenRouterTeam/openrouter-examples/issues/71",
            status=422,
        ),
        no_tool_choice(
            "invalid request: tool_choice must be one of [REQUIRED NONE]",
            "https://github.com/maximhq/bifrost/pull/55",
            only_objects=True,
        ),
    ),
    path="/compatibility/v1",
    error=lambda refused: {"message": refused.message},
    overflow=TooLong(
        "too many tokens: total number of tokens in the prompt cannot exceed {window} - received {total}."
    ),
)
OPEN_MODELS = (
    DEEPSEEK,
    DEEPSEEK_REASONER,
    KIMI,
    QWEN,
    MISTRAL,
    NIM,
    TOGETHER,
    GROQ,
    CEREBRAS,
    FIREWORKS,
    COHERE,
)
