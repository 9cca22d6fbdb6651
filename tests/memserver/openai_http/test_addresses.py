"""Addresses and keys are understood as people paste them, and what can't be understood is said at the start."""

import pytest

from memserver.errors import SetupError
from memserver.openai_http.addresses import Address, key_headers, read_address, read_key
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.settings import Settings
from memserver.wiring.services import check_settings

AZURE = "https://x.openai.azure.com/openai"
VERSION = "?api-version=2024-06-01"


@pytest.mark.parametrize(
    ("pasted", "base"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        # around it
        (" http://localhost:8000/v1 \r\n", "http://localhost:8000/v1"),
        ('"http://localhost:8000/v1"', "http://localhost:8000/v1"),
        ("'http://localhost:8000/v1/'", "http://localhost:8000/v1"),
        ("<https://api.openai.com/v1>", "https://api.openai.com/v1"),
        ("\u201chttps://api.openai.com/v1\u201d", "https://api.openai.com/v1"),
        ("\ufeffhttps://api.openai.com/v1\u200b.", "https://api.openai.com/v1"),
        ("http://localhost:8000/\nv1", "http://localhost:8000/v1"),
        # slashes
        ("http://localhost:8000/v1///", "http://localhost:8000/v1"),
        ("http://localhost:8000//v1/", "http://localhost:8000/v1"),
        ("http:/localhost:8000/v1", "http://localhost:8000/v1"),
        # a route at the end
        ("https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1/chat/completions/", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1/completions", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1/embeddings", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1/responses", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1/models", "https://api.openai.com/v1"),
        ("http://localhost:8000/tokenize", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/Chat/Completions", "http://localhost:8000/v1"),
        # without a scheme
        ("localhost:8000/v1", "http://localhost:8000/v1"),
        ("//localhost:8000/v1", "http://localhost:8000/v1"),
        ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("192.168.0.7:1234/v1", "http://192.168.0.7:1234/v1"),
        ("10.0.0.2/v1", "http://10.0.0.2/v1"),
        ("100.101.102.103:8000", "http://100.101.102.103:8000/v1"),
        ("[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("vllm:8000", "http://vllm:8000/v1"),
        ("host.docker.internal:11434/v1", "http://host.docker.internal:11434/v1"),
        ("box.local:8080", "http://box.local:8080/v1"),
        ("api.openai.com/v1", "https://api.openai.com/v1"),
        ("8.8.8.8/v1", "https://8.8.8.8/v1"),
        ("HTTPS://API.OpenAI.com/v1", "https://api.openai.com/v1"),
        # without a path
        ("http://localhost:11434", "http://localhost:11434/v1"),
        ("https://api.openai.com/", "https://api.openai.com/v1"),
        ("https://openrouter.ai", "https://openrouter.ai/api/v1"),
        ("https://api.groq.com", "https://api.groq.com/openai/v1"),
        (
            "generativelanguage.googleapis.com",
            "https://generativelanguage.googleapis.com/v1beta/openai",
        ),
        ("https://x.openai.azure.com/", f"{AZURE}/v1"),
        (AZURE, f"{AZURE}/v1"),
        # a route at the root: where /v1 can't be there it stays
        ("http://localhost:8000/chat/completions", "http://localhost:8000/v1"),
        ("https://api.perplexity.ai/chat/completions", "https://api.perplexity.ai"),
        ("https://models.example/chat/completions", "https://models.example"),
        # other paths
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1"),
        ("https://api.groq.com/openai/v1/models", "https://api.groq.com/openai/v1"),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
            "https://generativelanguage.googleapis.com/v1beta/openai",
        ),
        (
            "https://dashscope.aliyuncs.com/compatible-mode/v1",
            "https://dashscope.aliyuncs.com/compatible-mode/v1",
        ),
        ("https://api.z.ai/api/paas/v4/", "https://api.z.ai/api/paas/v4"),
        ("http://localhost:3000/api", "http://localhost:3000/api"),
        # a name and a password stay
        ("http://me:secret@box:80/v1", "http://me:secret@box:80/v1"),
    ],
)
def test_a_base_url_is_understood_in_every_form(pasted: str, base: str) -> None:
    assert read_address(pasted) == Address(base)


@pytest.mark.parametrize(
    ("pasted", "of_chat"),
    [
        (
            f"{AZURE}/deployments/DEP/chat/completions{VERSION}",
            f"{AZURE}/deployments/DEP/chat/completions{VERSION}",
        ),
        (f"{AZURE}/deployments/DEP{VERSION}", f"{AZURE}/deployments/DEP/chat/completions{VERSION}"),
        (
            f"{AZURE}/deployments/DEP/",
            f"{AZURE}/deployments/DEP/chat/completions?api-version=2024-10-21",
        ),
        (f"{AZURE}/v1/?api-version=preview", f"{AZURE}/v1/chat/completions?api-version=preview"),
        (
            "https://x.services.ai.azure.com/models?api-version=1",
            "https://x.services.ai.azure.com/models/chat/completions?api-version=1",
        ),
        ("gateway:80?key=a&b=c", "http://gateway:80/v1/chat/completions?key=a&b=c"),
    ],
)
def test_a_query_stands_after_the_path_of_each_request(pasted: str, of_chat: str) -> None:
    assert read_address(pasted).of("/chat/completions") == of_chat


@pytest.mark.parametrize(
    ("pasted", "tokenize"),
    [
        ("localhost:8000", "http://localhost:8000/tokenize"),
        ("http://localhost:8000/v1/", "http://localhost:8000/tokenize"),
        ("http://box/llm/v1?k=1", "http://box/llm/tokenize?k=1"),
        ("http://box/api", "http://box/api/tokenize"),
    ],
)
def test_counts_are_requested_beside_v1(pasted: str, tokenize: str) -> None:
    assert read_address(pasted).beside().of("/tokenize") == tokenize


@pytest.mark.parametrize(
    "pasted",
    [
        "",
        "  ",
        "http://",
        "http:///v1",
        "ftp://x/v1",
        "ws://x/v1",
        "http://[::1/v1",
        "http://x:port/v1",
        "http://x:99999/v1",
        "http://a..b/v1",
        f"http://{'a' * 64}.example/v1",
        "http://local host/v1",
        "https://<resource>.openai.azure.com/",
        "https://{resource}.openai.azure.com/openai/v1",
        "http://$HOST/v1",
        "https://x.openai.azure.com/openai/deployments/<name>",
        "the local one",
    ],
)
@pytest.mark.parametrize("variables", ["MEMSERVER_LLM", "MEMSERVER_EMBEDDING"])
def test_an_address_that_is_no_url_is_a_set_up_error(pasted: str, variables: str) -> None:
    with pytest.raises(SetupError) as caught:
        EndpointClient(Endpoint(pasted, variables=variables))
    assert f"{variables}_BASE_URL" in caught.value.hint


def test_an_address_that_is_no_url_is_not_shown() -> None:
    with pytest.raises(SetupError) as caught:
        EndpointClient(Endpoint("http://me:pass/word@host/v1"))
    assert "pass" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    "pasted",
    [
        "sk-1",
        " sk-1\n",
        "'sk-1'",
        '"sk-1"\r\n',
        "Bearer sk-1",
        "bearer  sk-1",
        '"Bearer sk-1"',
        "Authorization: Bearer sk-1",
        "api-key: sk-1",
        "\ufeffsk-1\u200b",
    ],
)
def test_a_key_is_understood_in_every_form(pasted: str) -> None:
    assert read_key(pasted) == "sk-1"


