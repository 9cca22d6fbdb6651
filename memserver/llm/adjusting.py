"""What an endpoint's refusal says about its profile: a table of words, and what gives way where they are said.

Each step takes something away from the request that was refused, so that there are few of them. Leaves sending the
request again to `openai_compatible`, and what is kept to `profile_keeper`. The words are the providers' own, as public
reports quote them; a rule's sources stand beside it.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from memserver.errors import ModelError, ModelNotFound, ModelRejected, ModelUnavailable
from memserver.llm.profile import Change, EndpointProfile
from memserver.llm.requests import Request
from memserver.openai_http.errors import StatusError

MOST_STEPS = 16
"""Of one request: more than the table can make."""
_NOT_ABOUT_THE_FORM = frozenset({401, 402, 403, 407, 408, 413, 429, 502, 503, 504})
_LOOKED_AT = 4000
_SHOWN = 200
_STAYS = object()

_DENIES = (
    r"(?:unsupported|not (?:be |currently |yet )?(?:supported|permitted|allowed|available|valid|enabled|implemented)|"
    r"n[o']t support|unknown|unrecogni[sz]ed|unexpected|extra_forbidden|extra inputs|forbidden|unavailable|invalid|"
    r"cannot|can't|only supports?|no endpoints|incompatible|disabled|not accept|doesn't accept)"
)
"""How a refusal of something is said; by FastAPI as extra_forbidden, by Gemini as "Cannot find field"."""
_LACKS = (
    r"(?:unsupported|not (?:be |currently |yet )?(?:supported|permitted|allowed|available|enabled|implemented)|"
    r"n[o']t support|unknown|unrecogni[sz]ed|unexpected keyword|extra_forbidden|extra inputs|unavailable|disabled)"
)
"""The same of what an endpoint has not at all; no wrong value is refused in these words."""
_UNWANTED = re.compile(rf"{_DENIES}|please remove", re.IGNORECASE)
"""deepseek-reasoner says the latter."""
_WANTS = "missing|must be (?:passed|provided|included|sent|present)|required|passed back"
_WANTED = re.compile(_WANTS, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rule:
    """Where all of these patterns are found in a refusal, the first of these fields that can gives way."""

    says: tuple[re.Pattern[str], ...]
    gives_way: tuple[str, ...]


def _rule(*patterns: str, gives_way: str) -> Rule:
    says = tuple(re.compile(pattern, re.IGNORECASE | re.DOTALL) for pattern in patterns)
    return Rule(says, tuple(gives_way.split()))


def _field(name: str) -> str:
    return rf"(?<![\w-])(?:{name})(?![\w-])"


RULES = (
    # "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To use function
    # tools, use /v1/responses or set reasoning_effort to 'none'.": https://github.com/BerriAI/litellm/pull/34569
    _rule("reasoning_effort", r"\bnone\b", "tool", gives_way="reasoning_effort"),
    # vLLM without a parser: https://github.com/vllm-project/vllm/issues/9986; llama.cpp:
    # https://github.com/defilantech/LLMKube/issues/126; ik_llama.cpp#677
    _rule("--enable-auto-tool-choice|--tool-call-parser|--jinja", gives_way="mode"),
    _rule("tools param", _DENIES, gives_way="mode"),
    # Mistral's 422, "body.stream_options: Extra inputs are not permitted": https://github.com/yetone/avante.nvim/issues/2347;
    # Azure: https://github.com/microsoft/semantic-kernel/issues/10510
    _rule(_field("stream_options|include_usage"), _DENIES, gives_way="stream_options"),
    # o4-mini: https://github.com/evalstate/fast-agent/issues/279
    _rule(_field("parallel_tool_calls"), _DENIES, gives_way="parallel_tool_calls"),
    # LM Studio: https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/670; Qwen and DeepSeek while they think:
    # https://github.com/cloudwego/eino/issues/994, https://github.com/deepseek-ai/DeepSeek-V3/issues/1376;
    # OpenRouter: https://github.com/zed-industries/zed/issues/36094; Kimi says "incompatible with thinking enabled"
    _rule(r"tool[_ ]choice", _DENIES, gives_way="tool_choice"),
    # "No endpoints found that can handle the requested parameters": https://openrouter.ai/docs/provider-routing
    _rule("requested parameters", gives_way="parallel_tool_calls tool_choice strict_tools mode"),
    # Cohere: https://github.com/OpenRouterTeam/openrouter-examples/issues/71; OpenAI's "Invalid schema for function":
    # https://github.com/weave-os/router/pull/669
    _rule(rf"{_field('strict')}|schema for function", _DENIES, gives_way="strict_tools"),
    # GPT-5, the o-series: https://github.com/griptape-ai/ComfyUI-Griptape/issues/312
    _rule(r"\bmax_(?:completion_)?tokens\b", _LACKS, gives_way="output_limit"),
    # Mistral on Azure: https://github.com/langchain-ai/langchain-azure/issues/82; Gemini's "Unknown name":
    # https://github.com/mcpchecker/mcpchecker/pull/188
    _rule(_field("seed"), _DENIES, gives_way="seed"),
    # Gemini 3: "Function call is missing a thought_signature": https://ai.google.dev/gemini-api/docs/thought-signatures
    _rule("thought_?signature", "missing|must|required|without", gives_way="thought_signature"),
    # DeepSeek: https://github.com/Alishahryar1/free-claude-code/issues/152; Kimi says "reasoning_content is missing"
    _rule(
        "reasoning_content", "missing|must be|required|passed back", gives_way="reasoning_content"
    ),
    # mistral-common's validator: https://github.com/vllm-project/vllm/issues/16774
    _rule("either content or tool_calls", gives_way="text_beside_calls"),
    _rule("content chunk types? in assistant", gives_way="returned_fields"),
    # Hermes 2 Pro's template goes through the characters of "null" in a strict tool's types
    _rule("maximum recursion depth", gives_way="strict_tools"),
    # "Invalid signature in thinking block", after a change of the model's host
    _rule("signature", "invalid|corrupt|not valid|does not match", gives_way="returned_fields"),
    # Gemma 2: https://github.com/huggingface/chat-ui/issues/1386; o1: "'messages[0].role' does not support 'system'";
    # Gemini's image models: https://github.com/QuantumNous/new-api/issues/989
    _rule(
        r"system[' \"]{0,3}(?:role|message|prompt|instruction).{0,40}"
        + _DENIES
        + r"|n[o']t support\w*.{0,30}\bsystem\b|(?:unexpected|unknown|invalid|unsupported) role:? ?['\"`]?system"
        + r"|developer instruction is not enabled|only user and assistant roles are supported(?!.{0,40}system)",
        gives_way="system_role",
    ),
    # A template without a role for results: "Only user, assistant and system roles are supported!"
    _rule(
        r"only user\b.{0,30}roles are supported|unknown variant `tool`"
        r"|(?:unexpected|unknown|invalid|unsupported) role:? ?['\"`]?tool(?!.{0,10}after)",
        gives_way="mode calls_without_tools roles",
    ),
    # Templates: https://github.com/unslothai/unsloth/issues/334; llama.cpp answers 500:
    # https://github.com/nextai-translator/raycast-openai-translator/issues/34; Mistral's 3230 and "Expected last role":
    # https://github.com/avante-corp/avante.nvim/pull/2695, https://github.com/huggingface/smolagents/issues/757;
    # Anthropic: https://github.com/FlowiseAI/Flowise/issues/2006, https://github.com/anomalyco/opencode/issues/19981;
    # deepseek-reasoner: "does not support successive user or assistant messages";
    # Bedrock: https://github.com/microsoft/semantic-kernel/issues/10277; Cohere: cohere-ai/cohere-python#525
    _rule(
        r"\balternat(?:e|es|ing|ion)\b|unexpected role|message_order|message order|expected last role"
        r"|assistant message prefill|(?:must|should|needs? to|has to|ha[sv]e to) (?:start|begin|end) with (?:a |an )?['\"`]?user"
        r"|successive (?:user|assistant|message)|interleave the|(?:first|last|final)\b.{0,40}\bmessage.{0,40}(?:must|should|role)|roles? in a row|consecutive\b.{0,40}(?:role|message)"
        r"|same role|turn comes immediately after|both message and tool_results|tool results must be specified"
        r"|message must be at least 1 token",
        gives_way="roles system_role mode calls_without_tools",
    ),
    # Any other exception of a chat template
    _rule(
        r"(?<!-)jinja|template ?error|raise_exception|chat[ _]template",
        gives_way="roles system_role mode calls_without_tools",
    ),
    # "Requests which have 'tool_use' blocks must define tools", Anthropic's and Bedrock's
    _rule(
        r"\btools?\b",
        "must|define|expect|require|without|missing|" + _DENIES,
        gives_way="calls_without_tools",
    ),
    # OpenAI, of a root that is no object: https://github.com/juspay/neurolink/pull/1691
    _rule(
        r"anyof|\broot\b|top[- ]level|type:? ?\W{0,3}object|must have a 'type'|type.{0,20}none",
        "schema|response_format",
        gives_way="answer_root",
    ),
    # DeepSeek: https://github.com/llm-exe/llm-exe/issues/662
    _rule(
        r"response[_ ]format|json[_ ]schema|structured[_ ]outputs?|json[_ ]mode|guided",
        _DENIES,
        gives_way="mode",
    ),
    # Ollama, OpenRouter (https://github.com/mastra-ai/mastra/issues/2839), FastAPI's body.tools
    _rule(
        r"\b(?:support|handle)\w* (?:\w+ ){0,2}(?:tools?|functions?)\b"
        r"|\b(?:tools?|functions?|tool[ _]?(?:use|call\w*)|function[ _]?call\w*)['\"`]?\b.{0,40}"
        + _LACKS
        + "|"
        + _LACKS
        + r".{0,40}['\"`:]\s?(?:tools|functions)\b(?!\[)|\bbody['\", .]+tools(?![.\w]|['\"],)",
        gives_way="mode",
    ),
)


def adjusted(
    profile: EndpointProfile, fixed: Collection[str], error: ModelError, request: Request
) -> tuple[EndpointProfile, Change] | None:
    """The profile with which a refused request may be taken, and what is different in it.

    Args:
        profile: with which it was made.
        fixed: fields that don't change.
        error: the refusal.
        request: what was refused.

    Returns:
        None where the refusal says nothing that the table knows, or nothing is left to take away.
    """
    said = words_of(error)
    if said is None:
        return None
    extras = _extras(request)
    if _UNWANTED.search(said) and any(re.search(_field(re.escape(name)), said) for name in extras):
        # Groq: https://github.com/janhq/jan/issues/8136; Mistral: https://github.com/charmbracelet/crush/issues/1590
        step = _step("returned_fields", profile, fixed, request)
        if step is not None and not _WANTED.search(said):
            return _made(profile, *step, said)
    for rule in RULES:
        if all(pattern.search(said) for pattern in rule.says):
            for name in rule.gives_way:
                step = _step(name, profile, fixed, request)
                if step is not None:
                    return _made(profile, *step, said)
    return None


def words_of(error: ModelError) -> str | None:
    """What a refusal of a request's form says; None of any other failure."""
    cause = error.__cause__
    if not isinstance(cause, StatusError) or cause.status in _NOT_ABOUT_THE_FORM:
        return None
    if not isinstance(error, ModelRejected | ModelUnavailable) or isinstance(error, ModelNotFound):
        return None
    return f"{cause.told[:_LOOKED_AT]} {cause.kind}".strip()


