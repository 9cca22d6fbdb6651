"""Counts of an endpoint that has the model's tokenizer: vLLM, SGLang and llama.cpp answer POST /tokenize.

Many other servers answer it too, with anything. So it is tried with a sentence of ours before any text goes
there, and where that fails, tokens are estimated until it is time to try again.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from typing_extensions import override

from memserver.errors import ModelError, ModelTimeout, ModelUnavailable
from memserver.llm.tokens import Estimated, Remembered, TokenCounter
from memserver.messages import JsonObject
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.endpoint import Endpoint
from memserver.openai_http.errors import refusal_of
from memserver.openai_http.fleet import Fleet
from memserver.openai_http.fleet_client import connect
from memserver.openai_http.streams import json_bytes
from memserver.text import clean

logger = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Seconds that only ever grow."""
_LONGEST = 16_000_000
"""Bytes of an answer, which lists all tokens; numbers alone are read quickly."""
_SENTENCE = "How many tokens are there in this sentence?"
_FEWEST = 3
"""Tokens that the sentence has at least, and no more than its letters."""
SECONDS = 5.0
"""For counting all texts of one call."""
_Form = tuple[str, str]
_FORMS: tuple[_Form, ...] = (("prompt", "add_special_tokens"), ("content", "add_special"))
"""A request's fields for the text and for special tokens: of vLLM and SGLang; of llama.cpp."""
_ANOTHER_FORM = frozenset({400, 422, 500})
"""What is answered to a request in a form that the endpoint doesn't know."""
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 900.0
WORTH = 120
"""A pause is at least so many times as long as the failure took: little of anybody's time goes into waiting."""


class _NoCount(ModelUnavailable):
    """An answer of /tokenize that no count can be taken from."""


_AT_ONCE = 8


class EndpointTokenizer(TokenCounter):
    """Counts by asking POST /tokenize, which stands beside /v1; texts go concurrently."""

    def __init__(self, endpoint: Endpoint, model: str | None) -> None:
        self._client = connect(
            replace(endpoint, beside_v1=True, most_bytes=_LONGEST, most_values=_LONGEST)
        )
        self._limit = min(SECONDS, endpoint.timeout)
        self._model = model
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._form: _Form | None = None
        self._finding: asyncio.Task[_Form] | None = None

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        """Count each text. Raises ModelError where the endpoint doesn't count, or not in time."""
        async with self._in_time():
            form = self._form or await self._find_once()
            return await self._counts(form, [clean(text) for text in texts])

    async def check(self) -> None:
        """Find out again whether and how the endpoint counts. Raises as `count`."""
        async with self._in_time():
            self._form = None
            await self._find_once()

    @override
    async def aclose(self) -> None:
        if self._finding is not None:
            self._finding.cancel()
        await self._client.aclose()

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._limit):
                yield
        except TimeoutError as error:
            raise ModelTimeout(f"No count came within {self._limit:g} seconds.") from error

    async def _find_once(self) -> _Form:
        """The form that the endpoint takes. Those who come meanwhile wait for the same answer."""
        if self._finding is None or self._finding.done():
            self._finding = asyncio.create_task(self._find())
        self._form = await asyncio.shield(self._finding)
        return self._form

    async def _find(self) -> _Form:
        problem: ModelError | None = None
        for form in _FORMS:
            try:
                count = await self._ask(form, _SENTENCE)
            except ModelError as error:
                refusal = refusal_of(error)
                unknown_form = refusal is not None and refusal.status in _ANOTHER_FORM
                if not (unknown_form or isinstance(error, _NoCount)):
                    raise
                problem = error
            else:
                if _FEWEST <= count <= len(_SENTENCE):
                    return form
                problem = _NoCount(f"The endpoint's /tokenize counts {count} in eight words.")
        assert problem is not None
        raise problem

    async def _counts(self, form: _Form, texts: list[str]) -> list[int]:
        """The counts; where one fails the others are given up."""
        counting = [asyncio.create_task(self._ask(form, text)) for text in texts]
        try:
            return [await task for task in counting]
        finally:
            for task in counting:
                task.cancel()
            await asyncio.gather(*counting, return_exceptions=True)

    async def _ask(self, form: _Form, text: str) -> int:
        if not text:
            return 0
        body: JsonObject = {form[0]: text, form[1]: False}
        if self._model is not None:
            body["model"] = self._model
        async with self._turn:
            answer = await self._client.post("/tokenize", json_bytes(body))
        return _count_in(answer, text)


class EndpointOrEstimate(TokenCounter):
    """Asks the endpoint, and estimates where that can't be: it never fails.

    So a message can be counted and stored while the model is down. While the circuit is open nothing is asked; it learns
    nothing from counts, since not every endpoint that answers has a /tokenize that works.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str | None,
        circuit: Circuit | Fleet | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        quick = replace(endpoint, timeout=min(SECONDS, endpoint.timeout), max_retries=0)
        self._tokenizer = EndpointTokenizer(quick, model)
        self._counted = Remembered(self._tokenizer)
        self._estimated = Remembered(Estimated())
        self._circuit = circuit or Circuit()
        self._patience = Patience(clock)
        self._clock = clock
        self._exact = False

    @property
    @override
    def is_exact(self) -> bool:
        return self._exact

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        if self._patience.over and not self._circuit.is_open:
            with suppress(ModelError):
                return await self._count_exactly(texts)
        self._exact = False
        estimates = await self._estimated.count(texts)
        return [
            estimated if (known := self._counted.known(text)) is None else known
            for text, estimated in zip(texts, estimates, strict=True)
        ]

    @override
    async def aclose(self) -> None:
        await self._counted.aclose()

    async def _count_exactly(self, texts: Sequence[str]) -> list[int]:
        start = self._clock()
        try:
            if self._patience.failing:  # what is remembered would not show that it still fails
                await self._tokenizer.check()
            counts = await self._counted.count(texts)
        except ModelError as error:
            if self._patience.over:  # or somebody else has seen the same failure
                if not self._patience.failing:
                    logger.info("Tokens are estimated, /tokenize gives none: %s", error.message)
                timed_out = SECONDS if isinstance(error, ModelTimeout) else 0.0
                self._patience.record_failure(max(self._clock() - start, timed_out))
            raise
        if self._patience.failing:
            logger.info("Tokens are counted by the endpoint again.")
        self._patience.record_success()
        self._exact = True
        return counts


class Patience:
    """Whether something may be tried: after a failure not for a while, which grows with each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pause = 0.0
        self._next = clock()

    @property
    def over(self) -> bool:
        return self._clock() >= self._next

    @property
    def failing(self) -> bool:
        return self._pause > 0

    def record_failure(self, seconds: float) -> None:
        self._pause = min(max(_FIRST_PAUSE, 2 * self._pause), _LONGEST_PAUSE)
        self._next = self._clock() + max(self._pause, WORTH * seconds)

    def record_success(self) -> None:
        self._pause = 0.0


def _count_in(answer: JsonObject, text: str) -> int:
    count, tokens = answer.get("count"), answer.get("tokens")
    if count is None and isinstance(tokens, list):
        count = len(tokens)
    if type(count) is not int or not 0 < count <= 2 * len(text.encode()) + 16:
        shown = str(answer)[:100]
        raise _NoCount(f"The endpoint's /tokenize answered what is no count: {shown}")
    return count
