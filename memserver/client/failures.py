"""The server's errors, and those of the way to it, as exceptions of the one tree in `memserver.errors`."""

from collections.abc import Iterator
from typing import Any

from memserver.errors import MemserverError


class ServerUnreachable(MemserverError):
    """No connection to the server, or one that broke, also after all retries."""

    code = "server_unreachable"


class UnexpectedAnswer(MemserverError):
    """An answer that is not memserver's: another server, or a proxy on the way."""

    code = "unexpected_answer"


class OtherError(MemserverError):
    """An error whose code has no class of its own here.

    Attributes:
        code: the server's.
    """

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


def error_of(body: object) -> MemserverError | None:
    """The error that a body reports, of the class with its code; None if it is not of our form."""
    details = body.get("error") if isinstance(body, dict) else None
    if not isinstance(details, dict) or not isinstance(details.get("code"), str):
        return None
    return _by_code(details)


def _by_code(details: dict[str, Any]) -> MemserverError:
    code = details["code"]
    message, hint = str(details.get("message", "")), str(details.get("hint") or "")
    for known in _tree(MemserverError):
        if known.code == code and known is not OtherError:
            return known(message, hint=hint)
    return OtherError(code, message, hint=hint)


def _tree(root: type[MemserverError]) -> Iterator[type[MemserverError]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)
