"""memserver, through its HTTP API: an agent of its own for each example.

Sessions become its history, with their own times; documents lie in a shared collection that is made once.
The agent's clock is that of its messages, so the question is asked at its own time. In the mode `act` the
agent takes part in every turn of the sessions instead, and so can act to remember.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any, Literal
from uuid import UUID, uuid4

from typing_extensions import override

from memserver.client import AsyncClient
from memserver.client.models import Agent, Answer, ToolCall
from memserver.client.requests import UNSET
from memserver.errors import Conflict, MemserverError
from memserver_evals.progress import bar
from memserver_evals.systems.failing import failed_reply
from memserver_evals.systems.oracle import MOST_STEPS
from memserver_evals.systems.recording import Recorder, ask_part
from memserver_evals.systems.shared import Shared
from memserver_evals.task import (
    Conversation,
    Document,
    Found,
    Library,
    Material,
    Reply,
    Search,
    Utterance,
)

Mode = Literal["import", "act"]
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
"""The time of documents, which have none of their own."""
IMPORT_AT_ONCE, INSERT_AT_ONCE, MAKING_SECONDS = 10_000, 200, 0.5
SEARCHES = ("archival_memory_search", "recall_memory_search")
"""How the names of the tools that search begin."""
AUTO_RECALL = "auto_"
"""How the ids of calls begin that the server made itself."""
_LABEL = re.compile(r"^\[([mp])(\d+(?:@[^,\]]+)?)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class AgentSetup:
    mode: Mode = "import"  # how the sessions get into the memory
    # more of the agent's options, such as context_window. Where they say that the reply mode is
    # chat, the task's instructions are the system prompt, as a policy is trained with them
    options: dict[str, Any] = field(default_factory=dict)
    # the agents', by its name at the server's endpoint; None is the server's own
    model: str | None = None
    keep: bool = False  # agents stay after their example, to be looked at
    template: UUID | None = None  # the agents are copies of this one, as it is


class MemorySystem:
    def __init__(
        self,
        client: AsyncClient,
        *,
        name: str = "memserver",
        setup: AgentSetup | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """`client`: of the server; closed by who made it; `recorder`: has the prompts, where there is one."""
        self.name = name
        self.client = client
        self.setup = setup or AgentSetup()
        self.recorder = recorder or Recorder()
        self._libraries: Shared[str, UUID] = Shared()

    @asynccontextmanager
    async def begin(self, example_id: str, material: Material) -> AsyncIterator[Conversation]:
        library = material.library
        collection = await self._collection(library) if library and library.shared else None
        key = token_hex(8)
        agent = await self._make(key, example_id, material)
        try:
            if collection is not None:
                await self.client.archival.attach(agent.id, collection)
            elif library is not None:
                for batch in _batches(library):
                    await self.client.archival.insert(agent.id, batch)
            last = await self._last_message() if self.setup.template else None
            conversation = MemoryConversation(self, agent.id, key, material, after=last)
            await conversation.live_through([each for each in material.said if each.text.strip()])
            yield conversation
        finally:
            if not self.setup.keep:
                await self.client.agents.delete(agent.id)

    async def _make(self, key: str, example_id: str, material: Material) -> Agent:
        """An agent for an example: of the task's instructions, or a copy of the template."""
        model = await self.model_name(key, material)
        metadata = {"example": example_id}
        if self.setup.template is None:
            plain = self.setup.options.get("reply_mode") == "chat"
            return await self.client.agents.create(
                model=model,
                system_prompt=(material.instructions or None) if plain else None,
                sections=_own_sections(material) if plain else _sections(material),
                options={**self.setup.options, "clock": "messages"},
                metadata=metadata,
            )
        copy = await self.client.agents.fork(self.setup.template)
        kept = copy.options.model_dump(exclude_none=True, exclude_unset=True)
        return await self.client.agents.update(
            copy.id,
            options={**kept, **self.setup.options, "clock": "messages"},
            metadata=metadata,
            model=UNSET if model is None else model,
        )

    async def _last_message(self) -> datetime | None:
        assert self.setup.template is not None
        page = await self.client.messages.list(self.setup.template, limit=1, order="desc")
        return page.items[0].created_at if page.items else None

    def takes_part(self, material: Material) -> bool:
        """Whether agents are there when the sessions take place."""
        return material.live or self.setup.mode == "act"

    async def model_name(self, key: str, material: Material) -> str | None:  # noqa: ARG002 - the oracle's
        """The model of an agent that is to know this; its prompts are recorded under the key."""
        return self.recorder.model_name(key, self.setup.model)

    async def _collection(self, library: Library) -> UUID:
        """The collection with these documents, made where it is not there; another process may be first."""
        name = _collection_name(library)
        return await self._libraries.get(name, lambda: self._find_or_make(name, library))

    async def _find_or_make(self, name: str, library: Library) -> UUID:
        found = await self._find(name)
        if found is not None:
            return found
        # Under a name of its own until it is whole, so that nobody takes half of it.
        made = await self.client.collections.create(f"{name}-{uuid4().hex[:8]}")
        with bar("storing documents", len(library.documents)) as advance:
            for batch in _batches(library):
                await self.client.passages.insert(made.id, batch)
                advance(len(batch))
        try:
            await self.client.collections.update(made.id, name=name)
        except Conflict:
            await self.client.collections.delete(made.id)
            theirs = await self._find(name)
            assert theirs is not None, "the name is taken"
            return theirs
        return made.id

    async def _find(self, name: str) -> UUID | None:
        page = await self.client.collections.list(name=name, limit=1)
        return page.items[0].id if page.items else None


