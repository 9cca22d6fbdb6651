"""When a request is sent again, and after what pause; and what an answer means. Sends nothing itself."""

import random
from dataclasses import dataclass
from typing import TypeVar

import httpx2
from pydantic import ValidationError

from memserver.client.failures import ServerUnreachable, UnexpectedAnswer, error_of
from memserver.client.requests import Request
from memserver.errors import (
    DatabaseError,
    LeaseLost,
    MemserverError,
    ServerStarting,
    ServerStopping,
)

T = TypeVar("T")

TRANSIENT = (DatabaseError.code, LeaseLost.code, ServerStarting.code, ServerStopping.code)
"""Errors that pass. A failed model is none: its turn has ended, and the same key gives its error again."""
LONGEST_RETRY_AFTER = 60
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how soon.

    Attributes:
        most: tries after the first.
        first_pause: seconds before the second try; they double with each further one.
        longest_pause: at most.
    """

    most: int = 4
    first_pause: float = 0.5
    longest_pause: float = 8.0

    def after_failure(
        self, request: Request[T], tried: int, failure: httpx2.TransportError
    ) -> float:
        """Seconds until the next try. Raises ServerUnreachable where there is none."""
        may = request.repeatable or isinstance(failure, _NOT_SENT)
        if not may or tried > self.most:
            raise unreachable(failure) from failure
        return self._pause(tried)

    def after_answer(
        self, request: Request[T], tried: int, answer: httpx2.Response
    ) -> float | None:
        """Seconds until the next try, or None where the answer is the last word."""
        if answer.is_success or answer.status_code in request.answers or tried > self.most:
            return None
        if answer.status_code == 429:
            return _retry_after(answer) or self._pause(tried)
        if not request.repeatable or answer.status_code not in {502, 503, 504}:
            return None
        error = error_of(_json(answer))
        return self._pause(tried) if error is None or error.code in TRANSIENT else None

    def after_break(
        self,
        request: Request[None],
        tried: int,
        answer: httpx2.Response | None,
        failure: httpx2.TransportError | None,
    ) -> float:
        """Seconds until a stream that ended too early is asked for again.

        Raises:
            MemserverError: it is not; the server's error, or ServerUnreachable.
        """
        if answer is not None and not answer.is_success:
            pause = self.after_answer(request, tried, answer)
            if pause is None:
                raise error_in(answer)
            return pause
        if tried > self.most:
            raise unreachable(failure) from failure
        return self._pause(tried)

    def _pause(self, tried: int) -> float:
        longest = min(self.longest_pause, self.first_pause * 2 ** (tried - 1))
        return float(longest * random.uniform(0.5, 1))


def read(request: Request[T], answer: httpx2.Response) -> T:
    """What the server answered.

    Raises:
        MemserverError: its error, of the class with its code; UnexpectedAnswer for what is not its.
    """
    if not answer.is_success and answer.status_code not in request.answers:
        raise error_in(answer)
    if request.target is not None:
        return request.parse(None)
    try:
        if request.raw:
            return request.parse(answer.content)
        return request.parse(answer.json() if answer.content else None)
    except (ValueError, ValidationError) as error:
        raise _unexpected(answer) from error


def error_in(answer: httpx2.Response) -> MemserverError:
    """The error that an answer reports."""
    return error_of(_json(answer)) or _unexpected(answer)


def unreachable(failure: httpx2.TransportError | None) -> ServerUnreachable:
    """The error for no connection, with what is known of why."""
    why = f": {failure}" if failure is not None and str(failure) else "."
    url = failure.request.url if failure is not None and _has_request(failure) else None
    where = f" at {url.scheme}://{url.netloc.decode()}" if url is not None else ""
    return ServerUnreachable(
        f"The server{where} can't be reached{why}", hint="Is it running? memserver serve starts it."
    )


def _has_request(failure: httpx2.TransportError) -> bool:
    try:
        return bool(failure.request)
    except RuntimeError:
        return False


def _unexpected(answer: httpx2.Response) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        f"{answer.request.method} {answer.request.url} was answered by {answer.status_code}, "
        f"but not as memserver does: {answer.text[:200]!r}",
        hint="Check the URL, and what stands between.",
    )


def _json(answer: httpx2.Response) -> object:
    try:
        found: object = answer.json()
    except ValueError:
        return None
    return found


def _retry_after(answer: httpx2.Response) -> float | None:
    try:
        seconds = float(answer.headers.get("Retry-After", ""))
    except ValueError:
        return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)
