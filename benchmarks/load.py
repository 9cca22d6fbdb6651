"""Conversations over HTTP from several client processes at once, timed turn by turn.

Owns the clients: their processes, their connections and clocks, and what of an answer is the first character.
Leaves to the benchmarks what is said. Each conversation has a connection of its own, and its turns follow one
another; conversations don't wait for each other. Errors are outcomes, never exceptions.
"""

import asyncio
import json
import multiprocessing
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, cycle, takewhile
from typing import Any, Literal, Protocol

import aiohttp

from memserver.llm.text_stream import CallText
from memserver.openai_http.streams import EventParser

Speech = Literal["memserver", "openai"]
"""How the server that is asked answers."""

IDLE_SECONDS = 4
"""How long an unused connection is kept: vLLM drops it after five."""
START_SECONDS = 0.5
"""What the clients get to unpack their conversations before they start together."""
_USAGE = re.compile(rb'"usage": ?\{')
_LOST = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


@dataclass(frozen=True, slots=True)
class Request:
    """One request; its body is JSON."""

    path: str
    body: bytes
    method: str = "POST"
    api_key: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """Requests that follow one another and count as one turn; one that isn't timed prepares the next."""

    requests: tuple[Request, ...]
    timed: bool = True
    label: str = ""


Conversation = Sequence[Turn]


@dataclass(slots=True)
class Outcome:
    """What came of one turn. Times are seconds; `started` and `ended` on the machine's monotonic clock.

    A step is one answer of the model's.
    """

    label: str
    started: float
    ended: float = 0.0
    first_delta: float | None = None
    first_character: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    steps: int = 0
    evictions: int = 0
    retries: int = 0
    error: str = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.started


@dataclass(slots=True)
class Run:
    """What one load brought: the timed turns, and how busy the clients were."""

    outcomes: list[Outcome] = field(default_factory=list)
    unprepared: list[Outcome] = field(default_factory=list)
    """Turns that were not timed and failed."""
    client_cpu: list[float] = field(default_factory=list)
    """Of each client process, the share of one core."""

    @property
    def wall(self) -> float:
        """Seconds from the first turn's start to the last one's end."""
        if not self.outcomes:
            return 0.0
        return max(o.ended for o in self.outcomes) - min(o.started for o in self.outcomes)


_Slot = Sequence[Conversation]
_Placed = Sequence[tuple[str, _Slot]]
"""Slots, each with the server that it asks."""


