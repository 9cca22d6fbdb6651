"""Servers that people run themselves: vLLM with its parsers, SGLang, TGI, llama.cpp, Ollama and LM Studio."""

from dataclasses import replace

from memserver.messages import JsonObject
from tests.endpoints.provider import (
    SMALL,
    VLLM_TOO_LONG,
    Asked,
    Provider,
    Refused,
    Reply,
    Rule,
    Stream,
    TooLong,
    flat_error,
    openai_list,
    text_error,
    tokens,
)
from tests.endpoints.rules import (
    alternating,
    assistant_after_tool,
    calls_are_answered,
    nine_characters,
    no_tool_choice,
    no_tools,
    thoughts_in_content,
)

_VLLM_DOCS = "https://docs.vllm.ai/en/latest/features/tool_calling.html"


def _vllm_list(names: tuple[str, ...]) -> JsonObject:
    cards = [{"id": name, "object": "model", "max_model_len": 8192} for name in names]
    return {"object": "list", "data": cards}


def _vllm_count(body: JsonObject, window: int) -> JsonObject:
    count = tokens(str(body["prompt"]))
    return {"count": count, "max_model_len": window, "tokens": [0] * count}


VLLM = Provider(
    "vllm-hermes",
    "vLLM, hermes parser",
    ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-14B-Instruct"),
    (
        Rule("counts tokens and lists its window", _VLLM_DOCS),
        calls_are_answered(),
    ),
    listing=_vllm_list,
    tokenize=_vllm_count,
    window=8192,
    overflow=VLLM_TOO_LONG,
    error=flat_error,
)


def _one_of_both(asked: Asked) -> Refused | None:
    if not any(each.get("tool_calls") and each.get("content") for each in asked.messages):
        return None
    return Refused("Assistant message must have either content or tool_calls, but not both.")


def _with_words(asked: Asked, reply: Reply) -> Reply:
    """The model says something beside the first call that it makes."""
    if not reply.calls or asked.memory.count("words") != 2:
        return reply
    return replace(reply, content="I will do that.")


VLLM_MISTRAL = replace(
    VLLM,
    slug="vllm-mistral",
    title="vLLM, mistral parser",
    models=("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistralai/Devstral-2"),
    rules=(
        nine_characters("https://github.com/jundot/omlx/pull/1997"),
        assistant_after_tool("https://github.com/mistralai/mistral-vibe/issues/454"),
        Rule(
            "an assistant's message has words or calls, not both",
            "https://github.com/vllm-project/vllm/issues/16774",
            _one_of_both,
            _with_words,
        ),
    ),
)
_NO_PARSER = no_tools(
    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    "https://github.com/langchain4j/langchain4j/issues/3475",
)
GEMMA_3 = replace(
    VLLM,
    slug="vllm-gemma-3",
    title="vLLM, Gemma 3",
    models=("google/gemma-3-12b-it", "google/gemma-3-4b-it"),
    rules=(_NO_PARSER, alternating("https://github.com/google/adk-python/issues/1373")),
)
GEMMA_2 = replace(
    VLLM,
    slug="vllm-gemma-2",
    title="vLLM, Gemma 2",
    models=("google/gemma-2-9b-it", "google/gemma-2-2b-it"),
    rules=(
        _NO_PARSER,
        Rule(
            "refuses a system message",
            "https://github.com/huggingface/chat-ui/issues/1386",
            lambda asked: (
                Refused("System role not supported")
                if any(each["role"] == "system" for each in asked.messages)
                else None
            ),
        ),
        alternating("https://github.com/google/adk-python/issues/1373"),
    ),
)


def _with_channel(asked: Asked, reply: Reply) -> Reply:
    """Names with what leaks after them, another one each time; the first one is clean."""
    number = asked.memory.count("names")
    leaks = ("", "<|channel|>commentary", "<|channel|>analysis", "<|constrain|>json")[number % 4]
    before = "functions." if number % 2 else ""
    calls = [{**call, "name": f"{before}{call['name']}{leaks}"} for call in reply.calls]
    return replace(reply, calls=tuple(calls))


def _with_analysis(_asked: Asked, reply: Reply) -> Reply:
    """The channels of a text without a call leak as words without their marks."""
    if reply.calls or not reply.content:
        return reply
    said = f"<|channel|>analysis<|message|>I think about it.<|end|><|start|>assistant<|channel|>final<|message|>{reply.content}"
    return replace(reply, content=said)


