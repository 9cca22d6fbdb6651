"""Memory episodes on the real server: tasks, rewards, forks, and what no actor may see."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO

import pytest
from typing_extensions import override

from memserver.agent_files.archive import ArchiveReader
from memserver.errors import ModelUnavailable
from memserver.llm.base import Reply
from memserver.llm.tokens import TokenCounter
from memserver.messages import PromptMessage, TokenUsage, ToolSpec
from memserver.prompts import shipped_prompts
from memserver.settings import Settings
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.wiring.services import assemble
from memserver_evals.scoring.text import admits_not_knowing
from sweet_rl.memory_episodes import forking
from sweet_rl.memory_episodes.forking import CallDraws, export_copy, import_copy
from sweet_rl.memory_episodes.playing import Play, Player, PolicyOf, Stage, State
from sweet_rl.memory_episodes.records import Task
from sweet_rl.memory_episodes.steps import faults
from sweet_rl.memory_episodes.tasks import outcome, reward, tasks_of
from sweet_rl.memory_episodes.wiring import Scripted
from sweet_rl.offline_models import ModelsByName
from sweet_rl.warm_start import remembering
from sweet_rl.warm_start.corpus import conversations, side_of
from tests.support.server import OneDatabase

HIDDEN = "What will be asked"


class FourBytes(TokenCounter):
    """Counts about as a tokenizer does."""

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        return [-(-len(text.encode()) // 4) for text in texts]

    @override
    async def aclose(self) -> None:
        """Holds nothing."""


def saves(task: Task) -> Scripted:
    return Scripted(task, FourBytes())


def forgets(task: Task) -> Scripted:
    return Scripted(task, FourBytes(), saves=False)


@dataclass
class OfTwoMinds(Scripted):
    """Does what the script does, and something else whenever it is asked the same again."""

    seen: set[str] = field(default_factory=set)

    @override
    async def call_tool(
        self, prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec], **more: object
    ) -> Reply:
        policy = forgets(self.task) if str(prompt) in self.seen else saves(self.task)
        self.seen.add(str(prompt))
        return await policy.call_tool(prompt, tools, max_tokens=100)


@asynccontextmanager
async def stage(database: OneDatabase, policy: PolicyOf) -> AsyncIterator[Stage]:
    settings = Settings(
        _env_file=None,
        prompts_dir=shipped_prompts() / "small_model",
        llm_thought_last=True,
        llm_longest_text=200,
        history="compact",
        summary_method="extract",
        index_after_seconds=0,
        jobs_at_once=0,
    )
    players = ModelsByName(policy(whole_task()))
    async with assemble(database.app, players, HashingEmbedder(), settings) as services:
        yield Stage(services, players, policy)


def whole_task() -> Task:
    talk = next(talk for talk in conversations() if talk.side == "train")
    return next(tasks_of([talk], each=1, seed=1))


def short_task() -> Task:
    """The beginning of one, in a smaller window, with a question about its first evicted lines."""
    task = whole_task()
    early = [each for each in task.asked if each.line is not None and each.line < 8]
    return task.model_copy(
        update={"window": 800, "lines": task.lines[:14], "asked": tuple(early[:2])}
    )


def test_tasks_are_split_by_topic_and_ask_five_things_of_one_conversation() -> None:
    talks = conversations()
    tasks = list(tasks_of(talks, each=2, seed=1))
    assert len(tasks) == 2 * len(talks)
    assert all(task.side == side_of(task.topic) for task in tasks)
    assert all(len({each.text for each in task.asked}) == 5 for task in tasks)
    places = [each for task in tasks for each in task.asked]
    assert {each.kind for each in places} == {"fact", "update", "unanswerable"}
    for task in tasks:
        for each in task.asked:
            assert (each.line is None) == (each.kind == "unanswerable")
            assert each.line is None or each.evidence in task.lines[each.line].text
    again = tasks_of(talks, each=2, seed=1)
    assert tasks == list(again)
    pairs = list(zip(tasks[::2], tasks[1::2], strict=True))
    assert sum(one.asked == other.asked for one, other in pairs) == 0


def test_an_answer_counts_by_its_first_words_and_what_was_never_said_must_be_admitted() -> None:
    asked = whole_task().asked[0].model_copy(update={"answer": "two pounds", "line": 0})
    never = asked.model_copy(update={"line": None})
    words = " ".join(["well"] * 14)
    for answer, right in (
        ("It was Two Pounds.", True),
        (f"{words} two pounds", False),
        ("I can't find that. Nothing that I found says so.", False),
        ("", False),
    ):
        assert outcome(asked, answer).right is right, answer
    assert outcome(never, "I can't find that. You'd have to tell me.").right
    assert not outcome(never, "It was two pounds.").right
    for text in ("We haven't talked about it.", "You never told me that.", "I don't know."):
        assert admits_not_knowing(text), text
    assert not admits_not_knowing("Two pounds, I said.")
    found = [outcome(asked, "two pounds"), outcome(asked, "three")]
    assert reward(found) == 0.5


async def test_a_task_has_two_evictions_and_who_saves_before_them_answers_everything(
    database: OneDatabase,
) -> None:
    task = whole_task()
    async with stage(database, saves) as on:
        saved = await forking.play(on, task, 0, name="saver")
    assert faults(task, saved) == []
    assert saved.episode.reward == 1
    prompts = [str(message) for prompt, _ in saved.episode.steps for message in prompt]
    assert "You are Sam" in prompts[0]
    assert not any(HIDDEN in text for text in prompts)
    assert {step.alert for _, step in saved.episode.steps} == {True, False}


async def test_calls_are_executed_on_copies_and_saving_pays_while_the_original_goes_on_as_without_them(
    database: OneDatabase,
) -> None:
    task = short_task()
    draws = CallDraws(count=3, share=0.35, execute=True, continuations=1, seed=2)
    async with stage(database, lambda one: OfTwoMinds(one, FourBytes())) as on:
        alone = await forking.play(on, task, 0, name="alone")
        forked = await forking.play(on, task, 0, name="forked", draws=draws)
        lost = await forking.play(replace(on, policy=forgets), task, 0, name="forgetful")
        async with on.services.database.tenant("memory-episodes") as tx:
            left = await (await tx.execute("SELECT count(*) AS n FROM agents")).fetchone()
    assert forked.episode == alone.episode
    assert alone.episode.reward > lost.episode.reward
    assert left == {"n": 0}
    assert {HIDDEN in state.hidden for state in forked.states} == {True}
    assert not any(HIDDEN in str(state.messages) for state in forked.states)
    told = [state for state in forked.states if len(set(state.candidates)) > 1]
    assert told, "at an alert, one saves and the other doesn't"
    assert all(state.rewards[0] > max(state.rewards[1:]) for state in told)
    for state in forked.states:
        assert len(state.rewards) == len(state.candidates) == 3
        by_text = set(zip(state.candidates, state.rewards, strict=True))
        assert len(by_text) == len(set(state.candidates))
        assert state.rewards[0] == (forked.episode.reward,)
        assert (tuple(state.messages), state.candidates[0]) in [
            (prompt, step.action) for prompt, step in forked.episode.steps
        ]


def contents(saved: bytes) -> list[object]:
    file = ArchiveReader(BytesIO(saved), 10_000_000)
    return [file.agent, *(list(file.records(name)) for name in ("messages", "turns", "edits"))]


async def test_a_copy_has_the_same_prompt_and_is_an_agent_of_its_own(database: OneDatabase) -> None:
    task = short_task()
    async with stage(database, saves) as on:
        played = await Play.begin(on, task, "original")
        for place in range(8):
            await played.do(place)
        before = await export_copy(on, played.agent)
        other = Player(saves(task))
        on.players.add("copy", other)
        copy = Play(on, task, "copy", other, await import_copy(on, before, "copy"))
        await on.settle()
        for place in range(8, len(task.lines)):
            await copy.do(place)
        after = await export_copy(on, played.agent)
        elsewhere = State(other.steps[0][0][:1], (Reply(remembering.say("Hm."), TokenUsage()),))
        with pytest.raises(AssertionError, match="another prompt"):
            await forking.executed(played, before, 8, [elsewhere], CallDraws(continuations=1))
        for place in range(8, len(task.lines)):
            await played.do(place)
    assert contents(after) == contents(before)
    assert other.steps == played.player.steps[-len(other.steps) :]


async def test_an_endpoint_that_is_down_ends_a_run_and_is_no_wrong_answer(
    database: OneDatabase,
) -> None:
    class Down(Scripted):
        @override
        async def call_tool(self, *given: object, **more: object) -> Reply:
            raise ModelUnavailable("Nobody is there.")

    async with stage(database, lambda task: Down(task, FourBytes())) as on:
        with pytest.raises(ModelUnavailable, match="Nobody is there"):
            await forking.play(on, short_task(), 0, name="down")
