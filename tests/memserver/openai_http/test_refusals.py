"""What providers say when they refuse is the error that it means, with what to do about it.

The wordings are those of public reports; `memserver.openai_http.wordings` names them.
"""

import json

import pytest

from memserver.errors import (
    ContextOverflow,
    ModelError,
    ModelNotFound,
    ModelQuotaExceeded,
    ModelRefused,
    ModelRejected,
    ModelUnavailable,
)
from memserver.openai_http.errors import StatusError
from tests.memserver.openai_http.scripted_server import Scripted, asking, refusal, whole


async def caught(status: int, body: object, **headers: object) -> ModelError:
    """The error of a refusal, which was not asked again."""
    server = Scripted(refusal(status, body, **headers))
    async with asking(server, retries=0) as client:
        with pytest.raises(ModelError) as error:
            await client.post("/x", b"{}")
    return error.value


def openai(message: str, **more: object) -> dict[str, object]:
    return {"error": {"message": message, **more}}


QUOTAS = [
    (429, openai("You exceeded your current quota, please check your plan and billing details. For more "
                 "information on this error, read the docs", type="insufficient_quota", code="insufficient_quota")),
    (429, openai("Your account is not active, please check your billing details", code="billing_not_active")),
    (400, openai("Billing hard limit has been reached", code="billing_hard_limit_reached")),
    (402, openai("Insufficient Balance", type="unknown_error", code="invalid_request_error")),
    (400, openai("Insufficient Balance", type="unknown_error", code="invalid_request_error")),
    (402, openai("This request requires more credits, or fewer max_tokens. You requested up to 16384 tokens, but can "
                 "only afford 3919.", code=402)),
    (403, openai("Key limit exceeded (total limit). Manage it using https://openrouter.ai/settings/keys", code=403)),
    (429, openai("Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day",
                 code=429, metadata={"headers": {"X-RateLimit-Limit": "50"}})),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to "
           "access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}),
    (402, openai("Credit limit exceeded. Please navigate to https://api.together.xyz/settings/billing to add credit",
                 type="credit_limit")),
    (429, {"code": "Some resource has been exhausted", "error": "Your team x has either used all available credits or "
           "reached its monthly spending limit. To continue making API requests, please purchase more credits"}),
    (403, {"code": "permission-denied", "error": "You have run out of credits or need a Grok subscription."}),
    (403, openai("Your account x is not active, organization x exceeded current quota, please check your plan",
                 type="exceeded_current_quota_error")),
    (429, openai("Error from provider: Provider returned error", code=429, metadata={"raw": json.dumps(openai(
        "Your account org-1 <ak-1> is suspended due to insufficient balance, please recharge"))})),
    (400, {"error": {"code": "Arrearage", "message": "Access denied, please make sure your account is in good "
           "standing.", "type": "Arrearage"}, "request_id": "1"}),
    (429, [{"error": {"code": 429, "message": "You exceeded your current quota, please check your plan and billing "
            "details. Please retry in 20.04s.", "status": "RESOURCE_EXHAUSTED", "details": [{"violations": [
                {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}}]),
    (429, openai("You exceeded your current quota. * Quota exceeded for metric: generate_content_free_tier_requests, "
                 "limit: 0, model: gemini-3-pro\nPlease retry in 45.5s.", status="RESOURCE_EXHAUSTED")),
    (429, openai("You are using a Trial key, which is limited to 1000 API calls / month.")),
    (402, {"detail": "pay"}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), QUOTAS)
async def test_an_account_with_nothing_left_is_a_quota(status: int, body: object) -> None:
    error = await caught(status, body)
    assert type(error) is ModelQuotaExceeded
    assert "MEMSERVER_LLM_API_KEY" in error.hint


LIMITS = [
    openai("Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 1500. "
           "Please try again in 1s.", type="tokens", code="rate_limit_exceeded"),
    openai("You have been rate limited. Your rate limit is 60 queries per minute. Please navigate to "
           "https://api.together.xyz/settings/billing to upgrade to a paid plan.", type="credit_limit"),
    openai("Rate limit reached for model `x` on tokens per minute (TPM): Limit 6000, Used 5034, Requested 1443. Please "
           "try again in 4.77s. Need more tokens? Upgrade today at https://console.groq.com/settings/billing"),
    openai("Requests to the ChatCompletions_Create Operation have exceeded token rate limit of your current OpenAI S0 "
           "pricing tier. Please retry after 6 seconds. Please go here: https://aka.ms/oai/quotaincrease", code="429"),
    [{"error": {"code": 429, "message": "You exceeded your current quota, please check your plan and billing details.",
      "status": "RESOURCE_EXHAUSTED", "details": [{"violations": [
          {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]}]}}],
    openai("Too many tokens, please wait before trying again."),
    openai("Rate limit reached on tokens per day (TPD): Limit 100000, Used 99900, Requested 200. Please try again in "
           "8.64s."),
]  # fmt: skip


@pytest.mark.parametrize("body", LIMITS)
async def test_a_limit_that_passes_is_no_quota_and_no_full_context(body: object) -> None:
    error = await caught(429, body)
    assert type(error) is ModelUnavailable
    assert "limits requests" in error.hint


OVERFLOWS = [
    (400, openai("This model's maximum context length is 131072 tokens. However, you requested 0 output tokens and "
                 "your prompt contains at least 131073 input tokens"), 131072),
    (400, openai("This endpoint's maximum context length is 32,768 tokens. However, you requested about 40,000"), 32768),
    (400, openai("Requested token count exceeds the model's maximum context length of 4096 tokens."), 4096),
    (400, openai("Input length (265330) exceeds model's maximum context length (262144)."), 262144),
    (400, openai("Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context "
                 "length", code="3051"), 32768),
    (400, openai("The decoder prompt (length 9) is longer than the maximum model length of 8."), 8),
    (400, openai("The input (263000 tokens) is longer than the model's context length (262144 tokens)."), 262144),
    (400, [{"error": {"code": 400, "message": "The input token count (3475108) exceeds the maximum number of tokens "
            "allowed (1048576).", "status": "INVALID_ARGUMENT"}}], 1048576),
    (400, {"type": "error", "error": {"type": "invalid_request_error",
           "message": "prompt is too long: 213462 tokens > 200000 maximum"}}, 200000),
    (400, openai("input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input"), 200000),
    (400, {"error": "The number of tokens to keep from the initial prompt is greater than the context length "
           "(n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length"}, 4096),
    (400, {"error": "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded "
           "with context length of only 7866 tokens, which is not enough."}, 7866),
    (400, openai("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650"), 272000),
    (400, openai("Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
                 code="context_length_exceeded"), 8192),
    (400, openai("This model's maximum prompt length is 131072 but the request contains 537812 tokens."), 131072),
    (400, openai("Input length 131393 exceeds the maximum allowed input length of 131040 tokens."), 131040),
    (400, openai("Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."), 59862),
    (400, openai("Your request exceeded model token limit: 262144 (requested: 300000)"), 262144),
    (400, openai("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]"), 30720),
    (400, {"message": "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received "
           "6354."}, 2048),
    (400, openai("the request exceeds the available context size, try increasing it",
                 type="exceed_context_size_error", n_prompt_tokens=9000, n_ctx=8192), 8192),
    (400, openai("Requested tokens (9) exceed context window of 8"), 8),
    (413, openai("Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 14810, please "
                 "reduce your message size", type="tokens", code="rate_limit_exceeded"), 6000),
    (429, openai("Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 35064. The input or "
                 "output tokens must be reduced", code="rate_limit_exceeded"), 30000),
    (400, openai("Please reduce the length of the messages or completion."), None),
    (400, openai("Your input exceeds the context window of this model. Please adjust", code="x"), None),
    (400, {"error": "the input length exceeds the context length"}, None),
    (400, {"error": "prompt too long; exceeded max context length by 4 tokens"}, None),
    (400, {"message": "Input is too long for requested model."}, None),
    (400, openai("Too long.", code="context_length_exceeded"), None),
    (400, openai("invalid params, context window exceeds limit (2013)"), None),
    (403, {"error": {"type": "billing_error", "message": "Extra usage is required for long context requests"}}, None),
    (502, openai("Provider returned error", code=502, metadata={"raw": json.dumps(openai(
        "This model's maximum context length is 8192 tokens."))}), 8192),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "window"), OVERFLOWS)
async def test_a_full_context_is_an_overflow_with_the_window_that_is_said(
    status: int, body: object, window: int | None
) -> None:
    error = await caught(status, body)
    assert isinstance(error, ContextOverflow)
    assert error.window == window


REFUSALS = [
    (400, openai("The response was filtered due to the prompt triggering Azure OpenAI's content management policy. "
                 "Please modify your prompt and retry.", param="prompt", code="content_filter", status=400,
                 innererror={"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {}}})),
    (403, openai('openai/gpt-4 requires moderation on OpenRouter. Your input was flagged for "violence"', code=403,
                 metadata={"reasons": ["violence"], "flagged_input": "…"})),
    (400, openai("Moderation Block", code="421", type="content_filter", param="considered high risk")),
    (400, openai("Content Exists Risk", type="invalid_request_error", code="invalid_request_error")),
    (400, {"detail": "Content Exists Risk"}),
    (400, openai("<400> InternalError.Algo.DataInspectionFailed: Input text data may contain inappropriate content.")),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), REFUSALS)
async def test_a_content_filter_refuses_in_the_providers_words(status: int, body: object) -> None:
    error = await caught(status, body)
    assert type(error) is ModelRefused
    assert StatusError(status, body).words in error.message
    assert "other words" in error.hint


MISSING = [
    (404, openai("The model `x` does not exist or you do not have access to it.", code="model_not_found")),
    (403, openai("Project `p` does not have access to model `gpt-4`", code="model_not_found")),
    (404, openai("The API deployment for this resource does not exist.", code="DeploymentNotFound")),
    (404, openai("No endpoints found for stepfun/step-3.5-flash:free.", code=404)),
    (404, [openai("models/gemini-9 is not found for API version v1main", code=404, status="NOT_FOUND")]),
    (400, openai("Model Not Exist", code="invalid_request_error")),
    (404, {"error": "model 'x' not found"}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), MISSING)
async def test_a_model_that_is_not_there_is_not_found(status: int, body: object) -> None:
    assert type(await caught(status, body)) is ModelNotFound


@pytest.mark.parametrize(
    "body",
    [
        openai("No endpoints found that support tool use. To learn more about provider routing"),
        openai("No endpoints found for x that support tool use."),
        openai("No endpoints available matching your guardrail restrictions and data policy."),
    ],
)
async def test_what_a_router_has_no_endpoint_for_is_a_refusal(body: object) -> None:
    assert type(await caught(404, body)) is ModelRejected


@pytest.mark.parametrize(
    "message",
    [
        "tools param requires --jinja flag",
        "This server does not support tools. Start it with `--jinja`",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "not implemented",
    ],
)
async def test_what_a_server_is_not_able_to_is_a_refusal_and_not_an_outage(message: str) -> None:
    error = await caught(500, openai(message, code=500))
    assert type(error) is ModelRejected
    assert message in error.message


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (503, "Loading model"),
        (400, "Model is currently loading, please wait"),
        (400, "The model x is being loaded"),
        (404, "still loading"),
    ],
)
async def test_a_model_that_loads_is_unavailable_for_now(status: int, message: str) -> None:
    error = await caught(status, openai(message))
    assert type(error) is ModelUnavailable
    assert "loaded" in error.hint


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        (openai("because"), "because"),
        ([openai("because")], "because"),
        ({"object": "error", "message": "because", "code": 40401}, "because"),
        ({"error": "because"}, "because"),
        ({"message": "because"}, "because"),
        ({"detail": "because"}, "because"),
        ({"error": {"message": '{"error": {"message": "because"}}'}}, "because"),
        ({"error": '{"detail": "because"}'}, "because"),
        (
            {"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs", "input": "my words"}]},
            "body.tools: Extra inputs",
        ),
        (
            {"object": "error", "message": {"detail": [{"loc": ["body", "n"], "msg": "no"}]}},
            "body.n: no",
        ),
        (openai("outer", metadata={"raw": '{"message": "inner"}'}), "outer: inner"),
        (openai("outer", metadata={"raw": "<inner>"}), "outer: <inner>"),
        ({"error": {"code": "bad_thing", "message": ""}}, "bad_thing"),
        ({"title": "Bad", "status": 400, "detail": "because"}, "because"),
        ("because", "because"),
        (None, "it does not say why"),
        ({}, "it does not say why"),
    ],
)
async def test_the_words_of_an_error_are_found_in_every_shape(body: object, reported: str) -> None:
    error = await caught(400, body)
    assert error.message == f"The model's endpoint answered 400: {reported}"


