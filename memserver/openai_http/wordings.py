"""What endpoints say when they refuse: the providers' words, and what each means.

Owns the wordings, each from a public report or documentation. Leaves the errors that stand for them to
`translation`. Words decide only where a status doesn't: providers don't agree on those.
"""

import re

_FLAGS = re.IGNORECASE | re.DOTALL

_OVERFLOWS = tuple(
    re.compile(words, _FLAGS)
    for words in (
        # With the window in them, as far as they say it.
        # OpenAI, vLLM, DeepSeek, OpenRouter, LiteLLM (earendil-works/pi#5929, #129)
        r"maximum context length(?: is| of|:)? ?\(?(?P<window>[\d,]+)",
        # Mistral: "Prompt contains N tokens … too large for model with N maximum context length" (pi#129)
        r"too large for model with (?P<window>[\d,]+) maximum context length",
        # vLLM, of a prompt without a chat template
        r"maximum model length(?: of)? (?P<window>[\d,]+)",
        # SGLang, Together: "is longer than the model's context length (N tokens)" (openclaw/openclaw#129352)
        r"longer than the model.?s context length \(?(?P<window>[\d,]+)",
        # Gemini (google-gemini/gemini-cli#4231)
        r"input token count.{0,30}exceeds the maximum number of tokens allowed \(?(?P<window>[\d,]+)",
        # Anthropic, also over Bedrock: "prompt is too long: N tokens > N maximum" (strands harness-sdk#1663)
        r"(?:prompt|input) is too long.{0,40}> ?(?P<window>[\d,]+) maximum",
        # Anthropic: "input length and `max_tokens` exceed context limit: N + N > N" (continuedev/continue#6080)
        r"exceed context limit: [\d,]+ \+ [\d,]+ > (?P<window>[\d,]+)",
        # LM Studio (Gitlawb/openclaude#353; lmstudio-bug-tracker#546)
        r"greater than the context length.{0,40}n_ctx: ?(?P<window>[\d,]+)",
        r"loaded with context length of only (?P<window>[\d,]+)",
        # OpenAI's GPT-5 (cline/cline#5474)
        r"exceed the configured limit of (?P<window>[\d,]+)",
        # Cerebras, Groq: "Please reduce the length of the messages or completion" (pi#129)
        r"reduce the length of the messages.{0,80}limit is (?P<window>[\d,]+)",
        # xAI; Poolside (pi#4943); GitHub Copilot; Kimi; Fireworks
        r"maximum prompt length is (?P<window>[\d,]+)",
        r"maximum allowed (?:input )?length(?: of)? \(?(?P<window>[\d,]+)",  # also sglang#4048
        r"prompt token count.{0,20}exceeds the limit of (?P<window>[\d,]+)",
        r"exceeded model token limit: ?(?P<window>[\d,]+)",
        # Alibaba (QwenLM/qwen-code#98)
        r"range of input length should be \[\d+, ?(?P<window>[\d,]+)\]",
        # Cohere (cohere-ai/sandbox-topically#4)
        r"total number of tokens .{0,30}cannot exceed (?P<window>[\d,]+)",
        # llama-cpp-python; LM Studio (model-catalog#38); TGI and TEI
        r"exceed context window of (?P<window>[\d,]+)",
        r"input length [\d,]+ exceeds context length (?P<window>[\d,]+)",
        r"max_new_tokens` must be <= ?(?P<window>[\d,]+)",
        r"must have less than (?P<window>[\d,]+) tokens",
        # Without it.
        "context_length_exceeded|exceed_context_size|model_context_window_exceeded|string_too_long",
        "maximum context length|maximum model length|exceeds the available context size",
        # Ollama: "the input length exceeds the context length" (open-notebook#350, n8n#11144)
        "longer than the model.?s context|exceeds? (?:the )?(?:maximum )?context (?:window|length|size)",
        "context (?:window|length|size) (?:has been )?exceeded|context window exceeds limit",
        "greater than the context length|reduce the length of the (?:messages|input|prompt)",
        "(?:prompt|input) (?:is )?too long|prompt exceeds max length|exceeded (?:max )?context length",
        r"too many tokens: (?:total number|size limit)",  # Cohere; "Too many tokens" alone is Bedrock's throttling
        "extra usage is required for long context",  # Anthropic (anomalyco/opencode#18683)
    )
)
_LARGER_THAN_A_MINUTE = re.compile(
    r"request too large for .{0,300}?limit:? (?P<window>[\d,]+), requested:? (?P<asked>[\d,]+)",
    _FLAGS,
)
"""OpenAI (429) and Groq (413): more tokens than a minute's worth, so that no later time helps
(enricoros/big-AGI#636, continuedev/continue#10218)."""

