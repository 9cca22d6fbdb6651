"""The same model without memserver, shown what a `Choice` says, cut where it doesn't fit the window."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from typing_extensions import override

from memserver.errors import ContextOverflow, MemserverError, ProtocolViolation
from memserver.messages import PromptMessage, TokenUsage
from memserver.prompts import Prompts
from memserver_evals.systems.choosing import Choice, Chosen
from memserver_evals.systems.failing import failed_reply
from memserver_evals.systems.history import Fitted, fit, fit_cut, shown, stamp
from memserver_evals.systems.speaking import Speaker, exchange
from memserver_evals.task import Conversation, Exchange, Material, Reply

PROMPT = "evaluation.md"
TRIES = 8
SHRINK = 0.85
"""What is left of the room for history after the endpoint has refused a prompt as too long."""


@dataclass(frozen=True, slots=True)
class ChatSystem:
    name: str
    speaker: Speaker
    prompts: Prompts
    choice: Choice

    @asynccontextmanager
    async def begin(self, example_id: str, material: Material) -> AsyncIterator[Conversation]:  # noqa: ARG002 - the protocol's
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
        try:
            chosen = await self.system.choice.choose(self.material, text)
        except MemserverError as error:
            return failed_reply(error)
        reply = await self._answer(chosen, text, at)
        if not reply.error:
            self.said += [PromptMessage("user", text), PromptMessage("assistant", reply.text)]
        return _with_tokens(reply, (*chosen.exchanges, *reply.exchanges))

    async def _answer(self, chosen: Chosen, text: str, at: datetime | None) -> Reply:
        scale = 1.0
        for tries_left in reversed(range(TRIES)):
            prompt = await self._prompt(chosen, text, at, scale)
            answer = Reply("", found=chosen.found, share_fitted=prompt.share)
            try:
                said, exchange = await self.system.speaker.say(prompt.messages)
            except ContextOverflow as error:  # more tokens than we counted
                if not tries_left:
                    return _failed(answer, prompt, error)
                scale *= SHRINK
            except MemserverError as error:
                return _failed(answer, prompt, error)
            else:
                return replace(answer, text=said, exchanges=(exchange,))
        raise AssertionError("the last try returns")

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
        if chosen.found:
            documents = await fit_cut(speaker, chosen.documents, room, self.material.documents_cut)
        else:
            documents = await fit(speaker, chosen.documents, room)
        left = room - documents.tokens
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


def _failed(reply: Reply, prompt: _Prompt, error: MemserverError) -> Reply:
    """The reply with what was asked, and what came in the place of an answer. Raises an outage."""
    raw = error.raw if isinstance(error, ProtocolViolation) else ""
    asked = exchange(prompt.messages, {"role": "assistant", "content": raw}, TokenUsage())
    return replace(reply, error=failed_reply(error).error, exchanges=(asked,))


def _with_tokens(reply: Reply, exchanges: Sequence[Exchange]) -> Reply:
    return replace(
        reply,
        tokens_in=sum(each.tokens_in for each in exchanges),
        tokens_out=sum(each.tokens_out for each in exchanges),
        exchanges=tuple(exchanges),
    )
