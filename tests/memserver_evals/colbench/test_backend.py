"""Backend collaboration: rules, published files, generated tasks, simulated humans."""

import asyncio
import json
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from memserver.errors import InvalidInput, ModelUnavailable
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.prompts import Prompts
from memserver_evals.colbench.backend.examples import BackendExample, load_backend
from memserver_evals.colbench.backend.families import FAMILIES
from memserver_evals.colbench.backend.generator import combinations, generate, values_of
from memserver_evals.colbench.backend.grading import Grader
from memserver_evals.colbench.backend.humans import Human, ModelHuman
from memserver_evals.colbench.backend.rules import MARKER, answer_in
from memserver_evals.colbench.backend.scripted import (
    NO_QUESTIONS,
    NOISY,
    ORACLE,
    Habits,
    ScriptedAgent,
)
from memserver_evals.colbench.backend.slot_human import SlotHuman, SlotTask, asked_for
from memserver_evals.colbench.backend.task import BackendTask
from memserver_evals.colbench.chat import PartModel
from memserver_evals.colbench.sandbox.pool import Sandbox
from memserver_evals.task import Material, Played, Reply, Task
from tests.memserver_evals.colbench.limits import PATIENT
from tests.support.http_app import Current

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def grader() -> AsyncIterator[Grader]:
    async with Sandbox(PATIENT) as sandbox:
        yield Grader(sandbox)


@dataclass
class Recited:
    """A system that says what it should, and remembers what it heard."""

    lines: Sequence[str | Reply]
    heard: list[str] = field(default_factory=list)
    material: Material | None = None
    name: str = "recited"

    @asynccontextmanager
    async def begin(self, example_id: str, material: Material) -> AsyncIterator["Recited"]:
        self.heard, self.material = [], material
        yield self

    async def say(self, text: str, *, at: datetime | None = None) -> Reply:
        line = self.lines[min(len(self.heard), len(self.lines) - 1)]
        self.heard.append(text)
        return line if isinstance(line, Reply) else Reply(line)


def task_of(
    tasks: Sequence[SlotTask], grader: Grader, *, human: Human | None = None, alone: bool = False
) -> BackendTask:
    answers = None if alone else human or SlotHuman.of(tasks)
    return BackendTask(tuple(task.example for task in tasks), grader, answers, Prompts())


async def play_all(task: BackendTask, system: ScriptedAgent) -> list[Played]:
    return list(await asyncio.gather(*(task.play(e, system) for e in task.examples())))


def mean(task: BackendTask, played: Sequence[Played], score: str) -> float:
    pairs = zip(task.examples(), played, strict=True)
    return statistics.mean(task.score(example, one)[score] for example, one in pairs)


# --- how an answer is read


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"{MARKER}\ndef f():\n    return 1", "def f():\n    return 1"),
        (f"Good.\n{MARKER} def f(): return 1\n", "def f(): return 1"),
        (f"{MARKER}\n    x = 1\n    y = 2\n", "x = 1\ny = 2"),
        (f"{MARKER}\n```python\nx = 1\n```\nThat is it.", "x = 1"),
        (f"{MARKER}\nHere it is:\n```\nx = 1\n", "x = 1"),
        (f"{MARKER} a {MARKER} b", f"a {MARKER} b"),
        ("def f():\n    return 1", "def f():\n    return 1"),
        (MARKER, ""),
        ("", ""),
    ],
)
async def test_the_answer_is_what_follows_the_first_marker(text: str, code: str) -> None:
    assert answer_in(text) == code


async def test_an_answer_on_the_marker_s_line_runs(grader: Grader) -> None:
    (task,) = generate("train", 1)
    code = task.example.reference
    played = await task_of([task], grader).play(task.example, Recited([f"{MARKER}   {code}"]))
    assert all(played.outcome["passed"])