_REFUSED = re.compile(
    # Azure (stanford-crfm/helm#3327, openai/openai-dotnet#55), OpenAI, OpenRouter (openrouter.ai/docs/api/errors)
    "content_filter|content_policy|ResponsibleAIPolicy|content management policy|content policy|"
    "input was flagged|requires moderation|rejected by (?:the|our) safety|"
    # Xiaomi (XiaomiMiMo/MiMo-V2-Flash#18), DeepSeek (DeepSeek-V2#30), Alibaba (qwen-code#3145)
    "moderation block|content exists risk|data_?inspection_?failed|inappropriate content",
    re.IGNORECASE,
)
_EXHAUSTED = re.compile(
    # OpenAI (langchain-ai/langchainjs#1929), Moonshot (MoonshotAI/Kimi-K2#5, opencode#24462)
    "insufficient_quota|exceeded_current_quota|billing_hard_limit|billing hard limit|billing_not_active|"
    "account (?:\\S+ )*is not active|"
    # DeepSeek (continuedev/continue#9942), Anthropic (claude-quickstarts#229), xAI (continue#10373, 403 in
    # warp#14863), Together (expectedparrot/edsl#2098), OpenRouter (RooCodeInc/Roo-Code#515)
    "insufficient[ _](?:balance|credit|fund)|credit balance is too low|billing_error|out of credits|"
    "used all available credits|credit limit exceeded|requires more credits|key limit exceeded|"
    "(?:spend(?:ing)?|usage) limit (?:has been )?(?:reached|exceeded)|reached (?:its|your) (?:monthly )?spend|"
    "exceeded your monthly|monthly spending limit|"
    # Alibaba (tencentmusic/supersonic#1572, RooCodeInc/Roo-Code#12309)
    "arrearage|overdue[ -](?:payment|account)|\u4f59\u989d\u4e0d\u8db3|\u6b20\u8d39",
    re.IGNORECASE,
)
_GOOGLE_LIMIT = re.compile(r"RESOURCE_EXHAUSTED")
"""Google says "You exceeded your current quota" of a minute's limit as well (google-gemini/gemini-cli#8437)."""
_GOOGLE_GONE = re.compile(r"PerDay|per day|\blimit: 0\b")
_QUOTA_TEXT = "exceeded your current quota"
_PERIOD = re.compile(r"per[ -](?:day|month)|/ ?(?:day|month)|daily|monthly", re.IGNORECASE)
"""OpenRouter's free-models-per-day, Groq's tokens per day, Cohere's calls a month."""
_SOON = 60
"""Seconds: a day's limit that rolls may be kept again after so short a time."""

_NO_MODEL = re.compile(
    # OpenAI, vLLM, Ollama, llama.cpp, Mistral, LiteLLM, Gemini, Azure
    r"model_not_found|model_not_available|DeploymentNotFound|"
    r"\b(?:models?|adapter|deployment)\b.{0,300}?(?:does not exist|not found)|not a valid model|"
    r"\b(?:invalid|unknown)[ _]model\b|no such model|model not exist|no models? loaded|"
    r"no endpoints found for (?!.*support)",  # OpenRouter (free-claude-code#166)
    _FLAGS,
)
_LOADING = re.compile(
    # llama.cpp (503), Ollama, LM Studio, Hugging Face
    r"\bloading (?:the )?model|\bis (?:still |currently )?(?:being loaded|loading)\b|still loading|warming up",
    re.IGNORECASE,
)
_NOT_ABLE = re.compile(
    # llama.cpp: "tools param requires --jinja flag" (500), and what else no later time changes (LLMKube#126)
    r"--jinja|(?:\bnot|n't) support|unsupported|not implemented|\bjinja\b|chat template|roles? must alternate|"
    r"raise_exception|roles are supported",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    # Google says 400 (continuedev/continue#9330)
    r"API[ _]key (?:is )?(?:not valid|invalid|expired)|API_KEY_INVALID|invalid_api_key",
    re.IGNORECASE,
)
_CODES = (
    # Codes in words, of errors that came without a status: in a stream, or with 200.
    (re.compile(r"rate.?limit|too.?many.?requests|resource.?exhausted|quota", re.IGNORECASE), 429),
    (re.compile(r"overloaded|unavailable", re.IGNORECASE), 503),
    (re.compile(r"auth(?:entication|orized)|invalid_api_key|unauthenticated", re.IGNORECASE), 401),
    (re.compile(r"permission|forbidden", re.IGNORECASE), 403),
    (re.compile(r"not.?found|unexpected endpoint", re.IGNORECASE), 404),
    (re.compile(r"timeout|deadline", re.IGNORECASE), 504),
    (re.compile(r"invalid|bad.?request|content_filter|context_length", re.IGNORECASE), 400),
    (re.compile(r"server|internal|api_error", re.IGNORECASE), 500),
)


def window_in(text: str, *, limited: bool = False) -> int | None:
    """Whether the words say that a prompt is too long: 0, or the window that they name; None: they don't.

    Of what a limit on requests says (`limited`) only a request counts that is larger than a minute's worth.
    """
    found = _LARGER_THAN_A_MINUTE.search(text)
    if found:
        window, asked = (int(found[name].replace(",", "")) for name in ("window", "asked"))
        return window if asked > window else None
    if limited:
        return None
    for words in _OVERFLOWS:
        if found := words.search(text):
            said = found.groupdict().get("window")
            return int(said.replace(",", "") or 0) if said else 0
    return None


def is_refused(text: str) -> bool:
    return _REFUSED.search(text) is not None


def is_exhausted(text: str, wait: float | None) -> bool:
    """Whether the account has nothing left, for longer than a request waits."""
    if _GOOGLE_LIMIT.search(text):
        return _GOOGLE_GONE.search(text) is not None
    if _EXHAUSTED.search(text) or _QUOTA_TEXT in text:
        return True
    return _PERIOD.search(text) is not None and (wait is None or wait > _SOON)


def is_unknown_model(text: str) -> bool:
    return _NO_MODEL.search(text) is not None


def is_loading(text: str) -> bool:
    return _LOADING.search(text) is not None


def is_not_able(text: str) -> bool:
    """Whether a server's fault is that it can't do what is asked, now and later."""
    return _NOT_ABLE.search(text) is not None


def is_about_the_key(text: str) -> bool:
    return _BAD_KEY.search(text) is not None


def status_in(words: str) -> int | None:
    return next((status for code, status in _CODES if code.search(words)), None)
