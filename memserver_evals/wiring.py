"""What an evaluation needs, from settings: the systems to compare, and the servers behind them.

The evaluation's own memserver runs in this process, over a Postgres of its own under MEMSERVER_HOME, so
that nothing of it gets into the data of a server that is in use. A Postgres whose run was killed serves the
next one, and ends with it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal
from uuid import UUID

from pydantic import SecretStr, TypeAdapter

from memserver.api.app import create_app
from memserver.client import AsyncClient
from memserver.messages import JsonObject, ToolSpec
from memserver.prompts import Prompts
from memserver.settings import Settings
from memserver.tools.memory_tools import SEND_MESSAGE, memory_tools
from memserver.tools.tool import SpecStyle
from memserver.wiring.database import DatabaseUrls, database_urls
from memserver.wiring.providers import Models, make_embedder
from memserver.wiring.services import Services, assemble
from memserver_evals.catalog import AGENTS, AUTO, FULL, PASTED, SEARCHES, WITHOUT_MODEL
from memserver_evals.runs.player import Player
from memserver_evals.systems.chat import ChatSystem
from memserver_evals.systems.choosing import Choice, Everything, Nearest, Summarised
from memserver_evals.systems.copying import CopyingSystem
from memserver_evals.systems.kept_vectors import KeptEmbedder
from memserver_evals.systems.memory import AgentSetup, MemorySystem, Mode, OracleSystem
from memserver_evals.systems.oracle import OracleModels
from memserver_evals.systems.recording import Recorder, RecordingModels
from memserver_evals.systems.searching import SearchSystem
from memserver_evals.systems.serving import served
from memserver_evals.systems.speaking import Speaker
from memserver_evals.systems.vectors import VectorIndex
from memserver_evals.task import System
from memserver_evals.tasks.catalog import TASKS
from memserver_evals.tasks.registry import TaskOptions, find_task

EVALUATIONS = "evaluations"
"""The folder under MEMSERVER_HOME."""
Speak = Literal["text", "call"]


@dataclass(frozen=True, slots=True)
class SystemOptions:
    mode: Mode = "import"  # how memserver gets to know the sessions
    agent: dict[str, Any] = field(default_factory=dict)  # more options of memserver's agents
    # tokens that all systems but full may use, of what the model has; None: all of it
    context_window: int | None = None
    full_window: int | None = None  # tokens of the system full; None: all that the model has
    max_tokens: int = 256  # of an answer, by the systems without memserver
    summary_tokens: int = 512  # of the systems summary and summary-extract
    top_k: int = 10  # of the system retrieval
    speak: Speak = "text"  # whether the systems without memserver write text, or call send_message
    agent_model: str | None = None  # of memserver's agents; None is the server's own
    template: str | None = (
        None  # memserver's agents are copies of this one: an id, or an agent file's path
    )

    def as_json(self) -> JsonObject:
        """As a run's manifest has it; what is as it always was before it could be chosen is left out."""
        return {
            name: value
            for name, value in asdict(self).items()
            if name != "template" and (name != "agent_model" or value)
        }

    def within(self, window: int) -> "SystemOptions":
        """The same, with no window larger than the model's."""
        return replace(
            self,
            context_window=min(self.context_window or window, window),
            full_window=min(self.full_window or window, window),
        )

    def window_of(self, system: str) -> int | None:
        """The tokens that a system may use; None where that isn't known, or it asks no model."""
        if system in WITHOUT_MODEL:
            return None
        if system in AGENTS and self.template is not None:
            return None  # its own
        return self.full_window if system == FULL else self.context_window


