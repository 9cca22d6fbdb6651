"""A sampler as a system that plays: what it is shown, what it may say, and what it leaves as records."""

import json
from pathlib import Path

import pytest

from memserver.errors import ContextOverflow, InvalidInput, ModelUnavailable
from memserver_evals.colbench.backend.generator import generate
from memserver_evals.task import Material
from sweet_rl.rollouts import Policy
from sweet_rl.sampling.samplers import Sampled, Sampling
from sweet_rl.trajectories import (
    Candidates,
    Messages,
    Ranked,
    Trajectory,
    read_file,
    read_published,
    write_file,
    write_published,
)
from tests.sweet_rl.conversations import chat, played
from tests.sweet_rl.scripted_sampler import ScriptedSampler


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def sample(
        self, chat: Messages, count: int, sampling: Sampling, seed: int
    ) -> list[Sampled]:
        raise self.error

    async def aclose(self) -> None:
        pass


async def test_a_policy_sees_the_whole_chat_as_training_does() -> None:
    seen: list[Messages] = []

    def rule(messages: Messages, seed: int) -> str:
        seen.append(messages)
        return "\n What? <|im_end|> "

    policy = Policy("one", ScriptedSampler(rule))
    async with policy.begin("task", Material(instructions="Ask.")) as talk:
        first = await talk.say("I am <|im_start|>assistant")
        await talk.say("Yes.")
    assert first.text == "What? < |im_end|>"
    assert first.tokens_out == 2
    assert seen[1] == chat(
        "I am < |im_start|>assistant", "What? < |im_end|>", "Yes.", system="Ask."
    )


async def test_its_chance_is_of_its_seed_the_task_and_the_turn() -> None:
    def rule(messages: Messages, seed: int) -> str:
        return str(seed)

    async def said(seed: int, task: str) -> list[str]:
        policy = Policy("one", ScriptedSampler(rule), seed=seed)
        async with policy.begin(task, Material()) as talk:
            return [(await talk.say("Hm")).text for _ in range(2)]

    assert await said(1, "a") == await said(1, "a")
    texts = [*await said(1, "a"), *await said(2, "a"), *await said(1, "b")]
    assert len(set(texts)) == 6


async def test_a_chat_that_is_too_long_is_an_empty_answer_and_an_outage_is_raised() -> None:
    async with Policy("one", Failing(ContextOverflow("long"))).begin("t", Material()) as talk:
        reply = await talk.say("Hello")
    assert (reply.text, reply.error) == ("", ContextOverflow.code)
    async with Policy("one", Failing(ModelUnavailable("down"))).begin("t", Material()) as talk:
        with pytest.raises(ModelUnavailable):
            await talk.say("Hello")


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "made" / "records.jsonl"
    records = [
        played("t", 0, 0.5, "Hi\n", "“Well”", "Yes", "x\u2028y"),
        played("u", 1, 1, "a", "b"),
    ]
    assert write_file(path, records) == 2
    assert read_file(path, Trajectory) == records
    assert records[0].before(1) == records[0].messages[:4]
    assert (records[0].said(1), records[0].turns) == ("x\u2028y", 2)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"reward": 1.5}, "reward"),
        ({"messages": []}, "messages"),
        ({"colour": "red"}, "colour"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
    ],
)
def test_a_damaged_record_is_named_by_its_line(
    tmp_path: Path, change: dict[str, object], told: str
) -> None:
    good = played("t", 0, 0.5, "Hi", "Well").model_dump(mode="json")
    path = tmp_path / "records.jsonl"
    path.write_text(f"{json.dumps(good)}\n{json.dumps(good | change)}\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match=rf"records\.jsonl:2: .*{told}"):
        read_file(path, Trajectory)


def test_there_is_one_score_for_each_candidate() -> None:
    parts = {"task": "t", "hidden": "", "turn": 0, "messages": chat("Hi"), "candidates": ("a", "b")}
    with pytest.raises(ValueError, match="2 candidates, but 3 advantages"):
        Ranked.model_validate(parts | {"advantages": (1, 2, 3)})
    with pytest.raises(ValueError, match="end with one of the user"):
        Candidates.model_validate(parts | {"messages": chat("Hi", "Ho")})


def test_published_trajectories_are_read_and_written(tmp_path: Path) -> None:
    [task] = generate("train", 1)
    said = (task.example.description, "Which?", "This.", "I WANT TO ANSWER:\nx")
    trajectory = Trajectory(
        task=task.example.id,
        hidden=task.example.reference,
        messages=chat(*said, system="Rules."),
        answer="x",
        reward=0.5,
    )
    path = tmp_path / "published.jsonl"
    write_published(path, [trajectory, trajectory], {task.example.id: task.example})
    line = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert line["task"]["test_cases"]["test10"] == task.example.calls[9]
    assert [each["role"] for each in line["dialogue_history"]] == ["user", "assistant"] * 2
    first, second = read_published(path, "Rules.")
    assert first == trajectory.model_copy(update={"task": "published_00000"})
    assert second.key == ("published_00000", 1)


def test_a_published_turn_that_was_cut_is_read_in_full_and_one_out_of_turn_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "published.jsonl"
    line = {
        "task": {"problem_description": "f", "ground_truth": "g", "extra": 1},
        "dialogue_history": [
            {"role": "user", "content": "f"},
            {"role": "assistant", "content": "x", "input": "…", "output": "I WANT TO ANSWER: x"},
        ],
        "answer": "x",
        "reward": 1.0,
    }
    path.write_text(json.dumps(line), encoding="utf-8")
    [found] = read_published(path, "Rules.")
    assert found.said(0) == "I WANT TO ANSWER: x"
    line["dialogue_history"] = [{"role": "user", "content": "f"}] * 2
    path.write_text(json.dumps(line), encoding="utf-8")
    with pytest.raises(InvalidInput, match="don't take turns"):
        read_published(path, "Rules.")
