"""An OpenAI-compatible endpoint: where it is, how it is spoken to, and the HTTP proxy in front of it."""

from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from memserver.errors import SetupError
from memserver.openai_http.addresses import Address, key_headers, read_address, read_key
from memserver.openai_http.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an endpoint is and how it is spoken to.

    Attributes:
        base_url: in any form that `addresses.read_address` understands.
        api_key: empty where none is wanted.
        timeout: seconds for a whole answer, from the request to the last byte, retries and the pauses
            between them included.
        max_retries: after a failed connection, a 5xx, 429 or 408, or while the model loads, before anything was
            answered.
        title: what errors call it.
        variables: how the names of the settings start that hints speak of.
        remedy: what to do when it fails, where no setting leads to it; instead of hints at settings.
        connections: how many there are at once, at most; 0 leaves that to the one who bounds the requests.
        beside_v1: the routes stand beside /v1, as vLLM's /tokenize does.
        most_bytes: of an answer, and of one event of a stream.
        fleet: the engines, where several serve the same models; `base_url` is the first one's.
        most_values: in them, counted by commas, colons and brackets: the parser lets nothing else run.
    """

    base_url: str
    api_key: str = field(default="", repr=False)
    timeout: float = 120
    max_retries: int = 1
    title: str = "model's endpoint"
    variables: str = "MEMSERVER_LLM"
    remedy: str = ""
    connections: int = 100
    beside_v1: bool = False
    most_bytes: int = 8_000_000
    most_values: int = 500_000
    fleet: Fleet | None = None

    def address(self) -> tuple[Address, dict[str, str]]:
        """Where its routes lie, and the headers with its key. Raises SetupError where either can't be."""
        name = self.variables
        try:
            address = read_address(self.base_url)
        except ValueError as error:
            raise SetupError(
                f"The address of the {self.title} is no URL: {error}.",
                hint=f"Set {name}_BASE_URL to an address such as http://host:port/v1.",
            ) from error
        try:
            headers = key_headers(address, read_key(self.api_key))
        except ValueError as error:
            raise SetupError(
                f"The key of the {self.title} can't be sent: {error}.",
                hint=f"Copy the key into {name}_API_KEY again, and nothing else.",
            ) from error
        return address.beside() if self.beside_v1 else address, headers


def proxy_of(address: Address) -> str | None:
    """The proxy of the environment or the system; none for this machine.

    Raises:
        SetupError: it is of a kind that aiohttp can't speak to.
    """
    parts = urlsplit(address.base)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    if _is_here(host) or proxy_bypass(f"{host}{port}"):
        return None
    known = getproxies()
    proxy = known.get(parts.scheme) or known.get("all")
    if not proxy:
        return None
    scheme, separated, _ = proxy.partition("://")
    if separated and scheme.lower() not in {"http", "https"}:
        raise SetupError(
            f"The proxy for {host} is of the kind {scheme}, which is not supported.",
            hint="Name an HTTP proxy in HTTP_PROXY or HTTPS_PROXY, or the host in NO_PROXY.",
        )
    return proxy if separated else f"http://{proxy}"


def _is_here(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return not host or host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified
