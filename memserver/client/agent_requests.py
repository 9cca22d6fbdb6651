"""The requests for agents and for the server itself, each once, for both clients."""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from memserver.client.models import (
    Agent,
    AgentOptions,
    ContextView,
    Health,
    ImportedAgent,
    Page,
    Readiness,
)
from memserver.client.requests import (
    UNSET,
    Id,
    JsonObject,
    Order,
    PageRequest,
    Request,
    Unset,
    changed,
    given,
    new_key,
    nothing,
)

# --- the server


def health() -> Request[Health]:
    """Whether the server answers; it does while its models load."""
    return Request("GET", "/health", Health.model_validate)


def ready() -> Request[Readiness]:
    """Whether turns can be answered now, and what is missing if not."""
    return Request("GET", "/ready", Readiness.model_validate, answers=frozenset({503}))


# --- agents


def create_agent(
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
        sections=None if sections is None else list(sections),
        options=options,
        metadata=metadata,
        language=language,
    )
    return Request("POST", "/agents", Agent.model_validate, body=body, key=new_key())


def list_agents(
    *, name: str | None = None, after: Id | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[Agent, UUID]:
    """List agents. `after` is the `next` of the page before."""
    query = {"name": name, "after": after, "limit": limit, "order": order}
    return PageRequest("GET", "/agents", Page[Agent, UUID].model_validate, query=query)


def find_agent(name: str) -> Request[Agent | None]:
    """The agent of this name, or None."""
    query = {"name": name, "limit": 1}
    return Request("GET", "/agents", _only_agent, query=query)


def get_agent(agent: Id) -> Request[Agent]:
    """Get one agent."""
    return Request("GET", "/agents/{agent}", Agent.model_validate, {"agent": agent})


def update_agent(
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
    return Request("PATCH", "/agents/{agent}", Agent.model_validate, {"agent": agent}, body=body)


def delete_agent(agent: Id) -> Request[None]:
    """Delete an agent with its whole memory."""
    return Request("DELETE", "/agents/{agent}", nothing, {"agent": agent})


def export_agent(agent: Id, *, history: bool = False, vectors: bool = False) -> Request[None]:
    """The agent with its whole memory as an agent file.

    Args:
        agent: which.
        history: every version of the working context, not only the last.
        vectors: those of its passages, so that they need not be made anew.
    """
    query = {"history": history, "vectors": vectors}
    return Request("GET", "/agents/{agent}/export", nothing, {"agent": agent}, query)


def import_agent(
    file: Path | bytes,
    *,
    name: str | None = None,
    keep_ids: bool = False,
    idempotency_key: str | None = None,
) -> Request[ImportedAgent]:
    """Make an agent of an agent file, or of Letta's (.af); all of it or nothing.

    Args:
        file: its path, or what is in it.
        name: instead of the file's.
        keep_ids: the agent and its passages keep the file's ids; the server's operator's alone.
        idempotency_key: as of a message.
    """
    return Request(
        "POST",
        "/agents/import",
        ImportedAgent.model_validate,
        query={"name": name, "keep_ids": keep_ids},
        file=file,
        key=idempotency_key or new_key(),
    )


def get_context(agent: Id) -> Request[ContextView]:
    """What the agent's prompt holds now, part by part, in text and tokens."""
    return Request("GET", "/agents/{agent}/context", ContextView.model_validate, {"agent": agent})


def _only_agent(body: object) -> Agent | None:
    return next(iter(Page[Agent, UUID].model_validate(body).items), None)