@dataclass(frozen=True, slots=True)
class Addresses:
    memserver: str = ""
    recorder: str = ""
    searched_memserver: str = ""
    oracle: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that decides what is played, as plain values: it travels to other processes."""

    task: str
    task_options: TaskOptions
    systems: tuple[str, ...]
    options: SystemOptions
    addresses: Addresses = Addresses()
    api_key: str | None = None
    settings: JsonObject = field(default_factory=dict)

    def as_json(self) -> JsonObject:
        """As a JSON object, secrets included: not to be stored."""
        plan: JsonObject = _PLAN.dump_python(self, mode="json")
        return plan


_PLAN = TypeAdapter(Plan)


@contextmanager
def own_servers(
    settings: Settings, systems: Sequence[str], url: str | None, database_url: str | None = None
) -> Iterator[Addresses]:
    """The servers that these systems need and that nobody else runs; `url` is of a memserver to be used instead.

    `database_url` is of a Postgres for the first server alone: a server serves every agent in its database, so two
    with different models can't share. Raises SetupError: one can't be started.
    """
    memserver = recorder = oracle = search = ""
    given = [database_url]
    with ExitStack() as stack:

        def start(name: str, served: Settings, models: Models | OracleModels) -> str:
            database = given.pop() if given else None
            urls = stack.enter_context(_database(settings, name, database))
            return stack.enter_context(_memserver(served, urls, models))

        if not set(AGENTS).isdisjoint(systems):
            memserver = url or start("memserver", settings, Models(settings))
            recorder = "" if url else memserver
        if PASTED in systems:
            oracle = start("oracle", _without_model(settings), OracleModels())
        if not SEARCHES.keys().isdisjoint(systems):
            search = url or start("search", _without_model(settings), OracleModels())
        yield Addresses(memserver, recorder, search, oracle)


@contextmanager
def _database(settings: Settings, name: str, database_url: str | None) -> Iterator[DatabaseUrls]:
    """A server's database: the given one, or one of its own."""
    database = {
        "home": settings.home / EVALUATIONS / name,
        "database_url": None if database_url is None else SecretStr(database_url),
        "database_app_url": None,
    }
    with database_urls(settings.model_copy(update=database)) as urls:
        yield urls


def _without_model(settings: Settings) -> Settings:
    """A server's settings whose model is none of the user's: the environment's are another model's."""
    of_embeddings = [name for name in Settings.model_fields if name.startswith("embedding_")]
    kept = {name: getattr(settings, name) for name in ("home", "archival_search", *of_embeddings)}
    return Settings.model_construct(llm_model="oracle", llm_mode="tools", **kept)


@contextmanager
def _memserver(
    settings: Settings, urls: DatabaseUrls, models: Models | OracleModels
) -> Iterator[str]:
    own = settings.model_copy(update={"tools": (), "mcp_servers": {}, "rate_limit": 0})
    recording = RecordingModels(models)
    app = create_app(_services(own, urls, recording), own)
    app.router.routes.append(recording.route())
    if isinstance(models, OracleModels):
        app.router.routes.append(models.route())
    with served(app, lifespan=True) as address:
        yield address


@asynccontextmanager
async def _services(
    settings: Settings, urls: DatabaseUrls, models: RecordingModels
) -> AsyncIterator[Services]:
    embedder = _kept_embedder(settings)
    try:
        async with assemble(urls.app, models, embedder, settings) as services:
            yield services
    finally:
        await embedder.aclose()
        if isinstance(models.inner, Models):
            await models.inner.aclose()


@asynccontextmanager
async def open_player(plan: JsonObject) -> AsyncIterator[Player]:
    """A player of a plan; also what each worker of a cluster starts from."""
    read = _PLAN.validate_python(plan)
    task = find_task(TASKS, read.task).make(read.task_options)
    async with AsyncExitStack() as stack:
        if isinstance(task, AbstractAsyncContextManager):  # it owns processes
            await stack.enter_async_context(task)
        yield Player(task, await stack.enter_async_context(open_systems(read)))


@asynccontextmanager
async def open_systems(plan: Plan) -> AsyncIterator[dict[str, System]]:
    settings = Settings(_env_file=None, **plan.settings)
    async with AsyncExitStack() as stack:
        made: dict[str, System] = {}
        for name in plan.systems:
            if (system := await _served_system(stack, plan, name)) is not None:
                made[name] = system
        asking = [name for name in plan.systems if name not in made]
        for window in dict.fromkeys(map(plan.options.window_of, asking)):
            names = [name for name in asking if plan.options.window_of(name) == window]
            made |= await _chat_systems(stack, _windowed(settings, window), plan.options, names)
        yield {name: made[name] for name in plan.systems}