def _made(
    profile: EndpointProfile,
    name: str,
    value: Any,  # noqa: ANN401 - of that field
    said: str,
) -> tuple[EndpointProfile, Change]:
    words = " ".join(said.split())
    shown = words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"
    change = Change(name, getattr(profile, name), value, f'the endpoint said "{shown}"')
    return replace(profile, **{name: value}), change


def _step(
    name: str, profile: EndpointProfile, fixed: Collection[str], request: Request
) -> tuple[str, Any] | None:
    """The field that gives way and its next value, if there is one that changes this request."""
    find = _NEXT[name]
    field = _FIELD_OF.get(name, name)
    if field in fixed:
        return None
    value = find(profile, request)
    return None if value is _STAYS or value == getattr(profile, field) else (field, value)


def _next_choice(_profile: EndpointProfile, request: Request) -> object:
    sent = request.fields.get("tool_choice")
    if isinstance(sent, dict):
        return "required"
    return {"required": "auto", "auto": "unset"}.get(str(sent), _STAYS)


def _next_limit(_profile: EndpointProfile, request: Request) -> object:
    if "max_tokens" in request.fields:
        return "max_completion_tokens"
    return "unset" if "max_completion_tokens" in request.fields else _STAYS


def _next_mode(_profile: EndpointProfile, request: Request) -> object:
    if request.offers_tools:
        return "json_schema"
    return "text" if request.has_schema else _STAYS


