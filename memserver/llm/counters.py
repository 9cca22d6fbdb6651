"""One token counter for each base model of an endpoint: its adapters have its tokenizer, and share it."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from typing_extensions import override

from memserver.errors import ModelError
from memserver.llm.endpoint_tokenizer import Clock, EndpointOrEstimate, Patience
from memserver.llm.model_info import base_of
from memserver.llm.tokens import Remembered, TokenCounter
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.endpoint import Endpoint
from memserver.openai_http.fleet import Fleet
from memserver.openai_http.fleet_client import connect
from memserver.tokenizer_file import TokenizerFile


class Counters:
    """The counters of an endpoint's models. What is not known of a model is found out at its first count."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        default: str | None,
        tokenizer: Path | None,
        circuit: Circuit | Fleet | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Make it; nothing is asked yet.

        `tokenizer` is the file of the model `default`, which is the first one that is listed if None; without a file the
        endpoint is asked for counts.
        """
        self._endpoint = endpoint
        self._default = default
        self._circuit = circuit
        self.clock = clock
        self._client = connect(replace(endpoint, timeout=min(5, endpoint.timeout)))
        self._by_base: dict[str, TokenCounter] = {}
        self._first: TokenCounter = (
            EndpointOrEstimate(endpoint, default, circuit, clock)
            if tokenizer is None
            else Remembered(TokenizerFile(tokenizer))
        )

    def of(self, name: str | None) -> TokenCounter:
        """The counter of a model; None is the default one. It is closed with this object."""
        return _OfModel(self, self._first, name if name != self._default else None)

    async def find(self, name: str) -> TokenCounter | None:
        """The counter of the model under this name; None while the endpoint doesn't list it."""
        try:
            cards = await self._client.models()
        except ModelError:
            return None
        if cards is None:
            return self._of_base(name)
        base = base_of(name, cards)
        if base is None:
            return None
        default = self._default or str(cards[0].get("id"))
        return self._first if base == base_of(default, cards) else self._of_base(base)

    async def aclose(self) -> None:
        await self._client.aclose()
        for counter in (self._first, *self._by_base.values()):
            await counter.aclose()

    def _of_base(self, base: str) -> TokenCounter:
        if base not in self._by_base:
            made = EndpointOrEstimate(self._endpoint, base, self._circuit, self.clock)
            self._by_base[base] = made
        return self._by_base[base]


class _OfModel(TokenCounter):
    """A model's counter, found at the first count.

    A name that is not listed is most likely that of an adapter which is not loaded yet: until it is, the
    default model's counter stands in.
    """

    def __init__(self, counters: Counters, default: TokenCounter, name: str | None) -> None:
        self._counters = counters
        self._found = default
        self._missing = name
        self._clock = counters.clock
        self._patience = Patience(counters.clock)

    @property
    @override
    def is_exact(self) -> bool:
        return self._found.is_exact

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        if self._missing is not None and self._patience.over:
            start = self._clock()
            found = await self._counters.find(self._missing)
            if found is None:
                self._patience.record_failure(self._clock() - start)
            else:
                self._found, self._missing = found, None
        return await self._found.count(texts)

    @override
    async def aclose(self) -> None:
        return None
