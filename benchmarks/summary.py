"""What a summary still knows: people's talk is imported, evicted and summarised, and their facts are looked for.

Each conversation of msc.jsonl (Multi-Session Chat) has four sessions, and for each session the facts that
people wrote down about either speaker. It is imported into an agent with a small window, so that the queue
manager evicts and summarises as it always does. Looked for are the facts of the sessions that have left the
queue wholly.

The measure: a fact's content words are its lower-cased words without stop words, cut to their stems.
`word_share` is the mean over facts of the share of these that the summary has; `fact_share` is the share of
facts of which it has two thirds or more. Beside the models stand `extract`, memserver's own way
without a model; `newest`, the end of the evicted talk as it was said, in as many tokens as the summary may
have; and `all`, the evicted talk without a limit, which nothing that repeats words can beat.

Run it: `python -m benchmarks.summary --data FOLDER [--conversations 8] [--json]`.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from typing_extensions import override

from memserver.agent.compaction import summary_limit
from memserver.agent.dependencies import ModelSource
from memserver.agent.inspect_context import inspect_context
from memserver.cli.local_engine import LOCAL_MODEL, UNTRAINED_MODEL
from memserver.local.engine.paths import BASE_NAME, MODEL_NAME, EnginePaths
from memserver.local.engine.process import LocalEngine
from memserver.memory.summary import transcript_line
from memserver.messages import Entry, ToolSpec
from memserver.settings import Settings
from memserver.storage import agents, recall
from memserver.storage.agents import NewAgent
from memserver.storage.inbox import NewMessage
from memserver.storage.snapshots import read_snapshot
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import ScriptedModel
from memserver.tokenizer_file import TokenizerFile
from memserver.wiring.database import database_urls
from memserver.wiring.providers import Models
from memserver.wiring.services import Services, assemble
from memserver_evals.data.msc import as_time
from tests.support.server import FixedModels
from tests.support.servers import temporary_folder

TENANT = "summary"
BEGINNING = datetime(2026, 1, 5, 18, tzinfo=UTC)
EXTRACT, NEWEST, ALL = "extract", "newest", "all"
ENOUGH = 2 / 3
"""Of a fact's content words, for the fact to count as kept."""
START_SECONDS = 300
STOP_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being both but by can
    could did do does doing don down during each even ever few for from further get gets getting go goes going
    got had has have having he her here hers him his how i if in into is it its itself just like likes me more
    most much my myself no nor not now of off on once one only or other our ours out over own really s same
    she should so some such t than that the their theirs them then there these they thing things this those
    through to too under until up us very want wants was we were what when where which while who whom why will
    with would you your yours re ve ll d m""".split()  # noqa: SIM905 - reads better
)

Figures = dict[str, Any]


@dataclass(frozen=True)
class Dialogue:
    """A conversation of people: sessions of (role, text), and each session's facts."""

    sessions: list[list[tuple[str, str]]]
    facts: list[list[str]]
    gaps: list[timedelta]


@dataclass
class Outcome:
    """What came of one conversation."""

    summary: str
    evicted: list[Entry]
    facts: list[list[str]]
    limit: int
    tokens: int
    evictions: int
    failures: int
    seconds: float


class Counting(ScriptedModel):
    """Counts with a tokenizer, and never writes."""

    def __init__(self, tokenizer: Path) -> None:
        super().__init__(context_window=8192)
        self._counter = TokenizerFile(tokenizer)

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return await self._counter.count(texts)

    @override
    def tools_text(self, tools: Sequence[ToolSpec]) -> str:
        return ""  # the local model reads none


def load(file: Path, count: int, seed: int) -> list[Dialogue]:
    """Some of the conversations, drawn by the seed."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [dialogue(json.loads(line)) for line in random.Random(seed).sample(lines, count)]


def dialogue(row: dict[str, Any]) -> Dialogue:
    """A line of msc.jsonl; speaker A is the user."""
    roles = {"A": "user", "B": "assistant"}
    return Dialogue(
        [[(roles[said["speaker"]], said["text"]) for said in part] for part in row["sessions"]],
        [[fact for facts in part for fact in facts] for part in row["summaries"]],
        [as_time(text) for text in row["gaps"]],
    )


def content_words(text: str) -> set[str]:
    """The stems of a text's words, without stop words."""
    words = re.findall(r"[a-z0-9]+", text.lower().replace("'", " ").replace("’", " "))  # noqa: RUF001
    return {stem(word) for word in words if word not in STOP_WORDS}


