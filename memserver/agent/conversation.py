"""Posting to an agent and waiting for what comes of it, whichever worker does the work."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from uuid import UUID
from weakref import WeakValueDictionary

from memserver.agent.call_answers import CallAnswer, has_waited_enough, is_of_request, supersede
from memserver.agent.counting import count_new
from memserver.agent.dependencies import TurnDependencies
from memserver.agent.endings import stopping
from memserver.agent.events import (
    End,
    EndedTurn,
    Event,
    PausedTurn,
    QueuedTurn,
    StepCommitted,
    Subscription,
    TurnResult,
    WakeUp,
)
from memserver.agent.live_text import TextDelta
from memserver.agent.rendering import Happening, event_text
from memserver.agent.worker import Worker
from memserver.errors import Conflict, InvalidInput, NotFound
from memserver.messages import Entry, JsonObject
from memserver.storage import agents, calls, cancellation, inbox, recall
from memserver.storage.calls import OpenCall
from memserver.storage.database import Transaction
from memserver.storage.inbox import PLACES_PER_TURN, Envelope, NewMessage, Posted, TurnRow
from memserver.storage.rows import PageQuery
from memserver.telemetry import ids
from memserver.text import clean
from memserver.tools.turn_request import TurnRequest
from memserver.wire.agents import AgentOptions

POLL_SECONDS = 2.0
"""How often a waiting caller looks for itself, in case another process's wake-up was lost."""

MOST_MODEL_NAMES = 100_000
"""Agents whose model's name is remembered, so that their messages are counted right at once."""


