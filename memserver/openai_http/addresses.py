"""Base URLs and keys as people paste them, and where an endpoint's routes lie.

A message here never shows the text that was given: it may hold a password or a key.
"""

import re
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

_AROUND = " \t\r\n\f\v\xa0\u200b\u2060\ufeff\"'`\u201c\u201d\u2018\u2019\xab\xbb<>,;"
"""Blanks, quotes and brackets that come along when a text is copied."""
_SCHEME = re.compile(r"(https?):/{0,2}", re.IGNORECASE)
_ROUTE = re.compile(
    r"/(?:chat/completions|completions|embeddings|responses|models|tokenize)$", re.IGNORECASE
)
_HOST = re.compile(
    r"[^\s.<>{}\[\]()\"'`|\\^%$*,;!=&+~]+(?:\.[^\s.<>{}\[\]()\"'`|\\^%$*,;!=&+~]+)*\.?"
)
_CREDENTIAL = re.compile(r"(?:(?:proxy-)?authorization|api-key)\s*[:=]\s*|bearer\s+", re.IGNORECASE)
_SENDABLE = re.compile(r"[\x20-\x7e]*")
_TOKEN = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*")
"""A JWT, as Microsoft Entra gives it: no key, and taken as a bearer token alone."""

_ROOTS = {
    # Where the compatible routes of a host lie that is named without a path, if not under /v1.
    "openai.azure.com": "/openai/v1",
    "openai.azure.us": "/openai/v1",
    "cognitiveservices.azure.com": "/openai/v1",
    "services.ai.azure.com": "/openai/v1",
    "models.inference.ai.azure.com": "",
    "models.github.ai": "/inference",
    "generativelanguage.googleapis.com": "/v1beta/openai",
    "openrouter.ai": "/api/v1",
    "api.groq.com": "/openai/v1",
    "api.perplexity.ai": "",
    "api.deepinfra.com": "/v1/openai",
    "api.fireworks.ai": "/inference/v1",
    "api.cohere.ai": "/compatibility/v1",
    "api.cohere.com": "/compatibility/v1",
    "dashscope.aliyuncs.com": "/compatible-mode/v1",
    "dashscope-intl.aliyuncs.com": "/compatible-mode/v1",
    "api.z.ai": "/api/paas/v4",
    "open.bigmodel.cn": "/api/paas/v4",
}
_AZURE = tuple(host for host, root in _ROOTS.items() if "azure" in host and root)
_AZURE_VERSION = "api-version=2024-10-21"
"""The last dated version that is no preview; Azure answers 404 to a deployment's URL without one."""
_SHARED_NETWORK = ip_network("100.64.0.0/10")
_LOCAL_ENDINGS = (".localhost", ".local", ".internal", ".lan", ".home.arpa")


@dataclass(frozen=True, slots=True)
class Address:
    """Where an endpoint's routes lie: under `base`, and `query` stands after each."""

    base: str
    query: str = ""

    def of(self, path: str) -> str:
        return f"{self.base}{path}{self.query}"

    def beside(self) -> "Address":
        """Where the routes lie that stand beside /v1, such as vLLM's /tokenize."""
        return Address(self.base.removesuffix("/v1"), self.query)


def read_address(text: str) -> Address:
    """Understand a base URL in any form that people paste: see the table in its test.

    Raises ValueError where it is no URL; the message says why and doesn't show it.
    """
    given = text.strip(_AROUND).rstrip(_AROUND + ".")
    scheme = _SCHEME.match(given)
    rest = given[scheme.end() :] if scheme else given.removeprefix("//")
    if "://" in rest.partition("?")[0]:
        raise ValueError("it is neither http nor https")
    parts = urlsplit(f"//{rest}")
    host, port = _check(parts)
    path = re.sub("/{2,}", "/", parts.path).rstrip("/")
    if re.search(r"[\s<>{}|\\^`\"]", f"{path}{parts.query}"):
        raise ValueError("it holds blanks, or signs that stand for something to be filled in")
    protocol = scheme[1].lower() if scheme else "http" if _is_near(host) else "https"
    path, query = _route_free(host, path), parts.query
    if is_azure(host) and "/deployments/" in path and "api-version=" not in query:
        query = "&".join(filter(None, (query, _AZURE_VERSION)))
    user, at, _ = parts.netloc.rpartition("@")
    shown = f"[{host}]" if ":" in host else host
    return Address(f"{protocol}://{user}{at}{shown}{port}{path}", query and f"?{query}")


def read_key(text: str) -> str:
    """A key without what came along when it was copied; empty for none.

    Raises ValueError where it has characters that no header takes.
    """
    key = text.strip(_AROUND)
    while found := _CREDENTIAL.match(key):
        key = key[found.end() :].strip(_AROUND)
    if not _SENDABLE.fullmatch(key):
        raise ValueError("it has characters that no HTTP header takes, such as a line break")
    return key


def key_headers(address: Address, key: str) -> dict[str, str]:
    """The headers that carry a key, in the way that the host takes it.

    A name and password in the address take the key's place. Azure's classic deployments know `api-key` alone, its
    /openai/v1 both headers; a gateway before a deployment may know either.
    """
    parts = urlsplit(address.base)
    if not key or parts.username is not None:
        return {}
    bearer = {"Authorization": f"Bearer {key}"}
    azure, classic = is_azure(parts.hostname or ""), "/openai/deployments/" in parts.path
    if not (azure or classic) or _TOKEN.fullmatch(key):
        return bearer
    return {"api-key": key} if azure and classic else bearer | {"api-key": key}


def is_azure(host: str) -> bool:
    """Whether it is a resource of Azure OpenAI or Foundry."""
    return _is_under(host, _AZURE)


def _check(parts: SplitResult) -> tuple[str, str]:
    """Host and port; raises ValueError as `read_address` does."""
    host = parts.hostname or ""
    try:
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:  # whose text may show a password that has a slash in it
        raise ValueError("its port is no number up to 65535") from None
    if not host:
        raise ValueError("it names no host")
    if ":" not in host and not _HOST.fullmatch(host):
        raise ValueError("its host's name can't be one")
    if any(len(label) > 63 for label in host.split(".")):
        raise ValueError("its host's name is too long")
    return host, port


def _route_free(host: str, path: str) -> str:
    """The path without the route at its end; what the host has where it has none.

    A route right under a public host keeps its place: providers exist that serve there, and no /v1.
    """
    route = _ROUTE.search(path)
    is_inference = path == "/models" and is_azure(host)  # of Azure AI, whose base ends so
    bare = path[: route.start()] if route and not is_inference else path
    if bare and not (bare == "/openai" and is_azure(host)):
        return bare
    root = next((root for known, root in _ROOTS.items() if _is_under(host, (known,))), None)
    if root is not None:
        return root
    served = route is not None and route[0].lower() not in {"/tokenize", "/models"}
    return "" if served and not _is_near(host) else "/v1"


def _is_under(host: str, known: tuple[str, ...]) -> bool:
    return host in known or host.endswith(tuple(f".{name}" for name in known))


def _is_near(host: str) -> bool:
    """Whether it is this machine or in a network of one's own, where http is spoken."""
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_LOCAL_ENDINGS)
    return address.is_private or address.is_link_local or address in _SHARED_NETWORK