def stem(word: str) -> str:
    """A word without the endings of number, tense and gerund: movie and movies, study and studied."""
    for ending in ("ing", "ied", "ies", "ed", "es", "s"):
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending) + ("i" if ending in {"ied", "ies"} else "")
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    if len(word) > 3 and word.endswith("y"):
        word = f"{word[:-1]}i"
    return word.removesuffix("e") if len(word) > 3 else word


def shares(facts: Sequence[str], text: str) -> list[float]:
    """For each fact that has content words, the share of them that the text has."""
    there = content_words(text)
    wanted = [words for fact in facts if (words := content_words(fact))]
    return [len(words & there) / len(words) for words in wanted]


async def play(services: Services, talk: Dialogue, number: int, window: int) -> Outcome:
    """Import a conversation, session by session, and look at what is left of it."""
    agent = await new_agent(services, number, window)
    at, sizes = BEGINNING, [0]
    start = time.monotonic()
    for session, pause in zip(talk.sessions, talk.gaps, strict=True):
        said = []
        for role, text in session:
            at += timedelta(minutes=1)
            said.append(NewMessage(text, 0, "user" if role == "user" else "assistant", at))
        turn = await services.conversation.import_messages(TENANT, agent, said)
        ended = (await services.conversation.result(TENANT, turn)).ended
        if ended.error:
            raise RuntimeError(f"An import failed: {ended.error}")
        sizes.append(sizes[-1] + len(session))
        at += pause
    took = time.monotonic() - start
    async with services.database.tenant(TENANT) as tx:
        found = await read_snapshot(tx, agent)
        assert found is not None
        evicted = await recall.queue(tx, agent, 0, found[0].state.queue_start)
        kept = await tx.execute(
            """SELECT text, tokens, failure IS NOT NULL AS failed FROM summaries
               WHERE agent_id = %s ORDER BY until""",
            [agent],
        )
        summaries = await kept.fetchall()
    view = await inspect_context(services.deps, TENANT, agent)
    gone = sum(size <= len(evicted) for size in sizes[1:])
    return Outcome(
        summary=summaries[-1]["text"] if summaries else "",
        evicted=evicted,
        facts=talk.facts[:gone],
        limit=summary_limit(view.prompt.budget),
        tokens=summaries[-1]["tokens"] if summaries else 0,
        evictions=len(summaries),
        failures=sum(each["failed"] for each in summaries),
        seconds=took,
    )


async def new_agent(services: Services, number: int, window: int) -> Any:  # noqa: ANN401 - an id
    """An agent with this window."""
    archival = services.archival
    async with services.database.tenant(TENANT) as tx:
        agent = await agents.create(
            tx,
            TENANT,
            NewAgent(
                name=f"agent {number}",
                sections=[],
                embedding_model=archival.embedder.model,
                dimension=await archival.dimension(),
                options={"context_window": window, "max_output_tokens": 256},
            ),
        )
    return agent.id


@dataclass
class Method:
    """One way to summarise, and what came of it."""

    name: str
    outcomes: list[Outcome] = field(default_factory=list)

    def figures(self, texts: Sequence[str]) -> Figures:
        """How much these texts, one for each outcome, still know."""
        by_age: dict[int, list[float]] = {}
        for outcome, text in zip(self.outcomes, texts, strict=True):
            for age, facts in enumerate(reversed(outcome.facts), start=1):
                by_age.setdefault(age, []).extend(shares(facts, text))
        every = [share for found in by_age.values() for share in found]
        return {
            "fact_share": rate([share >= ENOUGH for share in every]),
            "word_share": rate(every),
            "facts": len(every),
            "fact_share_by_sessions_ago": {
                str(age): rate([share >= ENOUGH for share in found])
                for age, found in sorted(by_age.items())
            },
        }

    def costs(self) -> Figures:
        """What the summaries took."""
        evictions = sum(outcome.evictions for outcome in self.outcomes)
        return {
            "tokens": rate([outcome.tokens for outcome in self.outcomes]),
            "limit": rate([outcome.limit for outcome in self.outcomes]),
            "evictions": evictions,
            "by_extract": sum(outcome.failures for outcome in self.outcomes),
            "seconds_per_eviction": round(
                sum(outcome.seconds for outcome in self.outcomes) / max(1, evictions), 2
            ),
        }


def rate(values: Sequence[float]) -> float:
    """The mean, rounded."""
    return round(statistics.fmean(values), 3) if values else 0.0


async def newest(outcome: Outcome, tokenizer: TokenizerFile) -> str:
    """The end of what was evicted, in as many tokens as the summary may have."""
    lines = [transcript_line(message, UTC) for message in outcome.evicted]
    kept: list[str] = []
    room = outcome.limit
    for line, tokens in zip(
        reversed(lines),
        reversed(await tokenizer.count([f"{line}\n" for line in lines])),
        strict=True,
    ):
        room -= tokens
        if room < 0:
            break
        kept.append(line)
    return "\n".join(reversed(kept))