class Conversation:
    """Posts messages to agents and follows their turns."""

    def __init__(self, deps: TurnDependencies, worker: Worker) -> None:
        self._database = deps.database
        self._models = deps.models
        self._events = deps.events
        self._clock = deps.clock
        self._limits = deps.limits
        self._worker = worker
        self._model_names: dict[UUID, str | None] = {}
        self._posting: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()
        """Of an agent whose row a hung process has locked, one post waits for the row, and the others for that one:
        else they would use up the pool."""

    async def post(
        self,
        tenant: str,
        agent_id: UUID,
        text: str | NewMessage,
        *,
        key: str | None = None,
        at: datetime | None = None,
        request: TurnRequest | None = None,
    ) -> TurnRow:
        """Store a message durably as the agent's next turn; the turn starts with `follow`.

        A call of an earlier request's tool is waited for no more: its turn ends, with the result if that comes too. Under `key`
        the same message may come again; `at`: when it is said, if the agent's clock is that of its messages, else it is now;
        `request`: what else came with it.

        Raises:
            InvalidInput: the text is empty, or a time is given to an agent with the server's clock.
            NotFound: no such agent.
            Conflict: the idempotency key was used with another text, time or request.
        """
        request = request or TurnRequest()
        said = text if isinstance(text, NewMessage) else NewMessage(text, 0)
        message = replace(said, text=clean(said.text), created_at=at, request=request.stored())
        _check_text(message)
        if at is not None:
            await self._check_clock(tenant, agent_id)
        posted = await self._post(tenant, agent_id, message, key)
        if posted.paused:
            given, worker = request.results, self._worker.name
            await supersede(self._database, tenant, posted.turn, given, worker)
        return posted.turn

    async def post_event(
        self,
        tenant: str,
        agent_id: UUID,
        event: Happening,
        *,
        key: str | None = None,
        request: TurnRequest | None = None,
    ) -> TurnRow:
        """Store durably that something happened, as the agent's next turn, which need not answer.

        Under `key` the same event may come again; `request` is of a client that waits for an answer all the same.

        Raises:
            NotFound: no such agent.
            Conflict: the idempotency key was used with another content.
        """
        stored = None if request is None else (request.stored() or {})
        text = event_text(event.kind, clean(event.text).strip())
        message = NewMessage(text, 0, "system", expires_at=event.expires_at, request=stored)
        return (await self._post(tenant, agent_id, message, key)).turn

    async def _post(
        self, tenant: str, agent_id: UUID, message: NewMessage, key: str | None
    ) -> Posted:
        envelope = Envelope.of(
            self._worker.name, key, [message]
        )  # of what came: not of the time at which it came
        message = replace(message, created_at=message.created_at or self._clock())
        model = self._model_names.get(agent_id)
        [tokens] = await count_new([message], self._models.get(model), self._clock())
        async with self._posting.setdefault(agent_id, asyncio.Lock()):
            new = replace(message, tokens=tokens)
            posted = await inbox.post(self._database, tenant, agent_id, new, envelope)
        if posted.model != model:
            if len(self._model_names) >= MOST_MODEL_NAMES:
                self._model_names.clear()
            self._model_names[agent_id] = posted.model
            [tokens] = await count_new([message], self._models.get(posted.model), self._clock())
            async with self._database.tenant(tenant) as tx:
                await inbox.recount(tx, posted.turn, tokens)
        ids.add(agent=agent_id, turn=posted.turn.turn)
        return posted

    async def import_messages(
        self, tenant: str, agent_id: UUID, messages: Sequence[NewMessage], *, key: str | None = None
    ) -> TurnRow:
        """Store past messages in order; returns the turn whose end is the import's end.

        Raises:
            InvalidInput: there are none, or a text is empty.
            NotFound: no such agent.
            Conflict: the idempotency key was used with other messages.
        """
        cleaned = [replace(message, text=clean(message.text)) for message in messages]
        if not cleaned:
            raise InvalidInput("There are no messages to import.")
        for message in cleaned:
            _check_text(message)
        async with self._database.tenant(tenant) as tx:
            agent = await agents.get(tx, agent_id)
        form = self._limits.form(AgentOptions.model_validate(agent.options))
        counts = await count_new(cleaned, self._models.get(agent.model), self._clock(), form)
        counted = [
            replace(message, tokens=tokens) for message, tokens in zip(cleaned, counts, strict=True)
        ]
        envelope = Envelope.of(self._worker.name, key, cleaned)
        return await inbox.post_import(self._database, tenant, agent_id, counted, envelope)

    async def result(
        self, tenant: str, turn: TurnRow, *, after: int = 0, by_request: bool = False
    ) -> TurnResult:
        """Run the turn, or wait for the worker that does, to its end or until one of its calls waits for an answer.

        It is of what happens after the position `after`; `by_request` is as in `follow`.

        Raises:
            ServerStopping: this server ends first; the turn stays in the inbox.
        """
        messages: list[Entry] = []
        try:
            following = self.follow(tenant, turn, after=after, by_request=by_request)
            async with aclosing(following) as events:
                async for event in events:
                    if isinstance(event, StepCommitted):
                        messages.extend(event.messages)
                    elif isinstance(event, PausedTurn):
                        return TurnResult(event, (*messages, event.message))
                    elif isinstance(event, EndedTurn | QueuedTurn):
                        return TurnResult(event, tuple(messages))
        except asyncio.CancelledError as error:
            raise stopping() from error
        raise AssertionError("A turn's events end with TurnEnded, PausedTurn or TurnQueued.")

    async def follow(
        self,
        tenant: str,
        turn: TurnRow,
        *,
        text: bool = False,
        after: int = 0,
        by_request: bool = False,
    ) -> AsyncGenerator[Event]:
        """The turn's events until it ends or an answer is waited for, each committed step once.

        The answer may be to a call of this turn, or of one before it. With `text` there are deltas of the text, too, whichever
        process serves the agent; of steps those after the position `after`. `by_request`: they end at a call of a tool that a
        request brought, also where it has its result by now.
        """
        first = turn.first_position
        seen = max(after, first if turn.kind == "message" else first + PLACES_PER_TURN - 1)
        with self._events.subscribe(turn.agent_id, turn.turn, text=text) as queue:
            fresh = not turn.ended and self._worker.ensure_serving(turn.agent_id, tenant, turn.turn)
            if not fresh or turn.state != "waiting":
                # Something may have happened before we listened: the database knows.
                queue.put_nowait(WakeUp())
            while True:
                event = await self._next(queue, turn)
                wakes = isinstance(event, WakeUp)
                for item in await self._look(tenant, turn, seen) if wakes else [event]:
                    if isinstance(item, TextDelta):
                        if said := queue.reader.take(item, seen):
                            yield said
                        continue
                    if isinstance(item, StepCommitted):
                        if item.messages[-1].position <= seen:
                            continue
                        seen = item.messages[-1].position
                        if by_request and is_of_request(item.messages[-1], turn):
                            item = PausedTurn(turn.turn, turn.steps, turn.usage, item.messages[-1])
                    yield item
                    if isinstance(item, End):
                        return

    async def answer(
        self,
        tenant: str,
        agent_id: UUID,
        call_id: str,
        answer: CallAnswer,
        *,
        key: str | None = None,
        request: TurnRequest | None = None,
    ) -> tuple[TurnRow, int]:
        """Store what was answered to a call that waits; its turn resumes with `follow`.

        With a key the same answer may come again: it finds the turn as the first one left it.

        Returns:
            The turn, and the position after which lies what the answer brings.

        Raises:
            NotFound: no such call.
            Conflict: it doesn't wait, or for another kind of answer; or the key came with another one.
        """
        async with self._database.tenant(tenant) as tx:
            call = await calls.lock(tx, agent_id, call_id, key=key)
            waits_for = call.record.waits_for
            if waits_for != answer.to:
                raise Conflict(
                    f"The call {call_id} waits for "
                    + ("an approval." if waits_for == "approval" else "its result."),
                    hint="POST …/approval approves or denies one, POST …/result gives the other's result.",
                )
            stored = None if request is None else (request.stored() or {"names": []})
            turn = await self._answered(tx, call, answer.stored(), key, stored)
            return turn, call.position - 1

    async def cancel(
        self, tenant: str, agent_id: UUID, turn: int, *, if_unanswered: bool = False
    ) -> TurnRow:
        """End a turn at once, whether it is queued, runs or waits for an answer, and whichever process runs it.

        What it has committed stays; the request to the model ends. To cancel it twice is to cancel it once. One that has
        answered, and only saves what it needs, may be left alone.

        Raises:
            NotFound: no such turn.
            TurnHasEnded: otherwise than by this.
        """
        async with self._database.tenant(tenant) as tx:
            ended = await cancellation.cancel(tx, agent_id, turn, if_unanswered=if_unanswered)
        self._worker.stop(agent_id, turn)
        self._worker.ensure_serving(agent_id, tenant)
        return ended

    async def find_blocker(self, tx: Transaction, turn: TurnRow) -> QueuedTurn | None:
        """The call that waits for an answer before a turn of the inbox can be worked, if there is one."""
        if turn.state != "waiting":
            return None
        found = await calls.list_waiting(tx, PageQuery(1), agent_id=turn.agent_id)
        if not found or found[0].turn >= turn.turn:
            return None
        [call] = found
        expires_at = self._limits.expiry(call.created_at, of_request=call.of_request)
        return QueuedTurn(turn.turn, call, expires_at)

    async def _answered(
        self,
        tx: Transaction,
        call: OpenCall,
        given: JsonObject,
        key: str | None,
        request: JsonObject | None = None,
    ) -> TurnRow:
        """Store an answer with its key, or find that it is stored."""
        stored = given if key is None else {**given, "key": key}
        if call.record.answer is None:
            return await calls.answer(tx, call, stored, self._worker.name, request)
        if call.record.answer != stored:
            raise Conflict(
                f"The idempotency key {key!r} was used with another request.",
                hint="Take a fresh key for every new request.",
            )
        return await inbox.get_turn(tx, call.agent_id, call.turn)

    async def _check_clock(self, tenant: str, agent_id: UUID) -> None:
        async with self._database.tenant(tenant) as tx:
            agent = await agents.get(tx, agent_id)
        if AgentOptions.model_validate(agent.options).clock != "messages":
            raise InvalidInput(
                "at: this agent's time is the server's.",
                hint='Leave `at` out, or give the agent the option clock: "messages".',
            )

    async def _next(self, queue: Subscription, turn: TurnRow) -> Event:
        while True:
            if not self._worker.serves(turn.agent_id):
                self._events.ask_for_text(queue)
            try:
                return await asyncio.wait_for(queue.get(), POLL_SECONDS)
            except TimeoutError:
                if not self._worker.serves(turn.agent_id):
                    return WakeUp()

    async def _look(self, tenant: str, turn: TurnRow, seen: int) -> list[Event]:
        """What the database says has happened in the turn after position `seen`."""
        async with self._database.tenant(tenant) as tx:
            try:
                now = await inbox.get_turn(tx, turn.agent_id, turn.turn)
            except NotFound as error:
                raise NotFound("The agent was deleted, and its turns with it.") from error
            queued = await self.find_blocker(tx, now)
            messages = await recall.queue(
                tx, turn.agent_id, seen + 1, turn.first_position + PLACES_PER_TURN
            )
        last = messages[-1].call if messages else None
        found: list[Event] = [
            StepCommitted((message,))
            for message in messages
            if message.call is None or not message.call.is_open
        ]
        if queued is not None and not queued.blocked_by.of_request:
            found.append(queued)
        elif queued is not None and has_waited_enough(queued.blocked_by):
            await supersede(self._database, tenant, turn, {}, self._worker.name)
            self._worker.ensure_serving(turn.agent_id, tenant)
        if now.state == "requires_action" and last is not None and last.state == "waiting":
            found.append(PausedTurn(now.turn, now.steps, now.usage, messages[-1]))
        if now.ended:
            stop = now.stop_reason or "error"
            found.append(EndedTurn(now.turn, now.steps, stop, now.usage, now.error))
        return found


def _check_text(message: NewMessage) -> None:
    if not message.text.strip():
        raise InvalidInput("A message's text is empty.", hint="Send a text with words in it.")
