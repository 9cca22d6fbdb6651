"""Agents out of the server and into it, as files."""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import IO, Annotated
from urllib.parse import quote
from uuid import UUID

from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from memserver.agent_files.chats import Chats
from memserver.agent_files.detect_format import open_chats, open_source
from memserver.agent_files.export import Contents, Export
from memserver.agent_files.ingest import AgentImporter, Imported, ImportOptions
from memserver.agent_files.tool_grants import ToolGrants
from memserver.api.dependencies import AgentId, CallerDep, ServicesDep, TenantDep
from memserver.api.errors import documented
from memserver.api.json_body import Router
from memserver.api.middleware.idempotency import HEADER, LONGEST_KEY, replay
from memserver.api.schemas.agents import UniqueName
from memserver.api.uploads import body_of, is_form, open_form_file
from memserver.errors import AgentFileTooLarge, DatabaseError, Forbidden, InvalidInput
from memserver.storage import agents
from memserver.storage.database import Transaction
from memserver.storage.idempotency import Claim, KeptAnswer
from memserver.storage.inbox import NewMessage
from memserver.text import clean
from memserver.wire.agents import ImportedAgent
from memserver.wiring.services import Services

router = Router(prefix="/agents", tags=["moving agents"])

MEDIA_TYPE = "application/zip"
HELD_IN_MEMORY = 1_000_000
"""Bytes of a file that is sent; of more the rest waits on disk."""
READ_TOGETHER = 1_000_000

OnceKey = Annotated[
    str | None,
    Header(
        alias=HEADER,
        min_length=1,
        max_length=LONGEST_KEY,
        description="A repeated request with the same key gets the first answer.",
    ),
]


@router.get(
    "/{agent}/export",
    response_class=StreamingResponse,
    responses={200: {"content": {MEDIA_TYPE: {}}, "description": "The agent file, as a stream."}},
)
async def export_agent(
    agent_id: AgentId,
    services: ServicesDep,
    tenant: TenantDep,
    history: Annotated[
        bool, Query(description="Every version of the working context, not only the last.")
    ] = False,
    vectors: Annotated[
        bool, Query(description="The passages' vectors, so that they need not be made again.")
    ] = False,
) -> StreamingResponse:
    """Export an agent with its whole memory as an agent file. What waits in its inbox is left out."""
    async with services.database.tenant(tenant) as tx:
        name = quote(f"{(await agents.get(tx, agent_id)).name}.zip", safe="")
    contents = Contents(history=history, vectors=vectors)
    export = Export(services.database, tenant, agent_id, contents, services.exports)
    return StreamingResponse(
        export.pieces(),
        media_type=MEDIA_TYPE,
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{name}"},
    )


@router.post(
    "/import",
    status_code=201,
    response_model=ImportedAgent,
    responses={
        413: documented("The file is larger than the server takes."),
        415: documented("It is no agent file."),
    },
    openapi_extra=body_of(MEDIA_TYPE),
)
async def import_agent(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    name: Annotated[UniqueName | None, Query(description="Instead of the file's.")] = None,
    keep_ids: Annotated[
        bool,
        Query(description="The agent and its passages keep the file's ids; the operator's alone."),
    ] = False,
    into: Annotated[
        UUID | None,
        Query(description="An agent that is there, whose history the file's chats come into."),
    ] = None,
    key: OnceKey = None,
) -> Response:
    """Make an agent of an agent file, a Letta agent file (.af), ChatGPT's or Claude's export, or a list of messages.

    All of it or nothing. With `into`, chats become past messages of an agent that is there, and are worked in by turns
    of their own.

    The file is the body, or the part `file` of a form. `not_carried` lists what could not be carried as it is.
    """
    if keep_ids and not caller.operates:
        raise Forbidden(
            "Only the server's operator chooses ids: they are of all tenants together.",
            hint="Leave keep_ids out, and the agent gets a new id.",
        )
    tenant = caller.tenant
    most = services.import_max_bytes
    with tempfile.SpooledTemporaryFile(HELD_IN_MEMORY) as file:
        digest = await _receive(request, file, most)
        if into is not None:
            if name or keep_ids:
                raise InvalidInput("into: an agent that is there keeps its name and ids.")
            return await _add_history(services, tenant, into, await open_chats(file, most), key)
        source = await open_source(file, most, services.deps)
        grants = ToolGrants(services.deps.tools, services.networks)
        job = AgentImporter(services.database, services.archival, grants)
        options = ImportOptions(clean(name) if name else None, keep_ids)
        async with AsyncExitStack() as stack:
            once = await _Once.begin(services, tenant, key, digest, stack)
            if isinstance(once, KeptAnswer):
                return replay(once)
            async with AsyncExitStack() as undo:
                undo.push_async_callback(once.give_back)
                await job.run(tenant, source, options, once.record)
                undo.pop_all()
    return Response(once.body, 201, media_type="application/json")


