"""Which agent, and which of its chats, a request in OpenAI's form is for: by the model's name, fields and headers."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Header

from memserver.agent.chats import ChatHint
from memserver.api.openai.errors import no_model
from memserver.api.schemas.agents import Moment
from memserver.errors import InvalidInput, NotFound
from memserver.storage import agents
from memserver.storage.agents import AgentRow
from memserver.text import clean
from memserver.wiring.services import Services

PER_USER = "@user"
"""After an agent's name: for each user an agent of its own, made of the named one."""
NO_MEMORY = "@no-memory"
"""After an agent's name: its model answers, and nothing is remembered."""
LONGEST_NAME = 200
LONGEST_USER = 128
_USER_FIELDS = ("safety_identifier", "user")

_Chat = Annotated[
    str | None,
    Header(
        alias="X-Memserver-Chat",
        max_length=200,
        description="The client's chat, by any name; else it is recognised by what it says.",
    ),
]
_OpenWebUIChat = Annotated[
    str | None, Header(alias="X-OpenWebUI-Chat-Id", max_length=200, description="The same.")
]
_OpenWebUIUser = Annotated[
    str | None,
    Header(
        alias="X-OpenWebUI-User-Id",
        max_length=LONGEST_USER,
        description="The user, where the request's `user` doesn't name one.",
    ),
]
_Repetitions = Annotated[
    int,
    Header(
        alias="x-stainless-retry-count",
        ge=0,
        le=1000,
        description="How often OpenAI's client has sent this before: then it is not posted again.",
    ),
]
_Remember = Annotated[
    bool | None,
    Header(
        alias="X-Memserver-Remember",
        description="false: the agent's model answers, and nothing is remembered. true: the agent answers, "
        "whatever the request looks like.",
    ),
]

_Expires = Annotated[
    Moment | None,
    Header(
        alias="X-Memserver-Expires-At",
        description="When what is said is deleted, and what it is answered; with a zone.",
        examples=["2030-01-01T00:00:00Z"],
    ),
]


@dataclass(frozen=True, slots=True)
class Headers:
    """What headers say of a request.

    Attributes:
        chat: which chat it belongs to.
        user: whose request it is.
        remember: whether the agent is to remember it; None where nothing is said of that.
        repeated: whether the client has sent it before.
        expires_at: when its messages and their answer expire.
    """

    chat: ChatHint = field(default_factory=ChatHint)
    user: str | None = None
    remember: bool | None = None
    repeated: bool = False
    expires_at: datetime | None = None


async def _headers(
    chat: _Chat = None,
    webui_chat: _OpenWebUIChat = None,
    webui_user: _OpenWebUIUser = None,
    remember: _Remember = None,
    repetitions: _Repetitions = 0,
    expires_at: _Expires = None,
) -> Headers:
    named = clean(chat or webui_chat or "").strip()
    return Headers(ChatHint(named or None), webui_user, remember, repetitions > 0, expires_at)


HeadersDep = Annotated[Headers, Depends(_headers)]


@dataclass(frozen=True, slots=True)
class Addressed:
    """The agent that a request is for.

    Attributes:
        remember: whether it is to remember the request; None where the model's name leaves that open.
        used: the fields that named the user.
    """

    agent: AgentRow
    remember: bool | None = None
    used: tuple[str, ...] = ()


async def find_agent(services: Services, tenant: str, model: str) -> AgentRow:
    """The agent of this name or id. Raises Refusal."""
    model = clean(model)
    async with services.database.tenant(tenant) as tx:
        try:
            return await agents.find(tx, model)
        except NotFound as error:
            raise no_model(model) from error


async def find_addressed(
    services: Services, tenant: str, model: str, fields: Mapping[str, Any], headers: Headers
) -> Addressed:
    """The agent that a request names; that of a user is made when it is first named.

    `model` is an agent's name or id, and what may follow it; of the other `fields` those that name a user are read.

    Raises:
        Refusal: there is no such agent.
        InvalidInput: the request names no user where it has to.
        Conflict: the agent can't be made.
    """
    if model.endswith(NO_MEMORY):
        return Addressed(await find_agent(services, tenant, model.removesuffix(NO_MEMORY)), False)
    if model.endswith(PER_USER):
        user = _user(fields, headers)
        agent = await _of_user(services, tenant, model.removesuffix(PER_USER), user)
        return Addressed(agent, used=_USER_FIELDS)
    return Addressed(await find_agent(services, tenant, model))


def _user(fields: Mapping[str, Any], headers: Headers) -> str:
    named = [(name, fields[name]) for name in _USER_FIELDS if fields.get(name)]
    field_name, user = named[0] if named else ("user", headers.user)
    if user is None:
        raise InvalidInput(
            f"user: the request doesn't say whose agent is wanted, and a model's name that ends in {PER_USER} asks "
            "for one of each user.",
            hint="Send `user`, or leave that ending out.",
        )
    if not isinstance(user, str) or not (user := clean(user).strip()) or len(user) > LONGEST_USER:
        raise InvalidInput(f"{field_name}: it is no text of 1 to {LONGEST_USER} characters.")
    return user


async def _of_user(services: Services, tenant: str, template_name: str, user: str) -> AgentRow:
    template = await find_agent(services, tenant, template_name)
    async with services.database.tenant(tenant) as tx:
        found = await agents.of_user(tx, template.id, user)
    if found is not None:
        return found
    name = _name(template.name, user)
    async with services.database.tenant(tenant) as tx:
        return await agents.make_for_user(
            tx, template, user, name, at_most=services.front_ends.agents_per_template
        )


def _name(template: str, user: str) -> str:
    """The name of a user's agent; one that is too long ends in a digest, so that no two users share it."""
    name = f"{template}@{user}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: LONGEST_NAME - 17]}-{digest}"
