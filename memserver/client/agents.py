"""Agents, and their timers."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Unpack
from uuid import UUID

from memserver.client.methods import Resource, TransportT, items, method
from memserver.client.models import Agent, AgentOptions, ContextView, ImportedAgent, Page, Timer
from memserver.client.requests import (
    UNSET,
    Id,
    JsonObject,
    Paged,
    Request,
    Unset,
    changed,
    delete,
    get,
    given,
    new_key,
    nothing,
    patch,
    post,
)


class Agents(Resource[TransportT]):
    """Agents, and what their prompts hold."""

    @method
    def create(
        self,
        name: str | None = None,
        *,
        model: str | None = None,
        system_prompt: str | None = None,
        sections: Sequence[JsonObject] | None = None,
        options: AgentOptions | JsonObject | None = None,
        metadata: JsonObject | None = None,
        language: str | None = None,
    ) -> Request[Agent]:
        """Create an agent. Everything has a default.

        Args:
            name: unique; made up when left out.
            model: left out: the server's.
            system_prompt: instructions instead of the server's.
            sections: of the working context, objects with `name` and, as wanted, `text`, `limit` (characters)
                and `description`; left out: persona and human.
            options: the agent's own settings.
            metadata: yours.
            language: by which words in its archival storage are stemmed; left out: each passage by its own.
        """
        body = given(
            name=name,
            model=model,
            system_prompt=system_prompt,
            sections=None if sections is None else [*sections],
            options=options,
            metadata=metadata,
            language=language,
        )
        return post("/agents", Agent, body)

    @method
    def list(
        self, *, name: str | None = None, search: str | None = None, **page: Unpack[Paged[Id]]
    ) -> Request[Page[Agent, UUID]]:
        """List agents: all, the one of this `name`, or those whose names hold what is searched for.

        `after` is the `next` of the page before.
        """
        query = {"name": name, "search": search, **page}
        return get("/agents", Page[Agent, UUID], query)

    all = items(list.build)

    @method
    def find(self, name: str) -> Request[Agent | None]:
        """The agent of this name, or None."""

        def only(body: object) -> Agent | None:
            return next(iter(Page[Agent, UUID].model_validate(body).items), None)

        return Request("GET", "/agents", only, query={"name": name, "limit": 1})

    @method
    def get(self, agent: Id) -> Request[Agent]:
        """Get one agent."""
        return get("/agents/{agent}", Agent, agent=agent)

    @method
    def update(
        self,
        agent: Id,
        *,
        name: str | Unset = UNSET,
        model: str | Unset | None = UNSET,
        system_prompt: str | Unset | None = UNSET,
        options: AgentOptions | JsonObject | Unset = UNSET,
        metadata: JsonObject | Unset = UNSET,
        language: str | Unset = UNSET,
    ) -> Request[Agent]:
        """Change an agent; what is left out stays, None is the server's default.

        `options` and `metadata` are replaced as a whole.
        """
        body = changed(
            name=name,
            model=model,
            system_prompt=system_prompt,
            options=options,
            metadata=metadata,
            language=language,
        )
        return patch("/agents/{agent}", Agent, body, agent=agent)

    @method
    def delete(self, agent: Id) -> Request[None]:
        """Delete an agent with its whole memory."""
        return delete("/agents/{agent}", agent=agent)

    @method
    def fork(
        self, agent: Id, name: str | None = None, *, position: int | None = None
    ) -> Request[Agent]:
        """Make another agent whose history ends at a message of this one, with this one's memory.

        Args:
            agent: which; it stays as it is.
            name: the new one's; made up when left out.
            position: of the last message that it has; left out: of the last turn that has ended.
        """
        body = given(name=name, position=position)
        return post("/agents/{agent}/fork", Agent, body, agent=agent)

    @method
    def context(self, agent: Id) -> Request[ContextView]:
        """What the agent's prompt holds now, part by part, in text and tokens."""
        return get("/agents/{agent}/context", ContextView, agent=agent)

    @method
    def export(
        self, agent: Id, file: Path, *, history: bool = False, vectors: bool = False
    ) -> Request[None]:
        """Write the agent with its whole memory to an agent file, which has its name only when it is whole.

        Args:
            agent: which.
            file: where.
            history: every version of the working context, not only the last.
            vectors: those of its passages, so that they need not be made again.
        """
        query = {"history": history, "vectors": vectors}
        ids = {"agent": agent}
        return Request("GET", "/agents/{agent}/export", nothing, ids, query, target=file)

    @method
    def import_file(
        self,
        file: Path | bytes,
        *,
        name: str | None = None,
        keep_ids: bool = False,
        into: Id | None = None,
        idempotency_key: str | None = None,
    ) -> Request[ImportedAgent]:
        """Make an agent of an agent file, Letta's (.af), ChatGPT's or Claude's export, or a list of messages.

        All of it or nothing.

        Args:
            file: its path, or what is in it.
            name: instead of the file's.
            keep_ids: the agent and its passages keep the file's ids; the server's operator's alone.
            into: an agent that is there, whose history the file's chats come into.
            idempotency_key: as of a message.
        """
        return Request(
            "POST",
            "/agents/import",
            ImportedAgent.model_validate,
            query={"name": name, "keep_ids": keep_ids, "into": into},
            file=file,
            key=idempotency_key or new_key(),
        )


class Timers(Resource[TransportT]):
    """Timers, which come to an agent as events."""

    @method
    def create(
        self, agent: Id, text: str, *, at: datetime | None = None, in_seconds: float | None = None
    ) -> Request[Timer]:
        """Have the agent reminded of a text, as an event: `at` a time with a zone, or `in_seconds`."""
        body = given(text=text, at=at, in_seconds=in_seconds)
        return post("/agents/{agent}/timers", Timer, body, agent=agent)

    @method
    def list(self, agent: Id, **page: Unpack[Paged[Id]]) -> Request[Page[Timer, UUID]]:
        """List the timers that have not gone off yet."""
        return get("/agents/{agent}/timers", Page[Timer, UUID], page, agent=agent)

    all = items(list.build)

    @method
    def delete(self, agent: Id, timer: Id) -> Request[None]:
        """Delete a timer, which then doesn't go off."""
        return delete("/agents/{agent}/timers/{timer_id}", agent=agent, timer_id=timer)