class Clients:
    """Client processes, started once for many loads."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(processes, mp_context=context)
        for ready in [self._pool.submit(time.sleep, 0.2) for _ in range(processes)]:
            ready.result()

    def close(self) -> None:
        """End them."""
        self._pool.shutdown(cancel_futures=True)

    def run(
        self,
        urls: Sequence[str],
        speech: Speech,
        slots: Sequence[_Slot],
        seconds: float | None = None,
    ) -> Run:
        """Have the conversations of each slot one after the other, all slots at once.

        Of several servers each gets every so manieth slot. With `seconds` a slot starts with its first conversation
        again after the last one, and begins no turn after that time.
        """
        placed = list(zip(cycle(urls), slots, strict=False))
        hands = min(self.processes, len(placed))
        start = time.monotonic() + START_SECONDS
        asked = [
            self._pool.submit(_client, speech, placed[n::hands], start, seconds)
            for n in range(hands)
        ]
        run = Run()
        for answer in asked:
            outcomes, cpu = answer.result()
            run.client_cpu.append(cpu)
            for outcome, timed in outcomes:
                if timed:
                    run.outcomes.append(outcome)
                elif outcome.error:
                    run.unprepared.append(outcome)
        return run


def in_slots(conversations: Sequence[Conversation], slots: int) -> list[list[Conversation]]:
    """Deal conversations out, so that `slots` of them run at a time."""
    return [list(conversations[n::slots]) for n in range(slots)]


_Timed = tuple[Outcome, bool]


def _client(
    speech: Speech, placed: _Placed, start: float, seconds: float | None
) -> tuple[list[_Timed], float]:
    """In a client process: all its slots, and its share of a core meanwhile."""
    return asyncio.run(_all_slots(speech, placed, start, seconds))


async def _all_slots(
    speech: Speech, placed: _Placed, start: float, seconds: float | None
) -> tuple[list[_Timed], float]:
    await asyncio.sleep(max(0.0, start - time.monotonic()))
    began, cpu = time.monotonic(), time.process_time()
    end = None if seconds is None else began + seconds
    done = await asyncio.gather(*(_slot(url, speech, _turns(slot, end)) for url, slot in placed))
    share = (time.process_time() - cpu) / max(time.monotonic() - began, 1e-9)
    return list(chain.from_iterable(done)), share


def _turns(conversations: _Slot, end: float | None) -> Iterator[Turn]:
    """All turns once; with an end, over and over until then."""
    turns = chain.from_iterable(conversations)
    return turns if end is None else takewhile(lambda _: time.monotonic() < end, cycle(turns))


async def _slot(url: str, speech: Speech, turns: Iterator[Turn]) -> list[_Timed]:
    connector = aiohttp.TCPConnector(limit=1, keepalive_timeout=IDLE_SECONDS)
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as session:
        return [(await _turn(session, speech, turn), turn.timed) for turn in turns]


async def _turn(session: aiohttp.ClientSession, speech: Speech, turn: Turn) -> Outcome:
    outcome = Outcome(turn.label, time.monotonic())
    for request in turn.requests:
        try:
            await _once_more(session, speech, request, outcome)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            outcome.error = f"{type(error).__name__}: {error}"
        if outcome.error:
            break
    outcome.ended = time.monotonic()
    return outcome


async def _once_more(
    session: aiohttp.ClientSession, speech: Speech, request: Request, outcome: Outcome
) -> None:
    """Ask; once more where the server had dropped the idle connection."""
    headers = {"Content-Type": "application/json"}
    if speech == "memserver" and request.method == "POST":
        headers["Idempotency-Key"] = f"{time.monotonic_ns()}"
    if request.api_key:
        headers["Authorization"] = f"Bearer {request.api_key}"
    try:
        await _ask(session, speech, request, headers, outcome)
    except _LOST:
        if outcome.retries or outcome.first_delta is not None:
            raise
        outcome.retries += 1
        await _ask(session, speech, request, headers, outcome)


async def _ask(
    session: aiohttp.ClientSession,
    speech: Speech,
    request: Request,
    headers: dict[str, str],
    outcome: Outcome,
) -> None:
    async with session.request(
        request.method, request.path, data=request.body, headers=headers
    ) as response:
        if response.status not in {200, 201}:
            outcome.error = f"{response.status}: {(await response.text())[:300]}"
        elif response.content_type != "text/event-stream":
            _whole(await response.json(), outcome)
        else:
            listener: _Listener = (
                _ToMemserver(outcome) if speech == "memserver" else _ToOpenAI(outcome)
            )
            async for chunk in response.content.iter_any():
                listener.hear(chunk)
            listener.end()


def _whole(answer: dict[str, Any], outcome: Outcome) -> None:
    outcome.steps += answer.get("steps", 1)
    _count(answer.get("usage"), outcome)


def _count(usage: dict[str, Any] | None, outcome: Outcome) -> None:
    outcome.prompt_tokens += (usage or {}).get("prompt_tokens") or 0
    outcome.output_tokens += (usage or {}).get("completion_tokens") or 0


class _Listener(Protocol):
    def hear(self, chunk: bytes) -> None: ...

    def end(self) -> None: ...


class _ToMemserver:
    """Looks for the first delta alone while it streams; the events are read when all is there."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._heard = b""

    def hear(self, chunk: bytes) -> None:
        self._heard += chunk
        outcome = self._outcome
        if outcome.first_character is None and (
            b"event: message_delta\n" in self._heard or b"event: message\n" in self._heard
        ):
            outcome.first_delta = outcome.first_character = time.monotonic() - outcome.started

    def end(self) -> None:
        kinds = set()
        for frame in self._heard.decode().split("\n\n"):
            head, _, data = frame.rpartition("\ndata: ")
            kind = head.rpartition("event: ")[2]
            kinds.add(kind)
            if kind == "usage":
                _count(json.loads(data), self._outcome)
            elif kind == "turn_ended":
                self._outcome.steps += json.loads(data)["steps"]
            elif kind == "error":
                self._outcome.error = str(json.loads(data)["error"])[:300]
            self._outcome.evictions += kind == "memory_changed"
        if "turn_ended" not in kinds:
            self._outcome.error = self._outcome.error or "the stream broke off"


class _ToOpenAI:
    """Reads the call as it comes, until its message begins; of the rest only the usage."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._parser = EventParser()
        self._message = CallText()
        self._ended = False

    def hear(self, chunk: bytes) -> None:
        for data in self._parser.feed(chunk):
            if data.startswith(b"[DONE]"):
                self._ended = True
                self._outcome.steps += 1
            elif self._outcome.first_character is None or _USAGE.search(data):
                self._read(json.loads(data))

    def end(self) -> None:
        if not self._ended:
            self._outcome.error = self._outcome.error or "the stream broke off"

    def _read(self, event: dict[str, Any]) -> None:
        outcome = self._outcome
        if "error" in event:
            outcome.error = str(event["error"])[:300]
        _count(event.get("usage"), outcome)
        for choice in event.get("choices", ()):
            content = choice["delta"].get("content")
            if not content:
                continue
            now = time.monotonic() - outcome.started
            outcome.first_delta = outcome.first_delta or now
            if outcome.first_character is None and self._message.feed(content):
                outcome.first_character = now
