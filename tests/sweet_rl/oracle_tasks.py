"""Generated tasks, and conversations about them."""

from memserver_evals.colbench.backend.generator import generate
from memserver_evals.colbench.backend.rules import MARKER
from memserver_evals.colbench.backend.slot_human import SlotTask
from sweet_rl.trajectories import Messages
from tests.sweet_rl.conversations import chat

TASKS = generate("train", 30, spare_turns=2)


def one(family: str) -> SlotTask:
    return next(task for task in TASKS if task.family.name == family)


def asked(task: SlotTask, *names: str) -> Messages:
    said = [task.example.description]
    for name in names:
        said += [f"What is the {name}?", "Some value."]
    return chat(*said)


def answer(task: SlotTask, **wrong: object) -> str:
    slots = {**task.slots, **{name.replace("_", " "): value for name, value in wrong.items()}}
    return f"{MARKER}\n{task.family.code(task.noun, slots)}"
