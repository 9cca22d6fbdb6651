"""Clients that hang up before the answer: their turn continues, or is cancelled where the server is set so."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from memserver.api.dependencies import ServicesDep, TenantDep
from memserver.errors import NotFound, TurnHasEnded
from memserver.storage.inbox import TurnRow
from memserver.storage.repeating import run_beside
from memserver.wiring.services import Services

T = TypeVar("T")


class HangUp:
    """Of one request. One with an Idempotency-Key may come again, and then wants its answer."""

    def __init__(self, request: Request, services: Services, tenant: str) -> None:
        self._request = request
        self._conversation = services.conversation
        self._tenant = tenant
        self._cancels = services.cancel_on_hang_up and "Idempotency-Key" not in request.headers

    def action(self, turn: TurnRow) -> Callable[[], Awaitable[None]] | None:
        """What is done when the client of a stream has gone."""
        return partial(self._cancel, turn) if self._cancels else None

    async def watched(self, turn: TurnRow, answer: Awaitable[T]) -> T:
        """The answer, which comes at once when the client has gone and the turn is cancelled."""
        if not self._cancels:
            return await answer
        async with run_beside(self._cancel_when_gone(turn)):
            return await answer

    async def _cancel_when_gone(self, turn: TurnRow) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        await self._cancel(turn)

    async def _cancel(self, turn: TurnRow) -> None:
        with suppress(NotFound, TurnHasEnded):
            await self._conversation.cancel(
                self._tenant, turn.agent_id, turn.turn, if_unanswered=True
            )


async def _hang_up(request: Request, services: ServicesDep, tenant: TenantDep) -> HangUp:
    return HangUp(request, services, tenant)


HangUpDep = Annotated[HangUp, Depends(_hang_up)]
