"""Counts of an endpoint that has the model's tokenizer: vLLM, SGLang and llama.cpp answer POST /tokenize.

Many other servers answer it too, with anything. So it is tried with a sentence of ours before any text goes
there, and where that fails, tokens are estimated until it is time to try again.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from typing_extensions import override

from memserver.errors import ModelError, ModelTimeout, ModelUnavailable
from memserver.llm.patience import Clock, Patience
from memserver.llm.tokens import Estimated, Remembered, TokenCounter
from memserver.llm.wire import joined
from memserver.messages import JsonObject
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.client import Endpoint, EndpointClient
from memserver.openai_http.errors import StatusError
from memserver.text import clean

logger = logging.getLogger(__name__)

_LONGEST = 16_000_000
"""Bytes of an answer, which lists all tokens; numbers alone are read quickly."""
_SENTENCE = "How many tokens are there in this sentence?"
_FEWEST = 3
"""Tokens that the sentence has at least, and no more than its letters."""
SECONDS = 5.0
"""For counting all texts of one call."""


@dataclass(frozen=True, slots=True)
class _Form:
    """What a request is made of: the text's field, and the field for special tokens."""

    text: str
    special: str


_FORMS = (_Form("prompt", "add_special_tokens"), _Form("content", "add_special"))
"""Of vLLM and SGLang; of llama.cpp."""
_ANOTHER_FORM = frozenset({400, 422, 500})
"""What is answered to a request in a form that the endpoint doesn't know."""


class _NoCount(ModelUnavailable):
    """An answer of /tokenize that no count can be taken from."""


class EndpointTokenizer(TokenCounter):
    """Counts by asking POST /tokenize, which stands beside /v1; texts go concurrently."""

    def __init__(self, endpoint: Endpoint, model: str | None, *, at_once: int = 8) -> None:
        """Make it; nothing is asked yet.

        Args:
            endpoint: the model's, ending in /v1.
            model: what the endpoint calls the model; None lets it choose.
            at_once: requests that run at the same time, at most.
        """
        self._client = EndpointClient(
            replace(endpoint, beside_v1=True, most_bytes=_LONGEST, most_values=_LONGEST)
        )
        self._limit = min(SECONDS, endpoint.timeout)
        self._model = model
        self._turn = asyncio.Semaphore(at_once)
        self._form: _Form | None = None
        self._finding: asyncio.Task[_Form] | None = None

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        """Count each text.

        Raises:
            ModelError: the endpoint doesn't count, or not in time.
        """
        async with self._in_time():
            form = self._form or await self._found()
            return await self._counts(form, [clean(text) for text in texts])

    async def check(self) -> None:
        """Find out anew whether and how the endpoint counts. Raises as `count`."""
        async with self._in_time():
            self._form = None
            await self._found()

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

    async def _found(self) -> _Form:
        """The form that the endpoint takes. Whoever comes meanwhile waits for the same answer."""
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
                if not (isinstance(error, _NoCount) or _status(error) in _ANOTHER_FORM):
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
        asked = [asyncio.create_task(self._ask(form, text)) for text in texts]
        try:
            return [await task for task in asked]
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _ask(self, form: _Form, text: str) -> int:
        if not text:
            return 0
        body = {form.text: text, form.special: False}
        if self._model is not None:
            body["model"] = self._model
        async with self._turn:
            answer = await self._client.post(
                "/tokenize", joined([json.dumps(body, ensure_ascii=False)])
            )
        return _count_in(answer, text)


class EndpointOrEstimate(TokenCounter):
    """Asks the endpoint, and estimates where that can't be: it never fails.

    So a message can be counted and stored while the model is down.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str | None,
        circuit: Circuit | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Make it.

        Args:
            endpoint: the model's.
            model: what the endpoint calls the model; None lets it choose.
            circuit: the endpoint's; while it is open nothing is asked. It learns nothing from counts: not
                every endpoint that answers has a /tokenize that works.
            clock: seconds that only ever grow.
        """
        quick = replace(endpoint, timeout=min(SECONDS, endpoint.timeout), max_retries=0)
        self._tokenizer = EndpointTokenizer(quick, model)
        self._asked = Remembered(self._tokenizer)
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
                return await self._ask(texts)
        self._exact = False
        estimates = await self._estimated.count(texts)
        return [
            estimated if (known := self._asked.known(text)) is None else known
            for text, estimated in zip(texts, estimates, strict=True)
        ]

    @override
    async def aclose(self) -> None:
        await self._asked.aclose()

    async def _ask(self, texts: Sequence[str]) -> list[int]:
        start = self._clock()
        try:
            if self._patience.failing:  # what is remembered would not show that it still fails
                await self._tokenizer.check()
            counts = await self._asked.count(texts)
        except ModelError as error:
            if self._patience.over:  # or somebody else has seen the same failure
                if not self._patience.failing:
                    logger.info("Tokens are estimated, /tokenize gives none: %s", error.message)
                timed_out = SECONDS if isinstance(error, ModelTimeout) else 0.0
                self._patience.failed(max(self._clock() - start, timed_out))
            raise
        if self._patience.failing:
            logger.info("Tokens are counted by the endpoint again.")
        self._patience.succeeded()
        self._exact = True
        return counts


def _count_in(answer: JsonObject, text: str) -> int:
    count, tokens = answer.get("count"), answer.get("tokens")
    if count is None and isinstance(tokens, list):
        count = len(tokens)
    if type(count) is not int or not 0 < count <= 2 * len(text.encode()) + 16:
        shown = str(answer)[:100]
        raise _NoCount(f"The endpoint's /tokenize answered what is no count: {shown}")
    return count


def _status(error: ModelError) -> int | None:
    cause = error.__cause__
    return cause.status if isinstance(cause, StatusError) else None
