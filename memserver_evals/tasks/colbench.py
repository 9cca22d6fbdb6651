"""ColBench's two collaborations as evaluations. What they are is in `memserver_evals.colbench`."""

from collections.abc import Sequence
from typing import Any

from memserver.errors import SetupError, install_extra
from memserver.prompts import Prompts
from memserver_evals.colbench.backend.examples import load_backend
from memserver_evals.colbench.backend.generator import generate
from memserver_evals.colbench.backend.grading import Grader
from memserver_evals.colbench.backend.humans import Human, ModelHuman
from memserver_evals.colbench.backend.long_tasks import DESIGNS, LongSplit, generate_long
from memserver_evals.colbench.backend.slot_human import SlotHuman, SlotTask
from memserver_evals.colbench.backend.task import BackendTask
from memserver_evals.colbench.sandbox.pool import Sandbox
from memserver_evals.task import Task
from memserver_evals.tasks.colbench_setup import Setup
from memserver_evals.tasks.registry import TaskEntry, TaskOptions

BACKEND_FILE, FRONTEND_FILE = "colbench_backend.jsonl", "colbench_frontend.jsonl"
_OPTIONS = {
    "source": "file or generated; without a data folder it is generated",
    "each": "generated tasks (100)",
    "split": "of generated tasks: train, validation or test (test)",
    "single": "yes: the agent is asked once, and can't ask",
    "turns": "messages of the agent (10)",
    "human_url": "an endpoint that plays the human (.../v1); a file needs one, except with single",
    "human_model": "its model",
}


def make_backend(options: TaskOptions) -> Task[Any]:
    setup = Setup.of(options, BACKEND, BACKEND_FILE)
    human: Human | None = ModelHuman(setup.part, Prompts()) if setup.part else None
    if setup.path is None:
        tasks = _generated(options, setup)
        examples = tuple(task.example for task in tasks)
        human = human or SlotHuman.of(tasks)
    else:
        examples = load_backend(setup.path)
    sandbox = Sandbox()
    return BackendTask(
        examples,
        Grader(sandbox),
        None if setup.single else human,
        Prompts(),
        max_turns=setup.turns,
        owns=(sandbox, *setup.owned),
    )


def _generated(options: TaskOptions, setup: Setup) -> Sequence[SlotTask]:
    spare = options.number("spare_turns", 1) if "spare_turns" in options.extra else None
    if "design" not in options.extra:
        return generate(setup.split, setup.each, seed=options.seed, spare_turns=spare)
    design = options.choice("design", tuple(DESIGNS))
    is_unseen = options.choice("unseen", ("yes", "no"), "no") == "yes"
    split: LongSplit = "unseen" if is_unseen else setup.split
    return generate_long(split, setup.each, design, seed=options.seed, spare_turns=spare)


def make_frontend(options: TaskOptions) -> Task[Any]:
    setup = Setup.of(options, FRONTEND, FRONTEND_FILE)
    try:
        from memserver_evals.tasks.colbench_frontend import frontend_task  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SetupError(
            "Frontend collaboration compares pictures, and Pillow or NumPy is missing.",
            hint=install_extra("colbench"),
        ) from error
    return frontend_task(setup, options)


BACKEND = TaskEntry(
    name="colbench-backend",
    summary="find out by asking which Python function is wanted, and write it",
    make=make_backend,
    material=frozenset(),
    systems=("memserver", "full"),
    windows=(None, None),
    needs=(f"{BACKEND_FILE} and a model that plays the human, or nothing (generated)", "Linux"),
    options={
        **_OPTIONS,
        "spare_turns": "of generated tasks: the agent's messages beyond one for each thing to ask; left out: turns",
        "design": "of ColBench-long: narrow, middle or vague; left out: short functions",
        "unseen": "yes: ColBench-long's tasks with modules that no training has (test B)",
    },
)
FRONTEND = TaskEntry(
    name="colbench-frontend",
    summary="write a web page, and fix it by what is said of its picture",
    make=make_frontend,
    material=frozenset(),
    systems=("memserver", "full"),
    windows=(None, None),
    needs=(f"{FRONTEND_FILE} and a model that sees pictures, or nothing (generated)", "Chromium"),
    options={
        **_OPTIONS,
        "clip": "a folder with CLIP's weights; without it image statistics, which aren't ColBench's measure",
    },
)
