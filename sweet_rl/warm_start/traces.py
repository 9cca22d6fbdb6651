"""Traces: synthetic users talk with agents of the real server, and what the teacher did is written down.

The prompt, the tools and their results are the server's own. One line of a traces file is a chain: a
prompt, and the agent's turns that went on from it, until an edit or an eviction changed its beginning.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from uuid import UUID

from memserver.agent.rendering import Happening
from memserver.llm.tokens import TokenCounter
from memserver.llm.wire import call_as_json, json_messages
from memserver.memory.working_context import default_sections
from memserver.messages import MemorySection
from memserver.storage import agents, collections
from memserver.storage.agents import NewAgent
from memserver.storage.database import LazyTransaction
from memserver.storage.inbox import NewMessage
from memserver.storage.passages import NewPassage
from memserver.wiring.services import Services
from sweet_rl.offline_models import ModelsByName
from sweet_rl.progress import show_progress
from sweet_rl.warm_start.chains import Chain, Lesson, write_chains
from sweet_rl.warm_start.intents import Holdout, User
from sweet_rl.warm_start.small_talk import SmallTalk
from sweet_rl.warm_start.teacher import Taught, Teacher, ending
from sweet_rl.warm_start.users import make_user

TENANT = "warm-start"
AT_ONCE = 16
MAX_OUTPUT_TOKENS = 256


class SimulatedClock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


class Teachers(ModelsByName):
    def __init__(self, counter: TokenCounter) -> None:
        super().__init__(Teacher(counter, 8192, Random(0)))
        self._counter = counter

    def add_for(self, name: str, user: User, random: Random) -> Teacher:
        teacher = Teacher(self._counter, user.window, random, user.memorable, user.lasting)
        self.add(name, teacher)
        return teacher


@dataclass(frozen=True, slots=True)
class Recorder:
    # the server's, whose models are `teachers` and whose clock is `clock`; jobs run only when the recorder says so, so
    # that the same seed gives the same traces
    services: Services
    teachers: Teachers  # the models
    clock: SimulatedClock  # what the server takes for the time

    async def record_made_up(
        self, path: Path, side: Holdout, talk: Sequence[SmallTalk], *, count: int, seed: int
    ) -> int:
        """Play made-up users and write their chains; what they say is given by the seed. Returns how many."""

        def make_batch(start: int, random: Random) -> list[User]:
            self.clock.now = _some_time(random)
            return [
                make_user(random, side, list(talk), self.clock.now)
                for _ in range(min(AT_ONCE, count - start))
            ]

        return await self._record(path, count, make_batch, seed)

    async def record_all(self, path: Path, users: Sequence[User], *, seed: int) -> int:
        """Play any number of users, some at a time, and write their chains; returns how many."""

        def take_batch(start: int, _random: Random) -> Sequence[User]:
            return users[start : start + AT_ONCE]

        return await self._record(path, len(users), take_batch, seed)

    async def _record(
        self, path: Path, count: int, batch_at: Callable[[int, Random], Sequence[User]], seed: int
    ) -> int:
        played: list[Chain] = []
        with show_progress("users") as progress:
            for start in range(0, count, AT_ONCE):
                random = Random(f"{seed} {start}")
                batch = batch_at(start, random)
                played.extend(await self._play(batch, f"{path.stem}-{seed}-{start}", random))
                progress(start + len(batch), count)
        return write_chains(path, played)

    async def record(self, path: Path, users: Sequence[User], *, seed: int) -> int:
        return write_chains(path, await self._play(users, f"{path.stem}-{seed}", Random(seed)))

    async def _play(self, users: Sequence[User], name: str, random: Random) -> list[Chain]:
        """The conversations of a batch side by side, message by message."""
        players = [
            await self._player(f"{name}-{number}", user, random)
            for number, user in enumerate(users)
        ]
        await asyncio.gather(*(self._import(player) for player in players))
        await self.services.jobs.run_until_idle()  # as after some seconds: found by meaning, too
        for index in range(max(len(user.sayings) for user in users)):
            self.clock.now += timedelta(minutes=random.randint(1, 9))
            speaking = [player for player in players if index < len(player.user.sayings)]
            await asyncio.gather(*(self._say(player, index) for player in speaking))
            await self.services.jobs.run_until_idle()  # compaction, always at this point
        for player in players:
            self.teachers.remove(player.name)
        return [chain for player in players for chain in chains(player.teacher.taught)]

    async def _player(self, name: str, user: User, random: Random) -> "_Player":
        teacher = self.teachers.add_for(name, user, Random(random.random()))
        archival = self.services.archival
        async with self.services.database.tenant(TENANT) as tx:
            agent = await agents.create(
                tx,
                TENANT,
                NewAgent(
                    name=name,
                    sections=_sections(user),
                    embedding_model=archival.embedder.model,
                    dimension=await archival.dimension(),
                    model=name,
                    system_prompt=user.persona,
                    options={
                        "prompt_order": user.order,
                        "max_output_tokens": MAX_OUTPUT_TOKENS,
                        "clock": "messages" if user.has_times else "server",
                        **({"auto_recall": True} if user.auto_recall else {}),
                    },
                ),
            )
        if user.documents:
            own = partial(collections.own_of, agent_id=agent.id)
            texts = [NewPassage(text, created_at=user.sayings[0].at) for text in user.documents]
            async with LazyTransaction(self.services.database, TENANT) as transaction:
                await archival.insert(transaction, own, texts)
        return _Player(name, user, teacher, agent.id)

    async def _import(self, player: "_Player") -> None:
        past = [NewMessage(each.text, 0, each.role, each.at) for each in player.user.past]
        if past:
            conversation = self.services.conversation
            turn = await conversation.import_messages(TENANT, player.agent, past)
            await conversation.result(TENANT, turn)

    async def _say(self, player: "_Player", index: int) -> None:
        saying = player.user.sayings[index]
        player.teacher.expect(saying.intent)
        conversation, agent = self.services.conversation, player.agent
        if saying.event:
            happening = Happening(saying.event, saying.text)
            turn = await conversation.post_event(TENANT, agent, happening)
        else:
            turn = await conversation.post(TENANT, agent, saying.text, at=saying.at)
        result = await conversation.result(TENANT, turn)
        if result.ended.stop_reason != ending(saying.intent):
            raise AssertionError(f"A teacher's turn ended otherwise: {result.ended}")


@dataclass(frozen=True, slots=True)
class _Player:
    name: str
    user: User
    teacher: Teacher
    agent: UUID


def chains(taught: Iterable[Taught]) -> Iterator[Chain]:
    messages: list[dict[str, str]] = []
    lessons: list[Lesson] = []
    for each in taught:
        prompt = json_messages(each.prompt)
        if prompt[: len(messages)] != messages and messages:
            yield Chain(tuple(messages), tuple(lessons))
            lessons = []
        lessons.append(Lesson(len(prompt), each.kind, each.goal))
        text = call_as_json(each.call) if each.call is not None else each.text
        messages = [*prompt, {"role": "assistant", "content": text}]
    if messages:
        yield Chain(tuple(messages), tuple(lessons))


def _sections(user: User) -> tuple[MemorySection, ...]:
    task = [MemorySection("task", user.task, 2000, "")] if user.task else []
    return (*default_sections(), *task)


def _some_time(random: Random) -> datetime:
    """When a batch of conversations begins: any day of some years, by day."""
    day = datetime(2024, 1, 1, 8, tzinfo=UTC) + timedelta(days=random.randrange(1400))
    return day + timedelta(minutes=random.randrange(600))