async def _served_system(stack: AsyncExitStack, plan: Plan, name: str) -> System | None:
    addresses = plan.addresses
    if name == "copying":
        return CopyingSystem()
    if name in AGENTS:
        client = await stack.enter_async_context(
            AsyncClient(addresses.memserver, api_key=plan.api_key)
        )
        template = await _template(stack, client, plan.options.template)
        return MemorySystem(
            client,
            name=name,
            setup=replace(_agent_setup(plan.options, name), template=template),
            recorder=Recorder(addresses.recorder),
        )
    if name == PASTED:
        client = AsyncClient(addresses.oracle)
        return OracleSystem(await stack.enter_async_context(client), Recorder(addresses.oracle))
    if name in SEARCHES:
        client = AsyncClient(addresses.searched_memserver, api_key=plan.api_key)
        return SearchSystem(await stack.enter_async_context(client), SEARCHES[name])
    return None


async def _template(stack: AsyncExitStack, client: AsyncClient, named: str | None) -> UUID | None:
    """The agent that is copied; one of a file is imported, and deleted in the end."""
    if named is None:
        return None
    with suppress(ValueError):
        return UUID(named)
    name = f"evaluation-{token_hex(4)}"
    made = await client.agents.import_file(Path(named), name=name)
    stack.push_async_callback(client.agents.delete, made.agent.id)
    return made.agent.id


def _agent_setup(options: SystemOptions, name: str) -> AgentSetup:
    agent = dict(options.agent)
    if options.context_window is not None and options.template is None:
        agent["context_window"] = options.context_window
    if name == AUTO:
        agent["auto_recall"] = True
    return AgentSetup(options.mode, agent, options.agent_model)


def _windowed(settings: Settings, window: int | None) -> Settings:
    if window is None:
        return settings
    return settings.model_copy(update={"llm_context_window": window})


async def _chat_systems(
    stack: AsyncExitStack, settings: Settings, options: SystemOptions, names: Sequence[str]
) -> dict[str, System]:
    """Systems that ask the settings' model, in its window."""
    models = Models(settings)
    stack.push_async_callback(models.aclose)
    prompts = Prompts(settings.prompts_dir)
    tool = _send_message(settings) if options.speak == "call" else None
    speaker = Speaker(models.get(None), options.max_tokens, tool)
    tokens = options.summary_tokens
    choices: dict[str, Choice] = {
        "full": Everything(),
        "window": Everything(),
        "summary": Summarised(speaker, prompts, tokens),
        "summary-extract": Summarised(speaker, prompts, tokens, "extract"),
    }
    if "retrieval" in names:
        embedder = _kept_embedder(settings)
        stack.push_async_callback(embedder.aclose)
        choices["retrieval"] = Nearest(VectorIndex(embedder), options.top_k)
    return {name: ChatSystem(name, speaker, prompts, choices[name]) for name in names}


def _kept_embedder(settings: Settings) -> KeptEmbedder:
    """The settings' embedder; what it makes serves every system, and later runs."""
    depends = (settings.embedding_dimension, settings.embedding_body, settings.embedding_prefix)
    file = settings.home / EVALUATIONS / "vectors.sqlite"
    return KeptEmbedder(make_embedder(settings), file, repr(depends))


def _send_message(settings: Settings) -> ToolSpec:
    """The one tool of a model that was trained to speak by it, in the style it was trained on."""
    style = SpecStyle(settings.llm_thought_last, settings.llm_longest_text)
    [tool] = (tool for tool in memory_tools() if tool.spec.name == SEND_MESSAGE)
    return style.apply(tool).spec


def ask_about_model(settings: Settings) -> JsonObject:
    """The model's name and window, as the endpoint has them. Raises a ModelError."""

    async def ask() -> JsonObject:
        models = Models(settings)
        try:
            model = models.get(None)
            window = await model.context_window()
            await model.check()
            return {"name": model.name, "window": window}
        finally:
            await models.aclose()

    return asyncio.run(ask())
