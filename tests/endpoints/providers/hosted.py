"""OpenAI, Azure, Google, Anthropic, Amazon and xAI: their own models behind their own endpoints."""

from dataclasses import replace

from memserver.messages import JsonObject
from tests.endpoints.provider import Asked, Provider, Refused, Reply, Rule, Stream, TooLong
from tests.endpoints.rules import (
    calls_are_answered,
    since_user,
    strict_schemas,
    thoughts_in_content,
    without,
)

_NO_PARALLEL = without(
    "parallel_tool_calls",
    "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.",
    "https://github.com/langchain-ai/open-swe/pull/628",
)
_NO_MAX_TOKENS = without(
    "max_tokens",
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "https://github.com/langgenius/dify/issues/24307",
)


def _tools_need_no_effort(asked: Asked) -> Refused | None:
    if not asked.tools or asked.body.get("reasoning_effort") == "none":
        return None
    return Refused(
        "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To use function "
        "tools, use /v1/responses or set reasoning_effort to 'none'."
    )


OPENAI = Provider(
    "openai-gpt-4.1",
    "OpenAI, gpt-4.1",
    ("gpt-4.1", "gpt-4.1-mini"),
    (strict_schemas(), calls_are_answered()),
)
FINE_TUNED = Provider(
    "openai-fine-tuned",
    "OpenAI, fine-tuned models",
    ("ft:gpt-4.1:acme::1", "ft:gpt-4.1-mini:acme::2"),
    (
        strict_schemas("https://github.com/jina-ai/node-DeepResearch/issues/79", lengths=False),
        calls_are_answered(),
    ),
)
GPT_5 = replace(
    OPENAI,
    slug="openai-gpt-5",
    title="OpenAI, gpt-5",
    models=("gpt-5", "gpt-5-mini"),
    rules=(_NO_MAX_TOKENS, *OPENAI.rules),
    overflow=TooLong(
        "Your input exceeds the context window of this model. Please adjust your input and try again."
    ),
)
GPT_5_6 = replace(
    GPT_5,
    slug="openai-gpt-5.6",
    title="OpenAI, gpt-5.6",
    models=("gpt-5.6-terra", "gpt-5.6-luna"),
    rules=(
        Rule(
            "refuses tools unless `reasoning_effort` is none",
            "https://github.com/BerriAI/litellm/pull/34569",
            _tools_need_no_effort,
        ),
        *GPT_5.rules,
    ),
)
O4_MINI = replace(
    GPT_5,
    slug="openai-o4-mini",
    title="OpenAI, o4-mini",
    models=("o4-mini", "o3-mini"),
    rules=(_NO_PARALLEL, *GPT_5.rules),
)

_FILTERED: JsonObject = {
    "id": "",
    "object": "",
    "created": 0,
    "model": "",
    "choices": [],
    "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}],
}
AZURE_CLASSIC = replace(
    OPENAI,
    slug="azure-classic",
    title="Azure OpenAI, deployment's URL",
    models=("my-gpt-4.1", "my-gpt-4.1"),
    rules=(
        Rule(
            "the deployment stands in the path, the version in the query, and the key in `api-key`",
            "https://www.mintlify.com/BoundaryML/baml/reference/providers/azure",
        ),
        Rule(
            "no list of models",
            "https://github.com/OkGoDoIt/OpenAI-API-dotnet/issues/140",
        ),
        *OPENAI.rules,
    ),
    path="/openai/deployments/my-gpt-4.1?api-version=2024-10-21",
    key="api-key",
    listing=None,
    stream=Stream(first=(_FILTERED,)),
)
AZURE = replace(
    OPENAI,
    slug="azure-v1",
    title="Azure OpenAI, v1",
    models=("my-gpt-4.1", "my-gpt-4.1-mini"),
    rules=(
        Rule(
            "lists models, not the deployments by which they are asked",
            "https://github.com/getomni-ai/zerox/issues/95",
        ),
        *OPENAI.rules,
    ),
    path="/openai/v1",
    listing=lambda _: {"object": "list", "data": [{"id": "gpt-4.1-2025-04-14", "object": "model"}]},
    stream=Stream(first=(_FILTERED,)),
)

_GEMINI_TOO_LONG = TooLong(
    "The input token count ({total}) exceeds the maximum number of tokens allowed ({window})."
)
_SIGNATURES = "https://ai.google.dev/gemini-api/docs/thought-signatures"


def _google_error(refused: Refused) -> JsonObject:
    error = {"code": refused.status, "message": refused.message, "status": "INVALID_ARGUMENT"}
    return {"error": error}


_ANY_SIGNATURE = "skip_thought_signature_validator"
"""Taken for calls that the model didn't make, as the same page says."""


def _signature(call: JsonObject) -> object:
    google = (call.get("extra_content") or {}).get("google") or {}
    return google.get("thought_signature")


