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
)
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import SecretStr

from memserver.api.app import create_app
from memserver.client import AsyncClient
from memserver.client.models import SearchMode
from memserver.embeddings.base import Embedder
from memserver.embeddings.batching import BatchingEmbedder
from memserver.errors import InvalidInput
from memserver.messages import JsonObject, ToolSpec
from memserver.prompts import Prompts
from memserver.settings import Settings
from memserver.tools.memory_tools import SEND_MESSAGE, memory_tools
from memserver.tools.registry import SpecStyle, ToolRegistry
from memserver.wiring.database import DatabaseUrls, database_urls
from memserver.wiring.providers import Models, make_embedder
from memserver.wiring.services import Services, assemble
from memserver_evals.runs.player import Player
from memserver_evals.systems.chat import ChatSystem
from memserver_evals.systems.choosing import Choice, Everything, Nearest, Summarised
from memserver_evals.systems.memory import AgentSetup, MemorySystem, Mode, OracleSystem
from memserver_evals.systems.oracle import Oracle, oracle_app
from memserver_evals.systems.recording import NoRecorder, Recorder, RemoteRecorder, recording_app
from memserver_evals.systems.searching import SearchSystem
from memserver_evals.systems.serving import served
from memserver_evals.systems.speaking import Speaker
from memserver_evals.systems.vectors import VectorIndex
from memserver_evals.task import System
from memserver_evals.tasks.catalog import TASKS
from memserver_evals.tasks.registry import TaskEntry, TaskOptions, find_task

EVALUATIONS = "evaluations"
"""The folder under MEMSERVER_HOME."""
SYSTEMS: dict[str, tuple[frozenset[str], str]] = {
    "memserver": (
        frozenset({"sessions", "documents"}),
        "an agent of memserver, through its HTTP API",
    ),
    "full": (
        frozenset({"sessions", "documents"}),
        "the same model with everything in its window, the oldest cut where it doesn't fit",
    ),
    "window": (
        frozenset({"sessions", "documents"}),
        "the same model with the newest --window-tokens of it",
    ),
    "summary": (
        frozenset({"sessions"}),
        "the same model with a recursive summary of it, and nothing else",
    ),
    "retrieval": (
        frozenset({"sessions", "documents"}),
        "the same model with the --top-k nearest vectors' texts",
    ),
    "oracle-search": (
        frozenset({"sessions", "documents"}),
        "a script that always searches memserver and copies: the memory's own ceiling",
    ),
}
SEARCHES: dict[str, SearchMode] = {f"search-{mode}": mode for mode in get_args(SearchMode)}
SYSTEMS |= {
    name: (frozenset({"documents"}), f"memserver's archival search alone ({mode}); no model")
    for name, mode in SEARCHES.items()
}
Speak = Literal["text", "call"]