@pytest.mark.parametrize("echo", ["input", "ctx"])
async def test_what_an_error_repeats_of_the_request_decides_nothing(echo: str) -> None:
    body = {"detail": [{"msg": "no", echo: {"code": "insufficient_quota content_filter"}}]}
    assert type(await caught(400, body)) is ModelRejected


async def test_the_page_of_a_proxy_is_reported_by_its_title() -> None:
    page = "<html><head><title>502 Bad Gateway</title></head><body><center>nginx</center></body></html>"
    async with asking(Scripted(whole(page, "text/html", 502)), retries=0) as client:
        with pytest.raises(ModelUnavailable, match=r"answered 502: 502 Bad Gateway$"):
            await client.post("/x", b"{}")


@pytest.mark.parametrize(
    ("status", "body", "hint"),
    [
        (400, openai("no"), "docs/endpoints.md"),
        (422, openai("no"), "docs/endpoints.md"),
        (400, openai("API key not valid. Please pass a valid API key."), "MEMSERVER_LLM_API_KEY"),
        (401, openai("no"), "MEMSERVER_LLM_API_KEY"),
        (402, openai("no"), "credit"),
        (403, openai("no"), "may not use this model"),
        (404, openai("no"), "MEMSERVER_LLM_BASE_URL"),
        (413, openai("no"), "more bytes"),
        (429, openai("no"), "limits requests"),
        (500, openai("no"), "its log says why"),
        (529, openai("no"), "its log says why"),
    ],
)
async def test_every_refusal_says_what_to_do(status: int, body: object, hint: str) -> None:
    assert hint in (await caught(status, body)).hint


@pytest.mark.parametrize(
    ("body", "headers", "wait"),
    [
        (openai("no"), {"retry_after": "20"}, "20 seconds"),
        (openai("no"), {"retry_after_ms": "1500", "retry_after": "9"}, "1.5 seconds"),
        (openai("no"), {"x_ratelimit_reset_tokens": "6m0s", "x_ratelimit_remaining_tokens": "0",
                        "x_ratelimit_reset_requests": "1s"}, "360 seconds"),
        (openai("Please try again in 4.77s."), {}, "4.77 seconds"),
        (openai("Please retry after 6 seconds."), {}, "6 seconds"),
        (openai("Please try again in 1m30s."), {}, "90 seconds"),
        (openai("Please try again in 120ms."), {}, "0.12 seconds"),
    ],
)  # fmt: skip
async def test_a_limit_says_how_long_to_wait(
    body: object, headers: dict[str, object], wait: str
) -> None:
    assert wait in (await caught(429, body, **headers)).hint