@pytest.mark.parametrize(
    "key", ["se\ncret", "se\r\ncret", "secr\u00e9t", "se\u2026cret", "se\tcret"]
)
def test_a_key_that_no_header_takes_is_a_set_up_error_that_does_not_show_it(key: str) -> None:
    with pytest.raises(SetupError) as caught:
        EndpointClient(Endpoint("http://x/v1", api_key=key))
    assert "MEMSERVER_LLM_API_KEY" in caught.value.hint
    assert "se" not in str(caught.value).replace("be sent", "")
    assert "cret" not in f"{caught.value} {caught.value.hint} {caught.value.__cause__}"


@pytest.mark.parametrize("prefix", ["llm", "embedding"])
@pytest.mark.parametrize(
    ("name", "value"), [("base_url", "ftp://x/v1"), ("api_key", "se\ncret")], ids=["address", "key"]
)
def test_a_server_does_not_start_with_what_can_not_be_used(
    prefix: str, name: str, value: str
) -> None:
    given = {f"{prefix}_base_url": "http://x/v1", f"{prefix}_{name}": value}
    with pytest.raises(SetupError) as caught:
        check_settings(Settings(_env_file=None, embedding_model="m", **given))  # type: ignore[arg-type]
    assert f"MEMSERVER_{prefix}_{name}".upper() in caught.value.hint


BEARER, KEY = ("Authorization", "Bearer k"), ("api-key", "k")


@pytest.mark.parametrize(
    ("address", "key", "headers"),
    [
        ("https://api.openai.com/v1", "k", {BEARER}),
        ("https://api.openai.com/v1", "", set()),
        ("https://me:private@api.openai.com/v1", "k", set()),
        (f"{AZURE}/deployments/DEP", "k", {KEY}),
        (f"{AZURE}/v1", "k", {BEARER, KEY}),
        ("https://x.cognitiveservices.azure.com/openai/v1", "k", {BEARER, KEY}),
        ("https://gateway.example/openai/deployments/DEP?api-version=1", "k", {BEARER, KEY}),
        (f"{AZURE}/deployments/DEP", "eyJa.eyJb.c", {("Authorization", "Bearer eyJa.eyJb.c")}),
    ],
)
def test_a_key_goes_out_in_the_header_that_its_host_takes(
    address: str, key: str, headers: set[tuple[str, str]]
) -> None:
    assert set(key_headers(read_address(address), key).items()) == headers