@dataclass
class MemoryConversation(Conversation):
    system: MemorySystem
    agent: UUID
    key: str
    material: Material
    after: datetime | None = None  # the agent's own history ends here, and what is said comes later
    now: datetime | None = None
    shift: timedelta = timedelta()
    tokens_in: int = 0
    tokens_out: int = 0
    named: dict[tuple[str, str], Found | None] = field(default_factory=dict)

    async def live_through(self, said: Sequence[Utterance]) -> None:
        """Let the agent know what was said, or be there when it is."""
        said = [replace(each, at=self._moved(each.at)) for each in said]
        self.now = said[-1].at if said else self.after
        if self.system.takes_part(self.material):
            await self._act(said)
        else:
            await self._import(said)
        await self._wait_until_indexed()

    @override
    async def say(self, text: str, *, at: datetime | None = None) -> Reply:
        self.now = (
            self._moved(at) if at else (self.now + timedelta(minutes=1) if self.now else LONG_AGO)
        )
        try:
            answer = await self.system.client.messages.send(self.agent, text, created_at=self.now)
            self._count(answer)
            reply = await self._reply(answer)
        except MemserverError as error:
            reply = replace(failed_reply(error), searches=())
        exchanges = await self.system.recorder.take(self.key)
        tokens_in, self.tokens_in = self.tokens_in, 0
        tokens_out, self.tokens_out = self.tokens_out, 0
        if exchanges:  # those of summaries are in no turn's usage
            tokens_in = sum(each.tokens_in for each in exchanges)
            tokens_out = sum(each.tokens_out for each in exchanges)
        return replace(reply, tokens_in=tokens_in, tokens_out=tokens_out, exchanges=exchanges)

    def _moved(self, at: datetime) -> datetime:
        """A time of the example in the agent's life: all of it is moved as far as it has to be."""
        if self.after is not None and at + self.shift <= self.after:
            self.shift = self.after + timedelta(minutes=1) - at
        return at + self.shift

    async def _import(self, said: Sequence[Utterance]) -> None:
        past = [
            {"role": each.role, "text": each.spoken, "created_at": each.at.isoformat()}
            for each in said
        ]
        for start in range(0, len(past), IMPORT_AT_ONCE):
            batch = past[start : start + IMPORT_AT_ONCE]
            await self.system.client.messages.import_past(self.agent, batch)

    async def _act(self, said: Sequence[Utterance]) -> None:
        """What the other side said is said to the agent; what its own side said then is imported.

        So the sessions stay as they were, whatever the agent answered, and it could act on each turn.
        """
        for utterance in said:
            if utterance.role == "assistant":
                await self._import([utterance])
                continue
            try:
                answer = await self.system.client.messages.send(
                    self.agent, utterance.spoken, created_at=utterance.at
                )
                self._count(answer)
            except MemserverError as error:
                failed_reply(error)  # the message is in the history; the turn came to nothing

    def _count(self, answer: Answer) -> None:
        self.tokens_in += answer.usage.prompt_tokens
        self.tokens_out += answer.usage.completion_tokens

    async def _wait_until_indexed(self) -> None:
        while True:
            page = await self.system.client.recall.search(self.agent, "hello", limit=1)
            if page.coverage is None or page.coverage.complete:
                return
            await asyncio.sleep(MAKING_SECONDS)

    async def _reply(self, answer: Answer) -> Reply:
        """The answer with the turn's searches, and what they brought, each once."""
        found: dict[tuple[str, str], Found] = {}
        searches: list[Search] = []
        pages: list[int] = []
        for call in _searches(answer):
            brought: list[Found] = []
            if call.state == "done" and call.result is not None:
                pages.append(len(call.result))
                brought = await self._found(call.result)
            for each in brought:
                found.setdefault((each.kind, each.id), each)
            ids = tuple(dict.fromkeys(each.id for each in brought))
            query = str(call.arguments.get("query", ""))
            searches.append(Search(query, ids, call.id.startswith(AUTO_RECALL)))
        shown = sum(pages) / len(pages) if pages else None
        return Reply(
            answer.text,
            found=tuple(found.values()),
            page_characters=shown,
            searches=tuple(searches),
        )

    async def _found(self, result: str) -> list[Found]:
        """What a search brought, by the labels of the results."""
        found: list[Found] = []
        for match in _LABEL.finditer(result):
            kind, number = label = (match[1], match[2])
            if label not in self.named:
                self.named[label] = await (
                    self._utterance(int(number)) if kind == "m" else self._document(number)
                )
            if (each := self.named[label]) is not None:
                found.append(each)
        return found

    async def _document(self, number: str) -> Found | None:
        passage = await self.system.client.archival.get(self.agent, f"p{number}")
        document = passage.metadata.get("document")
        return Found(str(document), "document", passage.text) if document else None

    async def _utterance(self, position: int) -> Found | None:
        """The utterance that a message was, recognised by its text."""
        message = await self.system.client.messages.get(self.agent, position)
        said = self._by_text.get(message.text)
        return Found(said.id, "utterance", said.text) if said is not None else None

    @property
    def _by_text(self) -> dict[str, Utterance]:
        return {each.spoken: each for each in reversed(self.material.said)}