@contextmanager
def engine(name: str, asked: argparse.Namespace) -> Iterator[str | None]:
    """The local engine with one of its models, ready; or the endpoint that was named; an extract needs none."""
    if asked.url or name == EXTRACT:
        yield asked.url
        return
    local = LocalEngine(Settings().home, model=name)
    local.start()
    try:
        asyncio.run(local.wait_until_ready(within=START_SECONDS))
        yield local.base_url
    finally:
        local.stop()


SUITED = {MODEL_NAME: LOCAL_MODEL, BASE_NAME: UNTRAINED_MODEL, EXTRACT: LOCAL_MODEL}
"""Settings as `memserver serve` has them for a local model; the defaults are for others."""


def measure(name: str, talks: Sequence[Dialogue], asked: argparse.Namespace) -> Method:
    """Summarise all conversations in one way."""
    with engine(name, asked) as url, temporary_folder() as home:
        values: Figures = {
            **SUITED.get(name, {}),
            "summary_method": "extract" if name == EXTRACT else "model",
            "home": home,
            "llm_base_url": url,
            "llm_model": name,
            "llm_tokenizer": tokenizer_file(asked),
            "jobs_at_once": 0,
        }
        settings = Settings(**values)
        with database_urls(settings) as urls:
            return Method(name, asyncio.run(run(name, urls.app, settings, talks, asked)))


async def run(
    name: str, url: str, settings: Settings, talks: Sequence[Dialogue], asked: argparse.Namespace
) -> list[Outcome]:
    """Play the conversations, some of them at the same time."""
    models: ModelSource = (
        FixedModels(Counting(tokenizer_file(asked))) if name == EXTRACT else Models(settings)
    )
    turn = asyncio.Semaphore(asked.at_once)
    async with assemble(url, models, HashingEmbedder(), settings) as services:

        async def one(number: int, talk: Dialogue) -> Outcome:
            async with turn:
                return await play(services, talk, number, asked.window)

        outcomes = await asyncio.gather(*(one(*each) for each in enumerate(talks)))
    if isinstance(models, Models):
        await models.aclose()
    return outcomes


def tokenizer_file(asked: argparse.Namespace) -> Path:
    """The tokenizer that everything is counted with."""
    return asked.tokenizer or EnginePaths(Settings().home).of(BASE_NAME) / "tokenizer.json"


def compare(talks: Sequence[Dialogue], asked: argparse.Namespace) -> dict[str, Figures]:
    """Each method's figures, and those of what needs no summariser."""
    figures: dict[str, Figures] = {}
    for name in asked.methods:
        method = measure(name, talks, asked)
        texts = [outcome.summary for outcome in method.outcomes]
        figures[name] = {**method.figures(texts), **method.costs()}
    counter = TokenizerFile(tokenizer_file(asked))
    tails = [asyncio.run(newest(outcome, counter)) for outcome in method.outcomes]
    figures[NEWEST] = method.figures(tails)
    figures[ALL] = method.figures(
        ["\n".join(message.text for message in outcome.evicted) for outcome in method.outcomes]
    )
    return figures


def table(figures: dict[str, Figures]) -> Table:
    """One row for each method."""
    names = (
        *("fact_share", "word_share", "facts", "tokens", "limit", "evictions", "by_extract"),
        "seconds_per_eviction",
    )
    ages = sorted({age for each in figures.values() for age in each["fact_share_by_sessions_ago"]})
    made = Table(
        "method", *(name.replace("_", " ") for name in names), *(f"{age} ago" for age in ages)
    )
    for method, found in figures.items():
        old = [str(found["fact_share_by_sessions_ago"].get(age, "")) for age in ages]
        made.add_row(method, *(str(found.get(name, "")) for name in names), *old)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="folder of msc.jsonl")
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--window", type=int, default=2048, help="tokens of the agents' windows")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="draws the conversations")
    parser.add_argument(
        "--methods", nargs="+", default=[MODEL_NAME, BASE_NAME, EXTRACT], help="models, or extract"
    )
    parser.add_argument(
        "--url", help="an endpoint that has the models (…/v1), instead of the engine"
    )
    parser.add_argument("--tokenizer", type=Path, help="what counts; default: the local model's")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    talks = load(asked.data / "msc.jsonl", asked.conversations, asked.seed)
    figures = compare(talks, asked)
    Console(width=160).print(table(figures))
    if asked.json:
        first = figures[asked.methods[0]]
        top = {name: first[name] for name in ("fact_share", "word_share")}
        print(json.dumps({**top, "method": asked.methods[0], "methods": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
