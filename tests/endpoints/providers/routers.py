"""Routers, which pass requests on to many providers: OpenRouter and LiteLLM's proxy."""

import json
from dataclasses import replace

from memserver.messages import JsonObject
from tests.endpoints.provider import (
    QUOTA,
    Asked,
    Provider,
    Refused,
    Reply,
    Rule,
    Stream,
    TooLong,
    flat_error,
    openai_list,
)
from tests.endpoints.providers.open_models import MISTRAL, MISTRAL_IDS, MISTRAL_ORDER
from tests.endpoints.rules import (
    calls_need_tools,
    no_schema,
    no_tool_choice,
    no_tools,
    since_user,
    without,
)

_ROUTER = Stream(comment=": OPENROUTER PROCESSING")
_ERRORS = "https://openrouter.ai/docs/api/reference/errors-and-debugging"


def _router_error(refused: Refused) -> JsonObject:
    return {"error": {"message": refused.message, "code": refused.status, **refused.more}}


def _wrapped_error(refused: Refused) -> JsonObject:
    """A provider's error as the router passes it on."""
    if refused.status != 400:
        return _router_error(refused)
    raw = json.dumps(flat_error(refused))
    inner = {"raw": raw, "provider_name": "Mistral"}
    return {"error": {"message": "Provider returned error", "code": 400, "metadata": inner}}


def _error_in_200(refused: Refused) -> JsonObject:
    code = 429 if refused.status == 200 else refused.status
    return {"error": {"message": refused.message, "code": code}}


_ROUTER_TOO_LONG = TooLong(
    "This endpoint's maximum context length is {window} tokens. However, you requested about {total} tokens "
    "({read} of text input, {written} in the output). Please reduce the length of either one."
)
OPENROUTER = Provider(
    "openrouter",
    "OpenRouter",
    ("z-ai/glm-4.5-air:free", "z-ai/glm-4.7:nitro"),
    (
        Rule(
            "lists models without variants such as `:nitro`",
            "https://github.com/rbb-dev/Open-WebUI-OpenRouter-pipe/issues/9",
        ),
        Rule("an error of the model comes with status 200, also in a stream", _ERRORS),
        no_tool_choice(
            "No endpoints found that support the provided 'tool_choice' value. To learn more about provider routing, "
            "visit: https://openrouter.ai/docs/provider-routing",
            "https://github.com/zed-industries/zed/issues/36094",
            status=404,
        ),
    ),
    path="/api/v1",
    listing=lambda names: openai_list(tuple(name.partition(":")[0] for name in names)),
    stream=_ROUTER,
    error=_error_in_200,
    failure=Refused("Rate limit exceeded: free-models-per-min.", 200),
    overflow=_ROUTER_TOO_LONG,
)
OPENROUTER_NO_TOOLS = replace(
    OPENROUTER,
    slug="openrouter-no-tools",
    title="OpenRouter, model without tools",
    models=("deepseek/deepseek-r1:free", "meta-llama/llama-guard-4-12b"),
    rules=(
        no_tools(
            "No endpoints found that support tool use. To learn more about provider routing, visit: "
            "https://openrouter.ai/docs/provider-routing",
            "https://github.com/pydantic/pydantic-ai/issues/2896",
            status=404,
        ),
        no_schema(
            "No endpoints found that can handle the requested parameters. To learn more about provider routing, visit: "
            "https://openrouter.ai/docs/provider-routing",
            "https://openrouter.ai/docs/errors",
            status=404,
        ),
    ),
)
OPENROUTER_MISTRAL = replace(
    MISTRAL,
    slug="openrouter-mistral",
    title="OpenRouter, Mistral",
    models=("mistralai/mistral-medium-3.1", "mistralai/mistral-small"),
    rules=(
        Rule(
            "the provider's words stand in `metadata.raw`",
            "https://github.com/charmbracelet/crush/issues/279",
        ),
        MISTRAL_IDS,
        MISTRAL_ORDER,
    ),
    path="/api/v1",
    stream=_ROUTER,
    error=_wrapped_error,
)


def _details(asked: Asked) -> Refused | None:
    for number, each in since_user(asked.messages):
        given = each.get("reasoning_details")
        if each.get("tool_calls") and (not given or given[0]["data"] not in asked.memory.given):
            return Refused(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                f"work correctly. Additional data, function call `default_api:x`, position {number}."
            )
    return None


def _with_details(asked: Asked, reply: Reply) -> Reply:
    data = f"encrypted {asked.memory.count('details')}"
    asked.memory.given.add(data)
    detail = {"type": "reasoning.encrypted", "data": data, "format": "google-gemini-v1", "index": 0}
    return replace(reply, fields={**reply.fields, "reasoning_details": [detail]})


OPENROUTER_GEMINI = replace(
    OPENROUTER,
    slug="openrouter-gemini-3",
    title="OpenRouter, Gemini 3",
    models=("google/gemini-3-flash-preview", "google/gemini-3-pro-preview"),
    rules=(
        Rule(
            "calls of the current turn need their `reasoning_details`",
            "https://github.com/OpenHands/software-agent-sdk/issues/1500",
            _details,
            _with_details,
        ),
    ),
    error=_wrapped_error,
    failure=QUOTA,
)
LITELLM = Provider(
    "litellm",
    "LiteLLM proxy",
    ("claude-sonnet", "claude-haiku"),
    (
        without(
            "parallel_tool_calls",
            "litellm.UnsupportedParamsError: anthropic does not support parameters: {'parallel_tool_calls': False}, "
            "for model=claude-3-5-sonnet-20241022. To drop these, set `litellm.drop_params=True` or for proxy: "
            "`litellm_settings:\n drop_params: true`",
            "https://github.com/BerriAI/litellm/issues/6456",
        ),
        calls_need_tools(
            "litellm.UnsupportedParamsError: Anthropic doesn't support tool calling without `tools=` param specified. Pass "
            "`tools=` param OR set `litellm.modify_params = True` // `litellm_settings::modify_params: True` to add dummy "
            "tool to the request.",
            "https://github.com/camel-ai/owl/issues/532",
        ),
    ),
    overflow=TooLong(
        "litellm.ContextWindowExceededError: AnthropicException - prompt is too long: {total} tokens > {window} maximum"
    ),
)

ROUTERS = (
    OPENROUTER,
    OPENROUTER_NO_TOOLS,
    OPENROUTER_MISTRAL,
    OPENROUTER_GEMINI,
    LITELLM,
)