async def _add_history(
    services: Services, tenant: str, agent_id: UUID, chats: Chats, key: str | None
) -> Response:
    messages = [
        NewMessage(each.text, 0, each.role, each.created_at, each.chat) for each in chats.messages
    ]
    await services.conversation.import_messages(tenant, agent_id, messages, key=key)
    services.worker.ensure_serving(agent_id, tenant)
    async with services.database.tenant(tenant) as tx:
        agent = await agents.get(tx, agent_id)
    imported = Imported(agent, {"messages": len(messages), "passages": 0}, False, chats.notes)
    answer = ImportedAgent.model_validate(imported)
    return Response(answer.model_dump_json(), 201, media_type="application/json")


async def _receive(request: Request, file: IO[bytes], most: int) -> bytes:
    """Write the body to a file; a digest of it, and of what is asked."""
    digest = hashlib.sha256(f"{request.url.path}?{request.url.query}\0".encode())
    size = 0
    try:
        async for piece in _sent(request):
            size += len(piece)
            if size > most:
                raise AgentFileTooLarge(
                    f"The file has more than {most} bytes.",
                    hint="Raise MEMSERVER_IMPORT_MAX_BYTES.",
                )
            digest.update(piece)
            await asyncio.to_thread(file.write, piece)
    except ClientDisconnect as error:
        raise InvalidInput("The file did not arrive whole.") from error
    file.seek(0)
    return digest.digest()


async def _sent(request: Request) -> AsyncIterator[bytes]:
    """The file that a request has as its body, or as a form's part; what is larger than it may be ends before."""
    if not is_form(request):
        async for piece in request.stream():
            yield piece
        return
    async with open_form_file(request) as part:
        while piece := await part.read(READ_TOGETHER):
            yield piece


@dataclass
class _Once:
    """The import under its key: the answer is kept in the transaction that makes the agent.

    The middleware that does so for other routes would hold the file in memory, and the connection while an
    embedder works.
    """

    services: Services
    claim: Claim | None
    body: bytes = b""

    @classmethod
    async def begin(
        cls, services: Services, tenant: str, key: str | None, digest: bytes, stack: AsyncExitStack
    ) -> "_Once | KeptAnswer":
        if key is None:
            return cls(services, None)
        claim = await services.idempotency.claim(tenant, clean(key), digest)
        if isinstance(claim, KeptAnswer):
            return claim
        await stack.enter_async_context(services.idempotency.held(claim))
        return cls(services, claim)

    async def record(self, tx: Transaction, imported: Imported) -> None:
        self.body = ImportedAgent.model_validate(imported).model_dump_json().encode()
        if self.claim is not None:
            kept = KeptAnswer(201, "application/json", self.body)
            await self.services.idempotency.record(tx, self.claim, kept)

    async def give_back(self) -> None:
        """Let a repetition run at once."""
        if self.claim is not None:
            with suppress(DatabaseError):
                await self.services.idempotency.release(self.claim)
