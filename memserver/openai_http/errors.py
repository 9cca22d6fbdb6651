"""Errors that an OpenAI-compatible endpoint answers with, read out of every shape in which they come."""

import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from aiohttp.http import HttpProcessingError

from memserver.messages import JsonObject
from memserver.openai_http.wordings import status_in

FOREIGN = (aiohttp.ClientError, HttpProcessingError, OSError, ValueError)
"""What aiohttp raises, and what is under it."""
_LONGEST_ERROR = 100_000
_SHOWN = 200
_DEPTH, _MOST = 10, 6
"""How deep an error is looked into, and at how many parts of a list."""
_WORDS = ("message", "msg", "detail", "details", "error", "error_message", "description", "title")
"""Where an error has its words, the best first: OpenAI, FastAPI, Mistral, LM Studio, problem+json."""
_KINDS = ("code", "type", "status", "reason", "error_type", "quotaId", "limit_source")
_NOT_READ = ("input", "ctx", "body", "messages", "flagged_input")
"""What the request said: FastAPI and OpenRouter repeat it."""
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "": 1.0}
_WAIT_IN_WORDS = re.compile(
    r"(?:retry|try again) (?:after|in) ((?:\d+(?:\.\d+)?(?:ms|[smhd])?)+)", re.IGNORECASE
)
"""Gemini, Groq, OpenAI, Azure."""


class StatusError(Exception):
    """An answer that is no success, or an error in the place of an answer.

    Attributes:
        status: of HTTP; of an error that came with 200 or in a stream, the one that it names, if it does.
        words: what the endpoint says went wrong.
        kind: its codes and types, to distinguish errors of one status.
        window: tokens of the model's window, where a field says it, as llama.cpp's does.
        retry_after: seconds that the endpoint asks to wait.
    """

    def __init__(
        self, status: int | None, error: object, *, retry_after: float | None = None
    ) -> None:
        self.status = status
        self.words = _words(error) or "it does not say why"
        self.kind = " ".join(dict.fromkeys(_kinds(error)))
        self.window = _window(error)
        if retry_after is None and (found := _WAIT_IN_WORDS.search(self.words)):
            retry_after = _duration(found[1])
        self.retry_after = retry_after
        super().__init__(self.words)


def refusal_of(error: Exception) -> StatusError | None:
    """What the endpoint answered, where one of memserver's errors stands for that."""
    cause = error.__cause__
    return cause if isinstance(cause, StatusError) else None


async def status_error(response: aiohttp.ClientResponse) -> StatusError:
    """The error in an answer: its JSON in any shape, else the words of its page, else its reason."""
    error: Any = response.reason
    with suppress(*FOREIGN):
        body = await read_at_most(response, _LONGEST_ERROR) or b""
        try:
            error = json.loads(body)
        except (ValueError, RecursionError):
            error = words_of(body) if not body.startswith((b"{", b"[")) else error
    error = response.reason if error == "" else error
    return StatusError(response.status, error, retry_after=_asked_to_wait(response.headers))


def raise_if_error(answer: JsonObject) -> None:
    error = answer.get("error") or _error_of_choice(answer.get("choices"))
    if not error and (answer.get("object") == "error" or answer.get("type") == "error"):
        error = answer
    if error:
        raise StatusError(_status(error), error)


def words_of(body: bytes) -> str:
    """What a body says that is not what was asked for: the title of a page, or its first words."""
    text = body[:_LONGEST_ERROR].decode(errors="replace")
    title = _TITLE.search(text)
    words = title[1] if title and title[1].strip() else _TAGS.sub(" ", text)
    words = " ".join(words.split())
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"


async def read_at_most(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    parts, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > most:
            return None
        parts.append(chunk)
    return b"".join(parts)


def _error_of_choice(choices: object) -> object:
    """OpenRouter has the error of the provider behind it in the choice."""
    listed = choices if isinstance(choices, list) else []
    return next(
        (each["error"] for each in listed if isinstance(each, dict) and each.get("error")), None
    )


def _words(error: object, depth: int = _DEPTH) -> str:
    """The words of an error; JSON in a text is read too, as gateways pass on what they got."""
    if isinstance(error, str):
        text = error.strip()
        if depth and text.startswith(("{", "[")):
            with suppress(ValueError, RecursionError):
                return _words(json.loads(text), depth - 1) or text
        return text
    if not depth:
        return ""
    if isinstance(error, list):
        return "; ".join(filter(None, (_words(each, depth - 1) for each in error[:_MOST])))
    if not isinstance(error, dict):
        return "" if error is None else str(error)
    found = (_words(error.get(name), depth - 1) for name in _WORDS)
    words = next(filter(None, found), "") or " ".join(_kinds(error))
    place = ".".join(map(str, error["loc"])) if isinstance(error.get("loc"), list) else ""
    metadata = error.get("metadata")  # OpenRouter's, of the provider behind it
    raw = _words(metadata.get("raw"), depth - 1) if isinstance(metadata, dict) else ""
    return ": ".join(filter(None, (place, words, raw)))


def _kinds(error: object, depth: int = _DEPTH) -> Iterator[str]:
    if not depth:
        return
    if isinstance(error, list):
        for each in error[:_MOST]:
            yield from _kinds(each, depth - 1)
    if not isinstance(error, dict):
        return
    for name, value in error.items():
        if name in _KINDS and isinstance(value, str | int):
            yield str(value)
        elif name not in _NOT_READ:
            yield from _kinds(value, depth - 1)


def _window(error: object) -> int | None:
    """llama.cpp's n_ctx."""
    if isinstance(error, dict):
        inner = error.get("error")
        window = (inner if isinstance(inner, dict) else error).get("n_ctx")
        if type(window) is int and window > 0:
            return window
    return None


def _status(error: object) -> int | None:
    """The status that an error names: as a number, a number in text, or a code in words."""
    if not isinstance(error, dict):
        return status_in(str(error))
    for name in ("status", "code", "status_code", "http_status"):
        given = str(error.get(name))
        if given.isdecimal() and 400 <= int(given) < 600:
            return int(given)
    names = (error.get(name) for name in ("code", "type", "status"))
    in_words = (status_in(name) for name in names if isinstance(name, str))
    return next(filter(None, in_words), None)


def _asked_to_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds, from Retry-After and its kin; OpenAI's limits are looked at where one of them is used up."""
    with suppress(KeyError, ValueError):
        return _seconds(headers["Retry-After-Ms"]) / 1000
    with suppress(KeyError, ValueError):
        return _after(headers["Retry-After"])
    resets = [
        _duration(headers.get(f"x-ratelimit-reset-{what}", ""))
        for what in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{what}") == "0"
    ]
    return max(filter(None, resets), default=None)


def _after(retry_after: str) -> float:
    """Of a Retry-After: a number of seconds or a date. Raises ValueError."""
    if retry_after.endswith("GMT"):
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    return _seconds(retry_after)


def _seconds(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("it is no time")
    return max(0.0, number)


def _duration(text: str) -> float | None:
    """Seconds of "20", "4.77s", "6m0s" or "120ms"."""
    parts = _TIME.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return math.fsum(float(number) * _UNITS[unit] for number, unit in parts)
