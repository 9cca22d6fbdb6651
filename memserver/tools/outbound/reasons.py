"""Why a connection failed, in words for the model and for tenants: no URL, host, address or file of ours is in them."""

import os
import re
import socket
import ssl
from urllib.parse import urlsplit

from memserver.tools.outbound.addresses import AddressRefused

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s'\"<>]*")
_KNOWN: tuple[tuple[type[BaseException], str], ...] = (
    (AddressRefused, str(AddressRefused())),
    (socket.gaierror, "its name can't be resolved"),
    (ssl.SSLError, "no secure connection to it can be made"),
    (ConnectionRefusedError, "the connection was refused"),
    (TimeoutError, "no answer in time"),
    (ConnectionError, "the connection broke"),
)


def reason(error: BaseException) -> str:
    """What the operating system says of it; empty, if it says nothing."""
    chain = _chain(error)
    for each in reversed(chain):
        for kind, words in _KNOWN:
            if isinstance(each, kind):
                return words
    numbers = (each.errno for each in reversed(chain) if isinstance(each, OSError))
    return next(
        (os.strerror(number) for number in numbers if number is not None and number > 0), ""
    )


def for_log(url: str, error: BaseException) -> str:
    """Where it was and what happened, for the operator: without the URL's path, query and credentials."""
    parts = urlsplit(url)
    innermost = next((each for each in reversed(_chain(error)) if isinstance(each, OSError)), None)
    said = f": {innermost}" if innermost is not None and url not in str(innermost) else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}: {type(error).__name__}{said}"


def drop_urls(text: str) -> str:
    """The SDK's words and the server's own, which can't be distinguished, with no address of either in them."""
    return _URL.sub("(a URL)", text)


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = getattr(cause, "os_error", None) or cause.__cause__ or cause.__context__
    return chain
