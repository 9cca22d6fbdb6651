"""ColBench's collaborations through `memserver eval`: over HTTP with a memory, and with the model alone."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from memserver.errors import InvalidInput
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Step
from memserver.testing.scripted_rules import say
from memserver_evals.colbench.backend.families import FAMILIES, SlotValue
from memserver_evals.colbench.backend.rules import MARKER
from memserver_evals.colbench.frontend.browser import find_chromium
from memserver_evals.colbench.frontend.layouts import Layout
from memserver_evals.tasks.colbench import BACKEND
from memserver_evals.tasks.registry import TaskOptions
from sweet_rl.recipe import Recipe
from sweet_rl.rollouts import Policy
from sweet_rl.sampling.samplers import Sampled, Sampling
from sweet_rl.task_sets import make_tasks
from sweet_rl.trajectories import ChatMessage, Messages
from tests.memserver_evals.memories import memory
from tests.memserver_evals.support import endpoints, evaluate, lines, means
from tests.support.server import OneDatabase

_SIGNATURE = re.compile(r"def ([a-z]+)_([a-z]+)\(")


def collaborator(prompt: Sequence[PromptMessage]) -> str:
    """Asks for each slot of the family that the signature names, and then writes the function."""
    heard = [message.text for message in prompt if message.role == "user"]
    start = next(place for place, text in enumerate(heard) if _SIGNATURE.search(text))
    found = _SIGNATURE.search(heard[start])
    assert found is not None
    family = next(family for family in FAMILIES if family.name == found[1])
    reported = heard[start + 1 :]
    if len(reported) < len(family.slots):
        return f"What is the {family.slots[len(reported)].name}?"
    values: dict[str, SlotValue] = {}
    for slot, text in zip(family.slots, reported, strict=False):
        number = re.search(r"(?<![\d:-])\d+(?=\.| as )", text)
        named = [choice for choice in slot.choices if re.search(rf"\b{choice}\b", text)]
        values[slot.name] = int(number[0]) if number else named[0]
    return f"{MARKER}\n{family.code(found[2], values)}"


def by_call(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
    return say(collaborator(prompt))


def test_a_collaboration_runs_with_a_memory_over_http_and_with_the_model_alone(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with endpoints(by_call, monkeypatch, tmp_path, summary=collaborator):
        done = evaluate(
            *("colbench-backend", "--system", "memserver", "--system", "full"),
            *("--set", "each=4", "--out", str(out)),
            database=database,
        )
    assert done.error is None, done.output
    assert means(out, "success") == {"memserver": 1.0, "full": 1.0}
    for row in lines(out / "played.jsonl"):
        assert len(row["played"]["turns"]) > 3
        assert all(row["played"]["outcome"]["passed"])


async def test_colbench_long_is_played_by_the_same_command_and_has_the_same_tasks_as_training() -> (
    None
):
    recipe = Recipe(
        name="r", base="b", tasks={"test": 2, "unseen": 2, "spare_turns": 1, "design": "narrow"}
    )
    for split, more in (("test", {}), ("unseen", {"unseen": "yes"})):
        options = {"each": "2", "design": "narrow", **more}
        async with BACKEND.make(TaskOptions(None, 0, options)) as task:
            assert tuple(task.examples()) == make_tasks(recipe, split).examples
            assert task.group_keys == ("kind",)
    with pytest.raises(InvalidInput, match="narrow or middle or vague"):
        BACKEND.make(TaskOptions(None, 0, {"design": "wide"}))


async def test_a_policy_sees_as_an_agent_what_it_sees_in_training_and_its_turns_are_recalled(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = TaskOptions(None, 0, {"each": "1", "split": "test", "spare_turns": "2"})
    recipe = Recipe(name="r", base="b", tasks={"test": 1, "spare_turns": 2})
    async with BACKEND.make(options) as task:
        [example] = task.examples()
        assert make_tasks(recipe, "test").examples == (example,)
        setup = {"options": {"reply_mode": "chat"}, "model": "policy-1", "keep": True}
        served = {"summary": lambda prompt: f"\n{collaborator(prompt)} ", "model": "policy-1"}
        async with memory(
            by_call, database, monkeypatch, tmp_path, served=served, **setup
        ) as system:
            played = await task.play(example, system)
            [agent] = (await system.client.agents.list()).items
            history = [each async for each in system.client.messages.all(agent.id, order="asc")]
            marked = await system.client.recall.search(agent.id, query=MARKER)
        drawn = _Replies([turn.reply.text for turn in played.turns])
        trained_as = await task.play(example, Policy("trained", drawn))
    seen = [list(exchange.prompt) for turn in played.turns for exchange in turn.reply.exchanges]
    assert len(seen) > 3
    assert seen == drawn.chats
    assert seen[2][0]["content"] == task.instructions(example)
    assert [message["role"] for message in seen[2]] == [
        "system",
        *["user", "assistant"] * 2,
        "user",
    ]
    assert task.reward(example, played) == task.reward(example, trained_as) == 1
    assert str(agent.model).endswith(":policy-1"), "after the key of its recorded prompts"
    said = [text for turn in played.turns for text in (turn.said, turn.reply.text)]
    assert [each.text for each in history] == said
    assert [item.text for item in marked.items] == said[-1:]


@dataclass
class _Replies:
    """A sampler of given texts, which keeps the chats that it was shown."""

    texts: list[str]
    chats: list[list[ChatMessage]] = field(default_factory=list)

    async def sample(
        self, chat: Messages, count: int, sampling: Sampling, seed: int
    ) -> list[Sampled]:
        self.chats.append(list(chat))
        return [Sampled(self.texts[len(self.chats) - 1], 1, 1)]

    async def aclose(self) -> None:
        return None


def test_generated_tasks_are_played_in_plain_chat_from_the_command_line(
    tmp_path: Path, database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with endpoints(by_call, monkeypatch, tmp_path, summary=collaborator):
        done = evaluate(
            *("colbench-backend", "--system", "memserver", "--reply-mode", "chat"),
            *("--model", "scripted", "--set", "each=2", "--set", "spare_turns=1"),
            *("--out", str(out)),
            database=database,
        )
    assert done.error is None, done.output
    assert means(out, "success") == {"memserver": 1.0}
    reported = json.loads((out / "manifest.json").read_text("utf-8"))["options"]
    assert (reported["agent"], reported["agent_model"]) == ({"reply_mode": "chat"}, "scripted")


def test_single_turn_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    with endpoints(by_call, monkeypatch, tmp_path, summary=collaborator):
        done = evaluate(
            *("colbench-backend", "--system", "full", "--set", "each=3", "--set", "single=yes"),
            *("--out", str(out)),
        )
    assert done.error is None, done.output
    assert means(out, "turns") == {"full": 1.0}
    assert means(out, "success") == {"full": 0.0}


@pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium")
def test_pages_are_compared_by_a_measure_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with endpoints(by_call, monkeypatch, tmp_path, summary=lambda _: Layout().page_text()):
        done = evaluate(
            *("colbench-frontend", "--system", "full", "--set", "each=2", "--set", "turns=2"),
            *("--out", str(out)),
        )
    assert done.error is None, done.output
    assert means(out, "rendered") == {"full": 1.0}
    assert "not CLIP" in (out / "report.html").read_text("utf-8")


def test_a_published_file_needs_somebody_who_plays_the_human(tmp_path: Path) -> None:
    record = {"problem_description": "d", "ground_truth": "x = 1", "test_cases": {"test1": "x"}}
    (tmp_path / "colbench_backend.jsonl").write_text(f"{json.dumps(record)}\n", "utf-8")
    data = ("--data", str(tmp_path))
    for asked, reported in (
        (data, "plays the human"),
        (("--set", "human_url=http://x.test/v1"), "together"),
        (("--set", "single=perhaps"), "yes or no"),
        (("--set", "each=none"), "number"),
        (("--set", "spare_turns=0"), "number"),
        (("--set", "split=all"), "train"),
        (("--set", "source=file"), "no data folder"),
        (("--set", "level=1"), "no option"),
    ):
        done = evaluate("colbench-backend", *asked, "--out", str(tmp_path / "run"))
        assert isinstance(done.error, InvalidInput), (asked, done)
        assert reported in f"{done.error.message} {done.error.hint}"


def test_both_are_listed_with_what_they_need() -> None:
    for task, needed in (("colbench-backend", "human_url"), ("colbench-frontend", "Chromium")):
        assert task in evaluate("list").output
        assert needed in evaluate("show", task).output