@dataclass(frozen=True, slots=True)
class SystemOptions:
    """How the systems are set up.

    Attributes:
        mode: how memserver gets to know the sessions.
        agent: more options of memserver's agents.
        agent_model: of memserver's agents; None is the server's own.
        context_window: tokens that all systems may use, of what the model has.
        max_tokens: of an answer, by the systems without memserver.
        window_tokens: of the system window.
        summary_tokens: of the system summary.
        top_k: of the system retrieval.
        speak: whether the systems without memserver write text, or call send_message.
    """

    mode: Mode = "import"
    agent: dict[str, Any] = field(default_factory=dict)
    context_window: int | None = None
    max_tokens: int = 256
    window_tokens: int = 1024
    summary_tokens: int = 512
    top_k: int = 10
    speak: Speak = "text"
    agent_model: str | None = None

    def as_told(self) -> JsonObject:
        """As a run's manifest has it; what is as it always was before it could be chosen is left out."""
        return {
            name: value for name, value in asdict(self).items() if name != "agent_model" or value
        }


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where servers are; empty where none is needed."""

    memserver: str = ""
    recorder: str = ""
    searched_memserver: str = ""
    oracle_memserver: str = ""
    oracle_recorder: str = ""
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
        plan = asdict(self)
        plan["task_options"]["data"] = str(self.task_options.data or "")
        return plan

    @classmethod
    def read(cls, plan: JsonObject) -> "Plan":
        """From what `as_json` gave."""
        options = dict(plan["task_options"])
        options["data"] = Path(options["data"]) if options["data"] else None
        return cls(
            **{
                **plan,
                "task_options": TaskOptions(**options),
                "systems": tuple(plan["systems"]),
                "options": SystemOptions(**plan["options"]),
                "addresses": Addresses(**plan["addresses"]),
            }
        )


def check_systems(systems: Sequence[str], entry: TaskEntry) -> tuple[str, ...]:
    """The systems, `all` spelt out. Raises InvalidInput for one that there is not, or that can't do the task."""
    suiting = tuple(
        name
        for name, (suits, _) in SYSTEMS.items()
        if entry.material <= suits and name not in SEARCHES
    )
    if list(systems) == ["all"]:
        return entry.systems or suiting
    for name in systems:
        if name not in SYSTEMS:
            raise InvalidInput(
                f"There is no system {name!r}.", hint=f"There are {', '.join(SYSTEMS)}, and all."
            )
        if name not in (entry.systems or suiting):
            raise InvalidInput(
                f"The system {name} can't do {entry.name}.",
                hint=f"It can be done by {', '.join(entry.systems or suiting)}.",
            )
    return tuple(dict.fromkeys(systems))


@contextmanager
def own_servers(
    settings: Settings, systems: Sequence[str], url: str | None, database_url: str | None = None
) -> Iterator[Addresses]:
    """The servers that these systems need and that nobody else runs.

    Args:
        settings: with the model's endpoint in them.
        systems: their names.
        url: of a memserver that is to be used for the system memserver.
        database_url: of a Postgres for ours, as its owner; None brings the evaluations' own. It is the first
            server's alone: a server serves every agent in its database, so two with different models can't share.

    Raises:
        SetupError: one can't be started.
    """
    memserver = recorder = oracle = oracle_memserver = oracle_recorder = search = ""
    given = [database_url]
    with ExitStack() as stack:

        def start(name: str, served_settings: Settings, model: str) -> str:
            database = given.pop() if given else None
            urls = stack.enter_context(_database(settings, name, database))
            return stack.enter_context(_memserver(served_settings, model, urls))

        if "memserver" in systems:
            memserver = url or ""
        if "memserver" in systems and url is None:
            assert settings.llm_base_url is not None
            recording = recording_app(settings.llm_base_url)
            recorder = stack.enter_context(served(recording, lifespan=True))
            memserver = start("memserver", settings, recorder)
        if "oracle-search" in systems:
            oracle = stack.enter_context(served(oracle_app(Oracle())))
            recording = recording_app(f"{oracle}/v1", pass_agent=True)
            oracle_recorder = stack.enter_context(served(recording, lifespan=True))
            oracle_memserver = start("oracle", _without_model(settings), oracle_recorder)
        if not SEARCHES.keys().isdisjoint(systems):
            search = url or start("search", _without_model(settings), NO_MODEL)
        yield Addresses(memserver, recorder, search, oracle_memserver, oracle_recorder, oracle)


NO_MODEL = "http://127.0.0.1:1"
"""Nobody listens there, and nobody asks."""


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
    kept = {name: getattr(settings, name) for name in _OF_THE_MEMORY}
    return Settings.model_construct(llm_model="oracle", llm_mode="tools", **kept)


_OF_THE_MEMORY = (
    "archival_search",
    "embedding_base_url",
    "embedding_model",
    "embedding_dimension",
    "embedding_window",
    "embedding_tokenizer",
    "embedding_api_key",
)
"""The settings that decide what the memory finds, whichever model asks."""


@contextmanager
def _memserver(settings: Settings, recorder: str, urls: DatabaseUrls) -> Iterator[str]:
    own = settings.model_copy(
        update={
            "llm_base_url": f"{recorder}/v1",
            "llm_tell_agent": True,
            "tools": (),
            "mcp_servers": {},
            "rate_limit": 0,
        }
    )
    with served(create_app(_services(own, urls), own), lifespan=True) as address:
        yield address


