"""What a request's headers say of who sent it: whether they are well formed, and whether a web page did.

A page in a browser on this machine can send requests here. The browser says so: by Origin and Sec-Fetch-Site, and
by the name in Host, where the page's own name was made to mean this machine.
"""

import re
from collections.abc import Collection
from functools import lru_cache

from starlette.types import Scope

from memserver.errors import BadRequest, UnsupportedMediaType

Headers = dict[str, str]
READING = frozenset({"GET", "HEAD", "OPTIONS"})
_SINGLE = {
    each.encode(): each
    for each in (
        *("host", "origin", "sec-fetch-site", "authorization", "content-type", "content-length"),
        *("transfer-encoding", "idempotency-key"),
    )
}
"""Headers that decide something, and may be there once: of two, each reader could take another one."""
_NAME = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?"
_FORMS = {
    "host": re.compile(_NAME),
    "origin": re.compile(rf"null|[A-Za-z][A-Za-z0-9+.-]*://{_NAME}"),
    "content-length": re.compile(r"[0-9]{1,18}"),
}
_UPLOAD = re.compile(r"/v1/(?:agents/import|(?:agents|collections)/[^/]+/documents)")
"""Where the body is a file. A form can send one, so that these rely on Origin and Sec-Fetch-Site."""


def read_headers(scope: Scope) -> Headers:
    """The headers that decide something. Raises BadRequest: one of them is malformed, or there more than once."""
    found: Headers = {}
    for raw, value in scope["headers"]:
        name = _SINGLE.get(raw)
        if name is not None:
            if name in found:
                raise BadRequest(f"The header {name} is there more than once.")
            found[name] = value.decode("latin-1")
    for name, form in _FORMS.items():
        if name in found and not form.fullmatch(found[name]):
            raise BadRequest(f"The header {name} is malformed.")
    if "host" not in found and scope.get("http_version") != "1.0":
        raise BadRequest("The request has no header host.")
    return found


def is_own_name(scope: Scope, headers: Headers) -> bool:
    """Whether it was sent to a name that nobody else can make mean this machine, and to this server's port."""
    return headers.get("host", "").lower() in _own_hosts(*_server(scope))


def is_from_page(scope: Scope, headers: Headers, trusted: Collection[str]) -> bool:
    origin = headers.get("origin")
    if origin in trusted:
        return False
    if origin is not None and origin.lower() not in _own_origins(scope["scheme"], *_server(scope)):
        return True
    match headers.get("sec-fetch-site"):
        case None | "same-origin":
            return False
        case "none":  # a person typed the address, or followed a bookmark
            return scope["method"] not in READING
        case _:
            return True


def check_content_type(method: str, path: str, headers: Headers) -> None:
    """Take JSON alone where something changes: a page's form can send everything else without asking first.

    Raises:
        UnsupportedMediaType: it is none.
    """
    if method in READING or _UPLOAD.fullmatch(path):
        return
    sent_as = headers.get("content-type", "")
    has_body = "transfer-encoding" in headers or int(headers.get("content-length", "0")) > 0
    if not _is_json(sent_as) if sent_as else has_body:
        raise UnsupportedMediaType(
            f"The body must be JSON, but was sent as {sent_as or 'nothing in particular'}.",
            hint="Send the header Content-Type: application/json.",
        )


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def _server(scope: Scope) -> tuple[str, int]:
    address, port = scope.get("server") or ("", None)
    return address, port or 80


@lru_cache(maxsize=64)
def _own_hosts(address: str, port: int) -> frozenset[str]:
    names = {"localhost", "127.0.0.1", "[::1]", f"[{address}]" if ":" in address else address}
    ported = {f"{name}:{port}" for name in names}
    return frozenset(ported | names if port == 80 else ported)


@lru_cache(maxsize=64)
def _own_origins(scheme: str, address: str, port: int) -> frozenset[str]:
    return frozenset(f"{scheme}://{host}" for host in _own_hosts(address, port))
