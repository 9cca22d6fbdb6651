"""The tasks of a recipe: which there are in each split, who answers the agent, and where its code is run."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.prompts import Prompts
from memserver_evals.colbench.backend.examples import BackendExample, load_backend
from memserver_evals.colbench.backend.generator import generate
from memserver_evals.colbench.backend.grading import Grader
from memserver_evals.colbench.backend.humans import Human, ModelHuman
from memserver_evals.colbench.backend.long_tasks import LongSplit, generate_long
from memserver_evals.colbench.backend.rules import MAX_TURNS
from memserver_evals.colbench.backend.slot_human import SlotHuman, SlotTask
from memserver_evals.colbench.backend.task import BackendTask
from memserver_evals.colbench.chat import PartModel
from memserver_evals.colbench.sandbox.pool import Sandbox
from sweet_rl.recipe import Generated, Recipe

Split = Literal["warm-start", "train", "validation", "test", "unseen"]


@dataclass(frozen=True)
class TaskSet:
    """The tasks of one split; `slots` are generated ones with what they were made of, by id."""

    examples: tuple[BackendExample, ...]
    slots: Mapping[str, SlotTask]
    human: str = ""
    max_turns: int = MAX_TURNS


@dataclass(frozen=True)
class Environment:
    data: Path | None = None  # the folder with published task files
    # the endpoint of the model that plays the human; None where no model does
    human: Endpoint | None = None
    disposable: bool = False  # the machine is thrown away afterwards, so code runs where it can't be kept from files
    prompts: Prompts = field(default_factory=Prompts)  # the texts of prompts


def make_tasks(recipe: Recipe, split: Split, data: Path | None = None) -> TaskSet:
    tasks = recipe.tasks
    if not isinstance(tasks, Generated):
        return _published(recipe, split, data)
    first = tasks.train if split == "warm-start" else 0
    of: LongSplit = "train" if split == "warm-start" else split
    count = _count(recipe, tasks, split)
    made: Sequence[SlotTask]
    if tasks.design is not None:
        made = generate_long(
            of, count, tasks.design, first=first, seed=tasks.seed, spare_turns=tasks.spare_turns
        )
    elif of != "unseen":
        made = generate(of, count, first=first, seed=tasks.seed, spare_turns=tasks.spare_turns)
    else:
        made = ()
    return TaskSet(tuple(task.example for task in made), {task.example.id: task for task in made})


def _count(recipe: Recipe, tasks: Generated, split: Split) -> int:
    if split == "warm-start":
        return recipe.warm_start.tasks if recipe.warm_start else 0
    return {
        "train": tasks.train,
        "validation": tasks.validation,
        "test": tasks.test,
        "unseen": tasks.unseen,
    }[split]


def identity_of(recipe: Recipe, split: Split) -> JsonObject:
    tasks = recipe.tasks
    if not isinstance(tasks, Generated):
        return tasks.model_dump(mode="json")
    kept = {"kind": tasks.kind, "seed": tasks.seed, "spare_turns": tasks.spare_turns}
    if tasks.design is not None:
        kept["design"] = tasks.design
    if split == "warm-start":
        return kept | {"first": tasks.train}
    return kept | {split: getattr(tasks, split)}


@asynccontextmanager
async def open_task(
    tasks: TaskSet, around: Environment, *, single: bool = False
) -> AsyncIterator[BackendTask]:
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox(disposable=around.disposable))
        human: Human | None = None
        if not single:
            human = await _human(tasks, around, stack)
        yield BackendTask(
            tasks.examples, Grader(sandbox), human, around.prompts, max_turns=tasks.max_turns
        )


async def _human(tasks: TaskSet, around: Environment, stack: AsyncExitStack) -> Human:
    if tasks.slots:
        return SlotHuman(tasks.slots)
    if around.human is None:
        raise InvalidInput(
            f"The model {tasks.human} plays the human, but its endpoint isn't named.",
            hint="Name it by --human-url.",
        )
    client = EndpointClient(around.human)
    stack.push_async_callback(client.aclose)
    return ModelHuman(PartModel(client, tasks.human), around.prompts)


def _published(recipe: Recipe, split: Split, data: Path | None) -> TaskSet:
    tasks = recipe.tasks
    assert not isinstance(tasks, Generated)
    if data is None:
        raise InvalidInput("The recipe's tasks are in files.", hint="Name their folder by --data.")
    if split == "test":
        examples = load_backend(data / tasks.test)[: tasks.test_count]
    else:
        every = load_backend(data / tasks.train)
        kept = len(every) - tasks.validation
        if kept < 1:
            raise InvalidInput(f"{data / tasks.train} has no more tasks than validation takes.")
        examples = every[:kept][: tasks.train_count] if split == "train" else every[kept:]
    return TaskSet(examples, {}, tasks.human, tasks.max_turns)
