"""The same model without memserver, shown what a `Choice` says, cut where it doesn't fit the window."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from typing_extensions import override

from memserver.errors import ContextOverflow, MemserverError
from memserver.evals.systems.choosing import Choice, Chosen
from memserver.evals.systems.failing import failed_reply
from memserver.evals.systems.history import Fitted, fit, shown, stamp
from memserver.evals.systems.speaking import Speaker
from memserver.messages import PromptMessage
from memserver.prompts import Prompts
from memserver.tasks import Conversation, Exchange, Material, Reply

PROMPT = "evaluation.md"
TRIES = 8
SHRINK = 0.85
"""What is left of the room for history after the endpoint has refused a prompt as too long."""


@dataclass(frozen=True, slots=True)
class ChatSystem:
    """A model, a prompt, and a choice of what is in it; a `memserver.tasks.System`."""

    name: str
    speaker: Speaker
    prompts: Prompts
    choice: Choice

    @asynccontextmanager
    async def begin(self, example_id: str, material: Material) -> AsyncIterator[Conversation]:  # noqa: ARG002 - the protocol's
        """A conversation of its own; nothing of it is kept."""
        yield _Chat(self, material)


@dataclass(frozen=True, slots=True)
class _Prompt:
    messages: list[PromptMessage]
    share: float


@dataclass
class _Chat(Conversation):
    system: ChatSystem
    material: Material
    said: list[PromptMessage] = field(default_factory=list)

    @override
    async def say(self, text: str, *, at: datetime | None = None) -> Reply:
        exchanges: list[Exchange] = []
        try:
            chosen = await self.system.choice.choose(self.material, text)
            exchanges += chosen.exchanges
            reply, share, exchange = await self._answer(chosen, text, at)
            exchanges.append(exchange)
        except MemserverError as error:
            return _with(failed_reply(error), exchanges)
        self.said += [PromptMessage("user", text), PromptMessage("assistant", reply)]
        return _with(Reply(reply, found=chosen.found, share_fitted=share), exchanges)

    async def _answer(
        self, chosen: Chosen, text: str, at: datetime | None
    ) -> tuple[str, float, Exchange]:
        scale = 1.0
        for _ in range(TRIES - 1):
            prompt = await self._prompt(chosen, text, at, scale)
            try:
                reply, exchange = await self.system.speaker.say(prompt.messages)
            except ContextOverflow:  # more tokens than we counted
                scale *= SHRINK
            else:
                return reply, prompt.share, exchange
        prompt = await self._prompt(chosen, text, at, scale)
        reply, exchange = await self.system.speaker.say(prompt.messages)
        return reply, prompt.share, exchange

    async def _prompt(
        self, chosen: Chosen, text: str, at: datetime | None, scale: float
    ) -> _Prompt:
        """The prompt with as much as fits.

        The question goes first, then the newest of what was said in this conversation, then documents,
        then the history.
        """
        speaker = self.system.speaker
        bare = self._system_message(chosen, at, (), ())
        room = await speaker.room()
        room -= await speaker.count_message(bare) + await speaker.count_message(text)
        said, room = await self._newest_said(room)
        room = int(room * scale)
        most = room if chosen.most is None else min(room, chosen.most)
        documents = await fit(speaker, chosen.documents, most)
        left = most - documents.tokens
        utterances = await fit(speaker, chosen.utterances, left, newest=True)
        head = self._system_message(chosen, at, shown(documents.pieces), shown(utterances.pieces))
        messages = [PromptMessage("system", head), *said, PromptMessage("user", text)]
        return _Prompt(messages, _share(documents, utterances))

    async def _newest_said(self, room: int) -> tuple[Sequence[PromptMessage], int]:
        kept: list[PromptMessage] = []
        for message in reversed(self.said):
            size = await self.system.speaker.count_message(message.text)
            if size > room:
                break
            kept.insert(0, message)
            room -= size
        return kept, room

    def _system_message(
        self,
        chosen: Chosen,
        at: datetime | None,
        documents: Sequence[str],
        utterances: Sequence[str],
    ) -> str:
        material = self.material
        return self.system.prompts.render(
            PROMPT,
            instructions=material.instructions,
            persona=material.persona,
            human=material.human,
            documents=documents,
            summary=chosen.summary,
            history=utterances,
            now=stamp(at) if at is not None else "",
        )


def _share(*parts: Fitted) -> float:
    wanted = sum(part.wanted for part in parts)
    return sum(part.tokens for part in parts) / wanted if wanted else 1.0


def _with(reply: Reply, exchanges: Sequence[Exchange]) -> Reply:
    return Reply(
        reply.text,
        sum(each.tokens_in for each in exchanges),
        sum(each.tokens_out for each in exchanges),
        tuple(exchanges),
        reply.found,
        reply.share_fitted,
        reply.error,
    )