@asynccontextmanager
async def _services(settings: Settings, urls: DatabaseUrls) -> AsyncIterator[Services]:
    models = Models(settings)
    embedder = BatchingEmbedder(make_embedder(settings))
    try:
        async with assemble(urls.app, models, embedder, settings) as services:
            yield services
    finally:
        await embedder.aclose()
        await models.aclose()


@asynccontextmanager
async def open_player(plan: JsonObject) -> AsyncIterator[Player]:
    """A player of a plan; also what each worker of a cluster starts from."""
    read = Plan.read(plan)
    task = find_task(TASKS, read.task).make(read.task_options)
    async with AsyncExitStack() as stack:
        if isinstance(task, AbstractAsyncContextManager):  # it owns processes
            await stack.enter_async_context(task)
        yield Player(task, await stack.enter_async_context(open_systems(read)))


@asynccontextmanager
async def open_systems(plan: Plan) -> AsyncIterator[dict[str, System]]:
    """The plan's systems by name."""
    settings = Settings(_env_file=None, **plan.settings)
    async with AsyncExitStack() as stack:
        made: dict[str, System] = {}
        for name in plan.systems:
            if name == "memserver":
                client = AsyncClient(plan.addresses.memserver, api_key=plan.api_key)
                recorder = _recorder(plan.addresses.recorder)
                agent = dict(plan.options.agent)
                if plan.options.context_window is not None:
                    agent["context_window"] = plan.options.context_window
                setup = AgentSetup(plan.options.mode, agent, plan.options.agent_model)
                made[name] = MemorySystem(
                    await stack.enter_async_context(client), setup=setup, recorder=recorder
                )
            elif name == "oracle-search":
                client = AsyncClient(plan.addresses.oracle_memserver)
                made[name] = OracleSystem(
                    await stack.enter_async_context(client),
                    plan.addresses.oracle,
                    recorder=_recorder(plan.addresses.oracle_recorder),
                )
            elif name in SEARCHES:
                client = AsyncClient(plan.addresses.searched_memserver, api_key=plan.api_key)
                made[name] = SearchSystem(await stack.enter_async_context(client), SEARCHES[name])
        others = [name for name in plan.systems if name not in made]
        if others:
            made |= await _chat_systems(stack, settings, plan.options, others)
        yield {name: made[name] for name in plan.systems}


async def _chat_systems(
    stack: AsyncExitStack, settings: Settings, options: SystemOptions, names: Sequence[str]
) -> dict[str, System]:
    if options.context_window is not None:
        settings = settings.model_copy(update={"llm_context_window": options.context_window})
    models = Models(settings)
    stack.push_async_callback(models.aclose)
    prompts = Prompts(settings.prompts_dir)
    tool = _send_message(settings) if options.speak == "call" else None
    speaker = Speaker(models.get(None), options.max_tokens, tool)
    choices: dict[str, Choice] = {
        "full": Everything(),
        "window": Everything(options.window_tokens),
        "summary": Summarised(speaker, prompts, options.summary_tokens),
    }
    if "retrieval" in names:
        embedder: Embedder = BatchingEmbedder(make_embedder(settings))
        stack.push_async_callback(embedder.aclose)
        folder = settings.home / EVALUATIONS / "vectors"
        choices["retrieval"] = Nearest(VectorIndex(embedder, folder), options.top_k)
    return {name: ChatSystem(name, speaker, prompts, choices[name]) for name in names}


def _send_message(settings: Settings) -> ToolSpec:
    """The one tool of a model that was trained to speak by it, in the style it was trained on."""
    style = SpecStyle(settings.llm_thought_last, settings.llm_longest_text)
    specs = ToolRegistry(memory_tools(), style).specs()
    return next(spec for spec in specs if spec.name == SEND_MESSAGE)


def _recorder(url: str) -> Recorder:
    return RemoteRecorder(url) if url else NoRecorder()


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
