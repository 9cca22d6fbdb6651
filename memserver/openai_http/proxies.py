"""The HTTP proxy in front of an endpoint, as the environment or the system names it."""

from ipaddress import ip_address
from urllib.parse import SplitResult
from urllib.request import getproxies, proxy_bypass

from memserver.errors import SetupError


def proxy_of(parts: SplitResult) -> str | None:
    """The proxy for an address; none for this machine. Raises SetupError for one that aiohttp can't speak to."""
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