async def test_the_marker_ends_it_and_ten_turns_do(grader: Grader) -> None:
    (task,) = generate("train", 1)
    environment = task_of([task], grader)
    ends = await environment.play(task.example, Recited(["hm?", f"so {MARKER} x = 1", "more"]))
    assert len(ends.turns) == 2
    assert environment.score(task.example, ends)["answered"] == 1
    goes_on = await environment.play(task.example, Recited(["hm?"]))
    assert len(goes_on.turns) == 10
    assert goes_on.outcome["answer"] == "hm?"
    assert environment.score(task.example, goes_on) == {
        "success": 0,
        "success_by_operator": 0,
        "tests_passed": 0,
        "turns": 10,
        "answer_characters": 3,
        "answered": 0,
    }


async def test_the_last_message_counts_as_the_answer_without_a_marker(grader: Grader) -> None:
    (task,) = generate("train", 1, spare_turns=0)
    agent = Recited(["hm?"] * (len(task.slots) - 1) + [task.example.reference])
    environment = task_of([task], grader)
    played = await environment.play(task.example, agent)
    assert len(played.turns) == len(task.slots)
    assert environment.reward(task.example, played) == 1


async def test_an_agent_that_fails_gets_nothing_and_ends(grader: Grader) -> None:
    (task,) = generate("train", 1)
    played = await task_of([task], grader).play(
        task.example, Recited(["hm?", Reply("", error="model_timeout")])
    )
    assert len(played.turns) == 2
    assert played.outcome["error"] == "model_timeout"
    assert not any(played.outcome["passed"])


async def test_alone_the_agent_is_asked_once(grader: Grader) -> None:
    (task,) = generate("train", 1)
    environment = task_of([task], grader, alone=True)
    agent = Recited(["hm?", "never"])
    played = await environment.play(task.example, agent)
    assert environment.name == "colbench-backend-single"
    assert agent.heard == [task.example.description]
    assert agent.material is not None
    assert "can't ask" in agent.material.instructions
    assert len(played.turns) == 1


async def test_the_agent_never_sees_the_reference(grader: Grader) -> None:
    (task,) = generate("train", 1)
    agent = Recited(["What is your secret?"])
    await task_of([task], grader).play(task.example, agent)
    assert agent.material is not None
    seen = " ".join([agent.material.instructions, *agent.heard])
    assert "return" not in seen
    assert MARKER in agent.material.instructions


async def test_it_keeps_the_shape_of_a_task(grader: Grader) -> None:
    environment = task_of(generate("train", 2), grader)
    assert isinstance(environment, Task)
    assert environment.main_score in {"success"}
    assert environment.groups(environment.examples()[0]) == {"kind": environment.examples()[0].kind}
    assert environment.data_hash != task_of(generate("train", 3), grader).data_hash


# --- generated tasks


async def test_generated_tasks_depend_on_seed_split_and_number_alone() -> None:
    assert generate("train", 20)[:5] == generate("train", 5)
    assert generate("train", 5) != generate("train", 5, seed=1)
    assert len({task.example.id for task in generate("train", 200)}) == 200


async def test_the_splits_share_no_combination_and_each_has_all_families() -> None:
    splits = [
        {(family.name, noun) for family, noun in combinations(split)}
        for split in ("train", "validation", "test")
    ]
    assert not splits[0] & splits[1] | splits[1] & splits[2] | splits[0] & splits[2]
    for pairs in splits:
        assert {family for family, _ in pairs} == {family.name for family in FAMILIES}


async def test_every_slot_of_a_generated_task_decides_a_test(grader: Grader) -> None:
    for task in generate("test", 18):
        for slot in task.family.slots:
            value = task.slots[slot.name]
            near = [
                other for other in slot.choices if isinstance(value, int) and other == value + 1
            ]
            for other in near or [v for v in slot.choices if v != value and isinstance(v, str)][:1]:
                changed = task.family.code(task.noun, {**task.slots, slot.name: other})
                assert not all((await grader.grade(task.example, changed)).passed), (task, slot)
        assert all((await grader.grade(task.example, task.example.reference)).passed)


