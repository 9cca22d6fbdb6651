"""The gate, and a whole run of ColBench-long, with a tiny model that is really trained; the policies' words are scripted."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from transformers import LlamaConfig

from memserver.errors import InvalidInput, SetupError
from memserver_evals.colbench.backend.long_tasks import DESIGNS, Design, generate_long
from memserver_evals.colbench.backend.rules import MARKER
from sweet_rl.progress import Progress
from sweet_rl.recipe import load_recipe
from sweet_rl.resumable import Deadline, OutOfTime
from sweet_rl.runs import gate
from sweet_rl.runs.context import RunContext
from sweet_rl.runs.gate import run_gate
from sweet_rl.runs.run import OnDone, Selection, run_units
from sweet_rl.runs.units import units_of
from sweet_rl.task_sets import Environment
from sweet_rl.tiny import TEMPLATE, write_tiny
from sweet_rl.trajectories import Messages
from tests.sweet_rl.scripted_sampler import Rule, ScriptedSource
from tests.sweet_rl.templates import CHATML

RECIPE = """
name: dry
base: tiny
seeds: [1]
tasks: {design: narrow, train: 4, validation: 3, test: 1, unseen: 1, spare_turns: 1}
sampling: {max_tokens: 300}
warm_start: {tasks: 2, samples: 1, early: 0, idle: 0, wrong: 0.3, miscopy: 0.4, steps: 1, batch: 1, warmup: 0}
collect: {samples: 4, by: scripted}
mdpo: {steps: 1, batch: 1}
critic: {steps: 1, batch: 1, held_out: 0, every_success: true, warmup: 0}
candidates: {share: 0.05, count: 4}
actor: {steps: 1, batch: 1, pairs: 1}
evaluate: {greedy: false}
gate: {plays: 3, states_of: 2}
variants:
  hidden-2: {critic: {most: 2}}
  blind-2: {critic: {most: 2, hidden: false}, rank: {reference_hidden: false}}
"""
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def words() -> Rule:
    """Asks for what is there, for what isn't or for nothing, or answers early: by the seed."""
    tasks = {
        task.example.description: task
        for split in ("train", "validation", "test", "unseen")
        for task in generate_long(split, 4, "narrow")  # type: ignore[arg-type]
    }

    def say(messages: Messages, seed: int) -> str:
        task = tasks[messages[1]["content"]]
        asked = [each["content"] for each in messages if each["role"] == "assistant"]
        missing = task.missing(task.known_after(asked))
        answers = not missing or len(asked) + 1 == task.example.max_turns or seed % 9 == 0
        if answers:
            return f"{MARKER}\n{task.family.code(task.noun, task.slots)}"
        if seed % 5 == 0:
            return "Shall I begin?"
        return f"What is the {missing[seed % len(missing)].name}?"

    return say


@dataclass(frozen=True)
class Bench:
    context: RunContext
    done: list[str]

    def work(self, wanted: Selection, then: OnDone | None = None) -> None:
        units = units_of(self.context.recipe)
        done = run_units(units, wanted, self.context, then or _unseen)
        self.done.extend(unit.path for unit in done)


def _unseen(*_: object) -> None: ...


@contextmanager
def no_progress(title: str) -> Iterator[Progress]:
    yield lambda done, total: None


@pytest.fixture(scope="module")
def bench(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Two modules of two or three slots each, so that a tiny model of single bytes is quick."""
    folder = tmp_path_factory.mktemp("long")
    LlamaConfig(num_key_value_heads=8).save_pretrained(folder / "architecture")
    (folder / "architecture" / TEMPLATE).write_text(CHATML, encoding="utf-8")
    (folder / "dry.yaml").write_text(RECIPE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(
            DESIGNS,
            "narrow",
            Design((2, 2), clues=0.5, evasion=0.5, distractors=0.3),  # type: ignore[arg-type]
        )
        context = RunContext(
            load_recipe(folder / "dry.yaml"),
            folder / "run",
            write_tiny(folder / "architecture", folder / "base"),
            ScriptedSource(words()),  # type: ignore[arg-type]
            Environment(),
            Deadline(),
            no_progress,
        )
        yield Bench(context, [])


def test_the_gate_compares_critics_resumes_and_says_what_is_missing(bench: Bench) -> None:
    folder, seen = bench.context.out / "gate", list[str]()

    def first(wanted: Selection, then: OnDone) -> None:
        data = {"shared/warm-start", "shared/collect", "seed-1/gate-states"}
        bench.work(Selection(only=tuple(data & set(wanted.only))), then)
        seen.append((folder / "gate.md").read_text(encoding="utf-8"))
        raise OutOfTime("Over.", hint="Again.")

    with pytest.raises(OutOfTime):
        run_gate(bench.context, first)
    assert "Not done yet: 2 pairs." in seen[0]
    assert bench.done == ["shared/warm-start", "shared/collect", "seed-1/gate-states"]

    bench.done.clear()
    path = run_gate(bench.context, bench.work)
    assert bench.done == [
        *("seed-1/critic.hidden-2", "seed-1/gate-scores.hidden-2"),
        *("seed-1/critic.blind-2", "seed-1/gate-scores.blind-2"),
    ]
    [size] = json.loads((folder / "gate.json").read_text(encoding="utf-8"))["sizes"]
    assert size["pairs"] == 2
    assert 0 < size["with_hidden"]["mean"] < 1
    added = size["with_hidden"]["mean"] - size["without"]["mean"]
    assert size["added"]["estimate"]["mean"] == pytest.approx(added)
    assert size["with_hidden"]["count"] > size["added_to_questions"]["estimate"]["count"] > 10
    text = path.read_text(encoding="utf-8")
    assert "| 2 | 1 |" in text
    assert "fit" in text
    assert "Not done" not in text
    assert (folder / "gate.png").stat().st_size > 5_000


def test_the_table_of_a_run_is_written_again_without_its_critics_and_without_matplotlib(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**_: object) -> object:
        raise SetupError("Pictures need matplotlib.", hint="Install it.")

    folder = bench.context.out / "gate"
    for adapter in bench.context.out.glob("*/critic*/adapter"):
        shutil.rmtree(adapter)
    (folder / "gate.png").unlink()
    (folder / "gate.md").unlink()
    monkeypatch.setattr(gate, "make_figure", missing)
    assert run_gate(bench.context, bench.work).exists()
    assert not (folder / "gate.png").exists()


def test_a_whole_run_ends_with_tables_of_test_a_and_of_unseen_modules(bench: Bench) -> None:
    bench.done.clear()
    bench.work(Selection(parts=("mdpo", "sweet")))
    stages = [path.partition("/")[2] for path in bench.done]
    assert [stage for stage in stages if "mdpo" in stage] == [
        *("mdpo", "validate.mdpo", "evaluate.mdpo", "evaluate-unseen.mdpo")
    ]
    assert {"critic", "rank", "actor", "evaluate-unseen.sweet"} <= set(stages)
    rank = json.loads((bench.context.out / "seed-1" / "rank" / "done.json").read_text("utf-8"))
    assert 0 <= rank["figures"]["agreement"] <= 1


def test_a_recipe_without_pairs_of_critics_is_refused(bench: Bench) -> None:
    recipe = bench.context.recipe
    one = {"hidden-2": recipe.variants["hidden-2"]}
    context = replace(bench.context, recipe=recipe.model_copy(update={"variants": one}))
    with pytest.raises(InvalidInput, match="no critics to compare"):
        run_gate(context, _unseen)
