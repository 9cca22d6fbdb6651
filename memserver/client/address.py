"""Where a server is, and what both clients say to it on every request."""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx2

import memserver
from memserver.errors import InvalidInput

DEFAULT_URL = "http://127.0.0.1:8283"
CONNECT_SECONDS = 10.0
_HALF_A_SCHEME = re.compile("https?(:/(?!/)|//)")
"""Such as http:/host or http//host."""


def base_of(url: str) -> str:
    """The server's address without the /v1 that it may end in; http:// where it names no scheme.

    Raises:
        InvalidInput: it is no address of HTTP.
    """
    whole = url.strip() if "://" in url else f"http://{url.strip()}"
    try:
        parts = urlsplit(whole)
        takes = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # no such port
        takes = False
    if not takes or _HALF_A_SCHEME.match(url.strip()):
        raise InvalidInput(f"{url!r} is no server's address.", hint=f"Such as {DEFAULT_URL}.")
    return whole.rstrip("/").removesuffix("/v1")


class Addresses:
    """Of servers over one database: where one fails, the next is asked."""

    def __init__(self, url: str | Sequence[str]) -> None:
        self._bases = [base_of(each) for each in ([url] if isinstance(url, str) else url)]
        if not self._bases:
            raise InvalidInput("There is no server's address.", hint=f"Such as {DEFAULT_URL}.")
        self.base = self._bases[0]

    def move_on(self, failed: str) -> None:
        """Ask the next one from now on, unless that was done since the one that failed was asked."""
        if failed == self.base:
            place = self._bases.index(failed) + 1
            self.base = self._bases[place % len(self._bases)]


def headers_of(api_key: str | None) -> dict[str, str]:
    """What every request carries."""
    found = {"User-Agent": f"memserver-client/{memserver.__version__}"}
    return found if api_key is None else {**found, "Authorization": f"Bearer {api_key}"}


def limits_of(timeout: float) -> httpx2.Timeout:
    """Time limits: `timeout` is for the answer, since a turn may take minutes."""
    return httpx2.Timeout(timeout, connect=CONNECT_SECONDS)