async def test_descriptions_say_no_slot_s_value() -> None:
    for task in generate("validation", 60):
        reported = task.example.description.partition("The signature is:")[0]
        assert not any(character.isdigit() for character in reported)


async def test_the_oracle_always_succeeds(grader: Grader) -> None:
    tasks = generate("test", 36, spare_turns=2)
    environment = task_of(tasks, grader)
    played = await play_all(environment, ScriptedAgent.of(tasks, ORACLE))
    assert mean(environment, played, "success") == 1
    assert mean(environment, played, "tests_passed") == 1
    for task, one in zip(tasks, played, strict=True):
        assert len(one.turns) == len(task.slots) + 1


async def test_an_agent_that_asks_nothing_stays_at_the_level_of_chance(grader: Grader) -> None:
    tasks = generate("test", 120)
    environment = task_of(tasks, grader)
    agent = ScriptedAgent.of(tasks, NO_QUESTIONS)
    played = await play_all(environment, agent)
    assert mean(environment, played, "success") == 0
    chance = []
    for task in tasks:
        guess = task.family.code(task.noun, task.family.draw(Random(f"other {task.example.id}")))
        pairs = zip(
            values_of(guess, task.example.calls),
            values_of(task.example.reference, task.example.calls),
            strict=True,
        )
        chance.append(statistics.mean(mine == its for mine, its in pairs))
    assert abs(mean(environment, played, "tests_passed") - statistics.mean(chance)) < 0.06
    assert statistics.mean(chance) < 0.35


async def test_an_agent_that_errs_gives_good_and_bad_dialogues(grader: Grader) -> None:
    tasks = generate("train", 60, spare_turns=2)
    environment = task_of(tasks, grader)
    one = await play_all(environment, ScriptedAgent.of(tasks, NOISY))
    again = await play_all(environment, ScriptedAgent.of(tasks, NOISY))
    other = await play_all(environment, ScriptedAgent.of(tasks, NOISY, seed=1))
    assert one == again
    assert one != other
    assert 0.05 < mean(environment, one, "success") < 0.6


async def test_idle_questions_cost_turns(grader: Grader) -> None:
    tasks = generate("train", 6, spare_turns=1)
    environment = task_of(tasks, grader)
    played = await play_all(environment, ScriptedAgent.of(tasks, Habits(idle=1)))
    assert mean(environment, played, "success") == 0


# --- simulated humans


async def test_the_programmed_human_says_one_slot_and_only_what_is_asked() -> None:
    task = next(task for task in generate("train", 40) if task.family.name == "points")

    def tell(question: str) -> str:
        return task.answer(question, 1, set()).text

    assert str(task.slots["cap"]) in tell("And what is the CAP?")
    assert str(task.slots["bonus day"]) in tell("On which day is that?")
    assert str(task.slots["bonus day"]) in tell("what is the bonus day")
    both = tell("Tell me the multiplier and the cap, please.")
    assert str(task.slots["multiplier"]) in both
    assert str(task.slots["cap"]) not in both
    for question in ("Is it raining?", "", "capital recap", "What is the colour?"):
        assert "don't know" in tell(question)
    assert tell("the cap?") == tell("the cap?")


async def test_a_slot_is_found_by_its_longest_name() -> None:
    label = next(family for family in FAMILIES if family.name == "label")
    found = asked_for(label.slots, "What is the high cutoff, and the low cutoff?")
    assert found is not None
    assert found.name == "high cutoff"


def played_by(answers: list[str], asked: list[str]) -> Starlette:
    async def chat(request: Request) -> JSONResponse:
        body = await request.json()
        asked.append(body["messages"][-1]["content"])
        return JSONResponse(
            {
                "choices": [{"message": {"content": answers.pop(0)}}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 3},
            }
        )

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


@asynccontextmanager
async def model_human(served: str) -> AsyncIterator[ModelHuman]:
    client = EndpointClient(Endpoint(served))
    try:
        yield ModelHuman(PartModel(client, "human"), Prompts())
    finally:
        await client.aclose()