GPT_OSS = replace(
    VLLM,
    slug="vllm-gpt-oss",
    title="vLLM, gpt-oss",
    models=("openai/gpt-oss-20b", "openai/gpt-oss-120b"),
    rules=(
        Rule(
            "control tokens and `functions.` leak into the names of calls",
            "https://github.com/vllm-project/vllm/issues/32587",
            shape=_with_channel,
        ),
        Rule(
            "the analysis channel leaks into the content",
            "https://github.com/Augustas11/macprovider/issues/743",
            shape=_with_analysis,
        ),
    ),
)
QWEN_THINKING = replace(
    VLLM,
    slug="vllm-qwen-thinking",
    title="vLLM, Qwen-Thinking without reasoning parser",
    models=("Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen/Qwen3-4B-Thinking-2507"),
    rules=(
        thoughts_in_content(
            "",
            "\n</think>\n\n",
            "a thought in the content ends with `</think>` and has no beginning",
            "https://github.com/vllm-project/vllm/issues/22507",
        ),
    ),
)
SGLANG = Provider(
    "sglang",
    "SGLang",
    ("Qwen/Qwen3-8B", "Qwen/Qwen3-14B"),
    (
        Rule(
            "calls come by a tool parser",
            "https://docs.sglang.io/docs/advanced_features/tool_parser",
        ),
        calls_are_answered(),
    ),
    error=flat_error,
    overflow=TooLong(
        "The input ({total} tokens) is longer than the model's context length ({window} tokens)."
    ),
)
TGI = Provider(
    "tgi",
    "Hugging Face TGI",
    ("tgi", "tgi-2"),
    (
        Rule(
            "each piece of a call in a stream has its name",
            "https://github.com/huggingface/text-generation-inference/issues/2794",
        ),
    ),
    stream=Stream(names="each"),
    error=text_error,
    overflow=TooLong(
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {window}. Given: {read} `inputs` tokens "
        "and {written} `max_new_tokens`"
    ),
)


def _llama_cpp_count(body: JsonObject, _window: int) -> JsonObject:
    return {"tokens": [0] * tokens(body["content"]) if "content" in body else []}


def _llama_cpp_list() -> JsonObject:
    card = {"id": "/models/qwen3-4b-q4_k_m.gguf", "object": "model", "owned_by": "llamacpp"}
    return {
        "object": "list",
        "data": [{**card, "meta": {"n_ctx": SMALL, "n_ctx_train": 40_960}}],
    }


_LLAMA_CPP_DOCS = "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md"
LLAMA_CPP = Provider(
    "llama.cpp",
    "llama.cpp's server",
    ("qwen3-4b", "qwen3-8b"),
    (
        Rule("counts tokens of `content`, and none of another field", _LLAMA_CPP_DOCS),
        Rule("lists the file, whatever it is asked by", _LLAMA_CPP_DOCS),
        calls_are_answered(),
    ),
    listing=lambda _: _llama_cpp_list(),
    tokenize=_llama_cpp_count,
    overflow=TooLong(
        "request ({total} tokens) exceeds the available context size ({window} tokens), try increasing it",
        more={"type": "exceed_context_size_error", "n_ctx": SMALL},
    ),
)
LLAMA_CPP_NO_JINJA = replace(
    LLAMA_CPP,
    slug="llama.cpp-no-jinja",
    title="llama.cpp's server without --jinja",
    rules=(
        *LLAMA_CPP.rules,
        no_tools(
            "tools param requires --jinja flag",
            "https://github.com/defilantech/LLMKube/issues/126",
            status=500,
        ),
    ),
)


def _in_words(asked: Asked, reply: Reply) -> Reply:
    """Each answer to the user's second, fourth … message is plain words in place of a call."""
    words = [each for each in reply.calls if each["name"] == "send_message"]
    if not words or "Answer" not in words[0]["arguments"]:
        return reply
    said = words[0]["arguments"].rpartition("Answer ")[2].strip('"} ')
    return Reply(f"Answer {said}") if int(said) % 2 == 0 else reply


def _twice(_asked: Asked, reply: Reply) -> Reply:
    return replace(reply, calls=reply.calls * 2)


OLLAMA = Provider(
    "ollama",
    "Ollama",
    ("llama3.2", "qwen3"),
    (
        Rule(
            "ignores `tool_choice`: words come in place of a call",
            "https://github.com/ollama/ollama/issues/17921",
            shape=_in_words,
        ),
        Rule(
            "two calls at once have index 0 in a stream",
            "https://github.com/ollama/ollama/issues/15457",
            shape=_twice,
        ),
        Rule(
            "lists models with their tag",
            "https://github.com/TabbyML/tabby/pull/2367",
        ),
    ),
    listing=lambda names: openai_list(tuple(f"{name}:latest" for name in names)),
    stream=Stream(index="zero", pieces=False),
    overflow=TooLong("prompt too long; exceeded max context length by {total} tokens"),
    violations=20,
)
LM_STUDIO = Provider(
    "lm-studio",
    "LM Studio",
    ("qwen3-4b", "qwen3-8b"),
    (
        no_tool_choice(
            "Invalid tool_choice type: 'object'. Supported string values: none, auto, required",
            "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/670",
            only_objects=True,
        ),
        Rule(
            "`/tokenize` answers 200 with an error",
            "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1323",
        ),
        Rule(
            "refuses prompts without a user's message",
            "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1586",
            lambda asked: (
                None
                if any(each["role"] == "user" for each in asked.messages)
                else Refused(
                    'Error rendering prompt with jinja template: "No user query found in messages.".'
                )
            ),
        ),
    ),
    tokenize=lambda _body, _window: {"error": "Unexpected endpoint or method. (POST /tokenize)"},
    error=text_error,
    overflow=TooLong(
        "Trying to keep the first {total} tokens when context the overflows. However, the model is loaded with context "
        "length of only {window} tokens, which is not enough. Try to load the model with a larger context length, or "
        "provide a shorter input"
    ),
)

LOCAL = (
    VLLM,
    VLLM_MISTRAL,
    GEMMA_3,
    GEMMA_2,
    GPT_OSS,
    QWEN_THINKING,
    SGLANG,
    TGI,
    LLAMA_CPP,
    LLAMA_CPP_NO_JINJA,
    OLLAMA,
    LM_STUDIO,
)