def _signed(asked: Asked) -> Refused | None:
    for number, message in since_user(asked.messages):
        call = (message.get("tool_calls") or [None])[0]
        if call and _signature(call) not in {*asked.memory.given, _ANY_SIGNATURE}:
            return Refused(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `default_api:{call['function']['name']}`, position {number}. Please refer to "
                f"{_SIGNATURES} for more details."
            )
    return None


def _sign(asked: Asked, reply: Reply) -> Reply:
    calls = []
    for call in reply.calls:
        signature = f"signature {asked.memory.count('signatures')}"
        asked.memory.given.add(signature)
        calls.append({**call, "extra_content": {"google": {"thought_signature": signature}}})
    return replace(reply, calls=tuple(calls))


def _twice(_asked: Asked, reply: Reply) -> Reply:
    """The model calls the tool twice at once."""
    return replace(reply, calls=reply.calls * 2)


_INDEX_0 = Rule(
    "two calls at once have index 0 in a stream",
    "https://github.com/su-kaka/gcli2api/pull/406",
    shape=_twice,
)
GEMINI = Provider(
    "gemini-2.5",
    "Google Gemini 2.5",
    ("gemini-2.5-flash", "gemini-2.5-pro"),
    (
        Rule(
            "lists its models as `models/…`",
            "https://docs.newapi.pro/ja/docs/api/ai-model/models/list/list-models-gemini",
        ),
        _INDEX_0,
    ),
    path="/v1beta/openai",
    listing=lambda names: {"object": "list", "data": [{"id": f"models/{name}"} for name in names]},
    stream=Stream(index="zero", pieces=False),
    error=_google_error,
    overflow=_GEMINI_TOO_LONG,
)
GEMINI_3 = replace(
    GEMINI,
    slug="gemini-3",
    title="Google Gemini 3",
    models=("gemini-3-flash-preview", "gemini-3-pro-preview"),
    rules=(
        *GEMINI.rules,
        Rule(
            "calls of the current turn need their `thought_signature`",
            "https://github.com/windmill-labs/windmill/issues/7679",
            _signed,
            _sign,
        ),
    ),
)
VERTEX = replace(
    GEMINI_3,
    slug="vertex",
    title="Google Vertex AI",
    models=("google/gemini-3-flash", "google/gemini-3-pro"),
    rules=(
        Rule(
            "a URL for each project, and no list of models",
            "https://cloud.google.com/vertex-ai/generative-ai/docs/multimodal/call-vertex-using-openai-library",
        ),
        *GEMINI_3.rules[1:],
    ),
    path="/v1/projects/acme/locations/global/endpoints/openapi",
    listing=None,
)

ANTHROPIC = Provider(
    "anthropic",
    "Anthropic, OpenAI-compatible",
    ("claude-opus-5-5", "claude-haiku-5"),
    (
        Rule(
            "ignores `strict` and `response_format`",
            "https://platform.claude.com/docs/en/cli-sdks-libraries/libraries/openai-sdk",
        ),
        calls_are_answered(),
    ),
    listing=lambda names: {
        "data": [{"type": "model", "id": name} for name in names],
        "has_more": False,
    },
    overflow=TooLong("prompt is too long: {total} tokens > {window} maximum"),
)
BEDROCK = Provider(
    "bedrock",
    "Amazon Bedrock, OpenAI-compatible",
    ("openai.gpt-oss-120b-1:0", "openai.gpt-oss-20b-1:0"),
    (
        Rule(
            "no list of models",
            "https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html",
        ),
        thoughts_in_content(
            "<reasoning>",
            "</reasoning>",
            "the content starts with `<reasoning>…</reasoning>`",
            "https://github.com/CherryHQ/cherry-studio/issues/10225",
        ),
    ),
    path="/openai/v1",
    listing=None,
    overflow=TooLong("Input is too long for requested model."),
)


def _xai_error(refused: Refused) -> JsonObject:
    return {"code": "Client specified an invalid argument", "error": refused.message}


XAI = Provider(
    "xai",
    "xAI",
    ("grok-4", "grok-4-fast-reasoning"),
    (
        without(
            "reasoning_effort",
            "Model grok-4 does not support parameter reasoningEffort.",
            "https://github.com/BerriAI/litellm/pull/16265",
        ),
    ),
    error=_xai_error,
    overflow=TooLong(
        "This model's maximum prompt length is {window} but the request contains {total} tokens."
    ),
)

HOSTED = (
    OPENAI,
    FINE_TUNED,
    GPT_5,
    GPT_5_6,
    O4_MINI,
    AZURE_CLASSIC,
    AZURE,
    GEMINI,
    GEMINI_3,
    VERTEX,
    ANTHROPIC,
    BEDROCK,
    XAI,
)