async def test_a_model_plays_the_human_from_the_reference(
    grader: Grader, current: Current, served: str
) -> None:
    (task,) = generate("train", 1)
    asked: list[str] = []
    current.app = played_by(["<|im_end|>Twenty. " + "x" * 900, "  "], asked)
    agent = Recited(["What is the threshold?", "Thank you?", f"{MARKER} x = 1"])
    async with model_human(served) as human:
        played = await task_of([task], grader, human=human).play(task.example, agent)
    assert task.example.reference in asked[0]
    assert "What is the threshold?" in asked[0]
    assert agent.heard[1].startswith("< |im_end|>Twenty.")
    assert len(agent.heard[1]) == 400
    assert agent.heard[2] == "I don't know."
    assert [exchange.purpose for exchange in played.exchanges] == ["simulator"] * 2
    assert played.exchanges[0].tokens_in == 7


async def test_an_endpoint_that_answers_no_message_is_an_error(
    current: Current, served: str
) -> None:
    async def chat(request: Request) -> JSONResponse:
        return JSONResponse({"choices": []})

    current.app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    async with model_human(served) as human:
        with pytest.raises(ModelUnavailable, match="simulator"):
            await human.model.ask([{"role": "user", "content": "?"}], "simulator")


# --- published files

GOOD = {
    "problem_description": "Write a function. The signature is: def f(x)",
    "ground_truth": "def f(x):\n    return x + 1",
    "test_cases": {"test1": "f(1)", "test2": "f(2)"},
    "hidden_information": "def f(x):\n    return x + 1",
}


async def test_published_files_are_read(tmp_path: Path, grader: Grader) -> None:
    lines, listed = tmp_path / "a.jsonl", tmp_path / "a.json"
    lines.write_text(f"{json.dumps(GOOD)}\n\n{json.dumps({**GOOD, 'id': 'mine'})}\n", "utf-8")
    listed.write_text(json.dumps([GOOD]), "utf-8")
    first, second = load_backend(lines)
    assert (first.id, second.id) == ("backend_00000", "mine")
    assert first.calls == ("f(1)", "f(2)")
    assert load_backend(listed) == (first,)
    assert (await grader.grade(first, "f = lambda x: x + 1")).share == 1


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "is no JSON"),
        ('"text"', "the record"),
        (json.dumps({**GOOD, "ground_truth": ""}), "ground_truth"),
        (json.dumps({**GOOD, "ground_truth": 5}), "ground_truth"),
        (json.dumps({**GOOD, "test_cases": {}}), "test_cases"),
        (json.dumps({**GOOD, "test_cases": {"test1": 3}}), "test_cases.test1"),
        (json.dumps({**GOOD, "test_cases": ["f(1)"]}), "test_cases"),
        (json.dumps({"problem_description": "x"}), "ground_truth"),
        (json.dumps(GOOD)[:-20], "is no JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
async def test_bad_lines_are_reported_by_file_and_line(
    tmp_path: Path, line: str, complaint: str
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{line}\n", "utf-8")
    with pytest.raises(InvalidInput) as raised:
        load_backend(path)
    assert str(path) in raised.value.message
    assert f"{path}:2" in raised.value.message
    assert complaint in raised.value.message


async def test_a_file_without_tasks_or_with_an_id_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    for content in ("", f"{json.dumps({**GOOD, 'id': 'a'})}\n" * 2):
        path.write_text(content, "utf-8")
        with pytest.raises(InvalidInput, match=r"nothing|twice"):
            load_backend(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="UTF-8"):
        load_backend(path)
    with pytest.raises(InvalidInput, match="can't be read"):
        load_backend(tmp_path / "absent.jsonl")


async def test_examples_say_what_they_are_of() -> None:
    example = BackendExample("a", "b", "c", ("d",))
    assert example.kind == ""
    assert example.max_turns is None
