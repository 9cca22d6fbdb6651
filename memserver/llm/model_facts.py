"""What an endpoint's list of models says of one of them: its name and its window. The list decides nothing else.

Many endpoints have none, refuse it to restricted keys, or list a model under another form of its name; with a name in the
settings, turns work all the same.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import aiohttp

from memserver.errors import ModelError, ModelNotFound, ModelUnavailable
from memserver.llm.model_info import find_card, window_of
from memserver.messages import JsonObject
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.errors import refusal_of
from memserver.openai_http.fleet import Fleet

_LOG = logging.getLogger("memserver.llm")
DEFAULT_WINDOW = 8192
SMALLEST_WINDOW = 512
"""Tokens; what an endpoint says of a smaller one is not believed."""
_LIST_AGAIN_SECONDS = 60.0


class ModelFacts:
    def __init__(
        self,
        client: EndpointClient,
        circuit: Circuit | Fleet,
        name: str,
        *,
        given_window: int | None,
        window_is_limit: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._client = client
        self._circuit = circuit
        self._given = given_window
        self._fixed = None if window_is_limit else given_window
        self._window = self._fixed
        self._assumed = False
        self._clock = clock
        self._list_at = float("-inf")
        self._asking = asyncio.Lock()

    @property
    def window_is_assumed(self) -> bool:
        return self._window is None or self._assumed

    async def window(self) -> int:
        """Tokens of prompt and output together.

        Raises:
            ModelError: the endpoint can't be reached, or it lists no model and none is named.
        """
        if self._window is None:
            await self._ask()
        return self._window or self._given or DEFAULT_WINDOW

    async def know_name(self) -> None:
        """Take the first model that is listed, if none is named. Raises ModelError if there is none."""
        if not self.name:
            await self._ask()
        if not self.name:
            raise ModelUnavailable(
                "The endpoint lists no model.", hint="Name one in MEMSERVER_LLM_MODEL."
            )

    def learn_window(self, window: int | None) -> None:
        if window is not None and window >= SMALLEST_WINDOW:
            known = self._window or self._given
            self._window = window if known is None or self.window_is_assumed else min(known, window)
            self._assumed = False
            _LOG.warning(
                "The endpoint says that the window of %s has %d tokens.", self.name, window
            )

    def forget_window(self) -> None:
        self._window = self._fixed

    async def not_found(self, error: ModelNotFound) -> ModelNotFound:
        try:
            cards = await self._client.models()
        except ModelError:
            cards = None
        return _not_found(self.name, cards, error)

    async def is_listed(self) -> bool:
        """Whether the list names the model; asked whatever the circuit says, which an answer closes.

        Raises:
            ModelError: the endpoint can't be reached.
        """
        try:
            cards = await self._client.check()
        except ModelError as error:
            if _is_out_of_reach(error):
                raise
            return False
        if not self.name and cards:
            self.name = str(cards[0].get("id") or "")
        return find_card(self.name, cards or ()) is not None

    async def _ask(self) -> None:
        """Learn the name and the window; those who come meanwhile wait for the answer."""
        async with self._asking:
            if self.name and (self._window is not None or self._clock() < self._list_at):
                return
            try:
                cards = await self._client.models() or []
            except ModelError as error:
                if not self.name or self._circuit.is_open or _is_out_of_reach(error):
                    raise
                self._list_at = self._clock() + _LIST_AGAIN_SECONDS
                return
            if not self.name and cards:
                self.name = str(cards[0].get("id") or "")
            if self._window is None and self.name:
                known = (window_of(self.name, cards), self._given)
                self._assumed = not any(known)
                self._window = min(filter(None, known), default=DEFAULT_WINDOW)
                if self._assumed:
                    _LOG.info(
                        "Nobody says the window of %s: %d tokens are assumed.",
                        self.name,
                        self._window,
                    )


def _is_out_of_reach(error: ModelError) -> bool:
    """Whether there was no connection: then it isn't the list alone that fails."""
    cause = error.__cause__
    if isinstance(cause, ModelError):
        return _is_out_of_reach(cause)
    return isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)


def _not_found(
    name: str, cards: Sequence[JsonObject] | None, error: ModelNotFound
) -> ModelNotFound:
    refusal = refusal_of(error)
    said = f" It said: {refusal.words[:300]}" if refusal else ""
    there = ", ".join(str(card.get("id")) for card in cards or ())
    return ModelNotFound(
        f"The endpoint does not have the model {name or '(any)'}.",
        hint=f"It has: {there or 'none that it lists'}. Load an adapter with `memserver models add`, give "
        f"the agent another model, or check MEMSERVER_LLM_MODEL and MEMSERVER_LLM_BASE_URL.{said}",
    )