def _searches(answer: Answer) -> list[ToolCall]:
    calls = [message.tool_call for message in answer.messages if message.tool_call is not None]
    return [call for call in calls if call.name.startswith(SEARCHES)]


def _sections(material: Material) -> list[dict[str, Any]] | None:
    """The working context that the task gives; None is the server's."""
    texts = {
        "persona": material.persona,
        "human": material.human,
        "task": f"{material.instructions} {material.look_up if material.library else ''}".strip(),
    }
    if not any(texts.values()):
        return None
    return [_section(name, text) for name, text in texts.items() if text or name != "task"]


def _own_sections(material: Material) -> list[dict[str, Any]]:
    """The working context of an agent whose system prompt is the instructions: what is said of the two."""
    texts = {"persona": material.persona, "human": material.human}
    return [_section(name, text) for name, text in texts.items() if text]


def _section(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "text": text, "limit": max(2000, len(text) + 1000)}


def _collection_name(library: Library) -> str:
    digest = hashlib.sha256()
    for document in library.documents:
        digest.update(f"{document.id}\0{document.title}\0{document.text}\0".encode())
    return f"evaluation-{library.name}-{digest.hexdigest()[:12]}"


def _batches(library: Library) -> list[list[dict[str, Any]]]:
    passages = [_passage(document) for document in library.documents]
    return [
        passages[start : start + INSERT_AT_ONCE]
        for start in range(0, len(passages), INSERT_AT_ONCE)
    ]


def _passage(document: Document) -> dict[str, Any]:
    return {
        "text": document.shown,
        "metadata": {"document": document.id},
        "created_at": LONG_AGO.isoformat(),
    }


class OracleSystem(MemorySystem):
    """A memserver whose models are those of `memserver_evals.systems.oracle`."""

    def __init__(self, client: AsyncClient, recorder: Recorder) -> None:
        setup = AgentSetup(options={"max_steps": MOST_STEPS})
        super().__init__(client, name="ten-searches-pasted", setup=setup, recorder=recorder)

    @override
    def takes_part(self, material: Material) -> bool:
        return False  # the script answers questions alone

    @override
    async def model_name(self, key: str, material: Material) -> str | None:
        await ask_part(self.recorder.url, "PUT", f"/hints/{key}", list(material.look_for))
        return self.recorder.model_name(key, key)