def _next_strict(_profile: EndpointProfile, request: Request) -> object:
    return False if request.offers_tools and '"strict":true' in request.draft.prepared else _STAYS


def _next_bare(_profile: EndpointProfile, request: Request) -> object:
    return False if _has_calls(request) and not request.offers_tools else _STAYS


def _next_text(_profile: EndpointProfile, request: Request) -> object:
    messages = request.draft.messages
    both = any("tool_calls" in message and message.get("content") for message in messages)
    return False if both else _STAYS


def _next_root(_profile: EndpointProfile, request: Request) -> object:
    return "object" if request.has_schema else _STAYS


def _next_effort(profile: EndpointProfile, _request: Request) -> object:
    return "none" if profile.reasoning_effort is None else _STAYS


def _no_more(field: str) -> Callable[[EndpointProfile, Request], Any]:
    return lambda _, request: False if field in request.fields else _STAYS


def _next_filler(_profile: EndpointProfile, request: Request) -> object:
    spoken = any(message["role"] == "assistant" for message in request.draft.messages)
    return "reasoning_content" if spoken else _STAYS


_NEXT: dict[str, Callable[[EndpointProfile, Request], Any]] = {
    "mode": _next_mode,
    "tool_choice": _next_choice,
    "output_limit": _next_limit,
    "parallel_tool_calls": _no_more("parallel_tool_calls"),
    "stream_options": _no_more("stream_options"),
    "seed": _no_more("seed"),
    "strict_tools": _next_strict,
    "reasoning_effort": _next_effort,
    "roles": lambda *_: "alternating",
    "system_role": lambda *_: "user",
    "returned_fields": lambda _, request: "left_out" if _extras(request) else _STAYS,
    "reasoning_content": _next_filler,
    "thought_signature": lambda _, request: "thought_signature" if _has_calls(request) else _STAYS,
    "calls_without_tools": _next_bare,
    "text_beside_calls": _next_text,
    "answer_root": _next_root,
}
"""The next value of each field, from what was sent."""
_FIELD_OF = {"reasoning_content": "missing_fields", "thought_signature": "missing_fields"}
_STANDARD = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "name", "id", "type", "function"}
)


def _extras(request: Request) -> set[str]:
    messages = request.draft.messages
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    return {name for each in (*messages, *calls) for name in each} - _STANDARD


def _has_calls(request: Request) -> bool:
    return any("tool_calls" in message for message in request.draft.messages)
