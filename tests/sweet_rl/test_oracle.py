"""The oracle of generated tasks, and how a critic's order is compared with its."""

from collections.abc import Sequence

import pytest

from memserver_evals.colbench.backend.families import FAMILIES
from memserver_evals.colbench.backend.long_tasks import generate_long
from memserver_evals.colbench.backend.rules import MARKER
from memserver_evals.colbench.backend.slot_human import SlotTask
from sweet_rl.oracle import PARTLY, agreement, values_of
from sweet_rl.trajectories import Ranked
from tests.sweet_rl.conversations import chat
from tests.sweet_rl.oracle_tasks import TASKS, answer, asked, one


@pytest.mark.parametrize("task", TASKS[:18], ids=lambda task: task.example.id)
def test_the_reference_is_worth_all_and_one_with_a_wrong_constant_less(task: SlotTask) -> None:
    name = task.family.slots[0].name
    other = next(value for value in task.family.slots[0].choices if value != task.slots[name])
    right, wrong = values_of(
        task, asked(task), [answer(task), answer(task, **{name.replace(" ", "_"): other})]
    )
    assert right == 1
    assert 0 < wrong <= 0.5


def test_all_families_are_tried() -> None:
    assert {task.family.name for task in TASKS[:18]} == {family.name for family in FAMILIES}


def test_a_new_question_is_worth_more_than_an_old_or_idle_one_and_less_than_the_right_answer() -> (
    None
):
    task = one("tier")
    before = asked(task, "threshold")
    new, old, idle, right, early = values_of(
        task,
        before,
        [
            "What is the fee?",
            "What is the threshold?",
            "Nice weather?",
            answer(task),
            f"{MARKER} x",
        ],
    )
    assert right > new > old == idle > early == 0


def test_when_turns_run_out_asking_is_worth_what_can_still_be_known() -> None:
    task = one("tier")
    last_but_one = asked(task, "threshold", "hm", "hm")  # 2 of 5 messages are left
    new, idle = values_of(task, last_but_one, ["What is the fee?", "Nice weather?"])
    assert 0.5 > new > idle > 0
    last = asked(task, "threshold", "fee", "discount", "hm")
    assert values_of(task, last, ["What is the fee?", answer(task)]) == (0, 1)


def test_code_is_read_whatever_its_white_space_and_quotes_but_not_its_types() -> None:
    task = one("label")
    code = answer(task).replace("\n    ", "\n  ").replace(repr(task.slots["top label"]), '"vip"')
    good = {**task.slots, "top label": "vip"}
    other = SlotTask(task.example, task.family, task.noun, good)
    assert values_of(other, asked(task), [code]) == (1,)
    quoted = answer(task).replace(str(task.slots["low cutoff"]), f"'{task.slots['low cutoff']}'", 1)
    assert values_of(task, asked(task), [quoted])[0] < 1


def ranked(advantages: Sequence[float], oracle: Sequence[float] | None) -> Ranked:
    return Ranked(
        task="t",
        hidden="",
        turn=0,
        messages=chat("Hello"),
        candidates=tuple("abcd"[: len(advantages)]),
        advantages=tuple(advantages),
        oracle=None if oracle is None else tuple(oracle),
    )


def test_agreement_counts_pairs_that_the_oracle_tells_apart() -> None:
    found = agreement(
        [
            ranked([3, 2, 1], [0.9, 0.5, 0.5]),  # two pairs, both alike
            ranked([1, 1, 2], [0.9, 0.5, 0.9]),  # two pairs: a tie, and one alike
            ranked([1, 2], [0.5, 0.5]),
            ranked([1, 2], None),
        ]
    )
    assert (found["pairs"], found["states"]) == (4, 2)
    assert found["agreement"] == pytest.approx(3.5 / 4)
    assert found["best"] == 1
    assert found["chance_of_best"] == pytest.approx((1 / 3 + 2 / 3) / 2)
    assert agreement([])["agreement"] is None


def test_without_a_turn_to_spare_only_what_the_reference_has_is_worth_asking_for() -> None:
    task = next(task for task in generate_long("train", 9, "middle") if task.mistakable)
    there, absent = next(iter(task.mistakable.items()))
    start = chat(task.example.description)
    ask, other, idle = values_of(
        task, start, (f"What is the {there}?", f"What is the {absent}?", "Shall I begin?")
    )
    assert other == idle < 0.5 * ask

    asked = [f"What is the {slot.name}?" for slot in task.family.slots]
    before = chat(task.example.description, *(text for each in asked for text in (each, "So.")))
    name, value = next(iter(task.slots.items()))
    wrong = next(slot for slot in task.family.slots if slot.name == name).choices
    codes = [
        task.family.code(task.noun, task.slots),
        task.family.code(task.noun, {**task.slots, name: next(c for c in wrong if c != value)}),
        "def f(): pass",
    ]
    right, miscopied, none = values_of(task, before, [f"{MARKER}\n{code}" for code in codes])
    assert (right, none) == (1, 0)
    assert 0.4 < miscopied < PARTLY
