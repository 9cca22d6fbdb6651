"""ColBench-long: how its tasks are made and split, what its human says, and what scripts score."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from memserver.prompts import Prompts
from memserver_evals.colbench.backend.grading import Grader
from memserver_evals.colbench.backend.long_modules import MODULES
from memserver_evals.colbench.backend.long_tasks import (
    DESIGNS,
    LongTask,
    generate_long,
    unseen_pairs,
)
from memserver_evals.colbench.backend.scripted import ORACLE, SENSIBLE, VAGUE, Habits, ScriptedAgent
from memserver_evals.colbench.backend.slot_human import SlotHuman
from memserver_evals.colbench.backend.task import BackendTask
from memserver_evals.colbench.sandbox.pool import Sandbox
from tests.memserver_evals.colbench.limits import PATIENT

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def grader() -> AsyncIterator[Grader]:
    async with Sandbox(PATIENT) as sandbox:
        yield Grader(sandbox)


@pytest.fixture(scope="module")
def tasks() -> tuple[LongTask, ...]:
    return generate_long("test", 16, "middle")


async def rewards(tasks: Sequence[LongTask], grader: Grader, habits: Habits) -> list[float]:
    examples = tuple(task.example for task in tasks)
    environment = BackendTask(examples, grader, SlotHuman.of(tasks), Prompts())
    agent = ScriptedAgent.of(tasks, habits)
    played = await asyncio.gather(*(environment.play(each, agent) for each in examples))
    return [environment.reward(example, one) for example, one in zip(examples, played, strict=True)]


async def test_there_are_forty_modules_with_a_hundred_slots_whose_names_are_all_different() -> None:
    slots = [slot for module in MODULES for slot in module.slots]
    assert (len(MODULES), len(slots)) == (40, 100)
    names = [name for slot in slots for name in (slot.name, *slot.also)]
    assert len(names) == len(set(names)) == 300


async def test_tasks_depend_on_design_seed_split_and_number_alone() -> None:
    few = generate_long("train", 3, "narrow")
    assert generate_long("train", 5, "narrow")[:3] == few
    assert generate_long("train", 2, "narrow", first=1) == few[1:]
    assert generate_long("train", 3, "narrow", seed=1) != few
    assert {task.design for task in few} == {DESIGNS["narrow"]}


async def test_splits_share_no_combination_and_unseen_modules_are_in_one_split_alone() -> None:
    new = {module for pair in unseen_pairs(0) for module in pair}
    assert Counter(len(pair) for pair in unseen_pairs(0)) == {2: 4}
    assert len({module.shape for module in new}) == 8
    found = {
        split: [task.modules for task in generate_long(split, 12, "middle")]
        for split in ("train", "validation", "test")
    }
    for modules in (one for several in found.values() for one in several):
        assert 5 <= len(modules) <= 8
        assert not new & set(modules)
    assert len({modules for several in found.values() for modules in several}) == 36
    for task in generate_long("unseen", 6, "middle"):
        assert len(new & set(task.modules)) >= 2


async def test_the_reference_names_its_slots_and_the_description_gives_none_away(
    tasks: tuple[LongTask, ...],
) -> None:
    for task in tasks:
        for name, value in task.slots.items():
            assert f"# {name}: {value}\n" in task.example.reference
        told, _, signature = task.example.description.partition("The signature is:")
        assert not re.search(r"\d", told)
        assert signature.strip() in task.example.reference
        assert task.example.max_turns == len(task.slots) + 1
        for module in task.modules:
            if module.root.name not in task.mistakable:
                assert module.root.name in told


async def test_a_module_that_was_asked_for_names_its_further_slots_which_were_closed_before(
    tasks: tuple[LongTask, ...],
) -> None:
    task = tasks[0]
    first, second, *_ = task.modules[0].slots
    assert task.answer(f"What is the {second.name}?", 1, set()).slot is None
    opened = task.answer(f"What is the {first.name}?", 2, set())
    assert opened.slot == first
    assert str(task.slots[first.name]) in opened.text
    assert second.name in opened.text
    then = task.answer(f"And the {second.also[0]}?", 3, {first.name})
    assert then.slot == second
    asked = [f"What is the {second.name}?", f"The {first.name}?", f"The {second.name}?"]
    assert task.known_after(asked) == {first.name, second.name}


async def test_what_is_not_there_costs_a_turn_and_is_denied(tasks: tuple[LongTask, ...]) -> None:
    task = next(task for task in tasks if task.mistakable)
    other = next(iter(task.mistakable.values()))
    answers = [task.answer(f"What is the {other}?", turn, set()) for turn in range(1, 9)]
    assert {heard.slot for heard in answers} == {None}
    assert all(re.search(r"\bno(thing)?\b", heard.text.lower()) for heard in answers)


async def test_a_question_that_names_nothing_is_mostly_evaded_and_a_specific_one_never(
    tasks: tuple[LongTask, ...],
) -> None:
    vague = [
        task.answer(f"What about the {task.modules[0].root.vague[0]}?", turn, set()).slot
        for task in tasks
        for turn in range(1, 12)
    ]
    evaded = sum(slot is None for slot in vague) / len(vague)
    assert abs(evaded - DESIGNS["middle"].evasion) < 0.12
    assert all(task.answer(f"The {task.modules[0].root.name}?", 1, set()).slot for task in tasks)


async def test_answers_have_other_values_in_them_as_often_as_the_design_says(
    tasks: tuple[LongTask, ...],
) -> None:
    numbers = [
        len(re.findall(r"\d+", task.answer(f"What is the {slot.name}?", turn, {slot.after}).text))
        for task in tasks
        for slot in task.family.slots
        for turn in (1, 2)
        if isinstance(slot.choices[0], int)
    ]
    share = sum(count == 2 for count in numbers) / len(numbers)
    assert abs(share - DESIGNS["middle"].distractors) < 0.12


async def test_the_oracle_solves_all_and_scripts_that_know_less_do_not(
    tasks: tuple[LongTask, ...], grader: Grader
) -> None:
    assert set(await rewards(tasks, grader, ORACLE)) == {1.0}
    sensible = await rewards(tasks, grader, SENSIBLE)
    assert sum(reward == 1 for reward in sensible) < 0.6 * len(tasks)
    vague = await rewards(tasks, grader, VAGUE)
    assert max(vague) < 1
    assert sum(vague) < sum(sensible)


async def test_there_is_no_turn_to_spare(tasks: tuple[LongTask, ...], grader: Grader) -> None:
    few = list(tasks[:6])
    assert all(reward < 1 for reward in await rewards(few, grader, Habits(idle=0.5)))
