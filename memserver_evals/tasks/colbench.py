"""ColBench's two collaborations as evaluations. What they are is in `memserver_evals.colbench`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from memserver.errors import InvalidInput, SetupError, install_extra
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.prompts import Prompts
from memserver_evals.colbench.backend.examples import load_backend
from memserver_evals.colbench.backend.generator import Split, generate
from memserver_evals.colbench.backend.grading import Grader
from memserver_evals.colbench.backend.humans import Human, ModelHuman
from memserver_evals.colbench.backend.slot_human import SlotHuman
from memserver_evals.colbench.backend.task import BackendTask
from memserver_evals.colbench.chat import PartModel
from memserver_evals.colbench.closing import Closes
from memserver_evals.colbench.sandbox.pool import Sandbox
from memserver_evals.task import Task
from memserver_evals.tasks.registry import TaskEntry, TaskOptions, refuse_unknown

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
    refuse_unknown(options, BACKEND)
    owned: list[Closes] = []
    part = _part(options.extra, owned)
    single = _is_single(options.extra)
    human: Human | None = ModelHuman(part, Prompts()) if part else None
    path = _file(options, BACKEND_FILE)
    if path is None:
        split = _split(options.extra)
        tasks = generate(
            split,
            _number(options.extra, "each", 100),
            seed=options.seed,
            spare_turns=_spare_turns(options.extra),
        )
        examples = tuple(task.example for task in tasks)
        human = human or SlotHuman.of(tasks)
    else:
        examples = load_backend(path)
        _need(human, single)
    sandbox = Sandbox()
    return BackendTask(
        examples,
        Grader(sandbox),
        None if single else human,
        Prompts(),
        max_turns=_number(options.extra, "turns", 10),
        owns=(sandbox, *owned),
    )


def make_frontend(options: TaskOptions) -> Task[Any]:
    refuse_unknown(options, FRONTEND)
    try:
        from memserver_evals.tasks.colbench_frontend import frontend_task  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SetupError(
            "Frontend collaboration compares pictures, and Pillow or NumPy is missing.",
            hint=install_extra("colbench"),
        ) from error
    owned: list[Closes] = []
    part = _part(options.extra, owned)
    single = _is_single(options.extra)
    path = _file(options, FRONTEND_FILE)
    if path is not None:
        _need(part, single)
    return frontend_task(
        path,
        part=part,
        single=single,
        split=_split(options.extra),
        count=_number(options.extra, "each", 100),
        seed=options.seed,
        turns=_number(options.extra, "turns", 10),
        clip=options.extra.get("clip"),
        owned=owned,
    )


def _file(options: TaskOptions, name: str) -> Path | None:
    source = options.extra.get("source", "file" if options.data is not None else "generated")
    if source == "generated":
        return None
    if source != "file":
        raise InvalidInput(f"source is file or generated, not {source!r}.")
    if options.data is None:
        raise InvalidInput("There is no data folder.", hint="Name one: --data, or MEMSERVER_DATA.")
    return options.data / name


def _part(extra: Mapping[str, str], owned: list[Closes]) -> PartModel | None:
    url, model = extra.get("human_url"), extra.get("human_model")
    if url is None and model is None:
        return None
    if url is None or model is None:
        raise InvalidInput("human_url and human_model are given together.")
    client = EndpointClient(Endpoint(url, title="simulated human's endpoint"))
    owned.append(client)
    return PartModel(client, model)


def _need(human: object, single: bool) -> None:
    if human is None and not single:
        raise InvalidInput(
            "Published tasks need a model that plays the human.",
            hint="--set human_url=http://.../v1 --set human_model=NAME, or --set single=yes.",
        )


def _is_single(extra: Mapping[str, str]) -> bool:
    given = extra.get("single", "no")
    if given not in {"yes", "no"}:
        raise InvalidInput(f"single is yes or no, not {given!r}.")
    return given == "yes"


def _split(extra: Mapping[str, str]) -> Split:
    given = extra.get("split", "test")
    for split in get_args(Split):
        if given == split:
            known: Split = split
            return known
    raise InvalidInput(f"split is train, validation or test, not {given!r}.")


def _spare_turns(extra: Mapping[str, str]) -> int | None:
    return _number(extra, "spare_turns", 1) if "spare_turns" in extra else None


def _number(extra: Mapping[str, str], name: str, default: int) -> int:
    given = extra.get(name, str(default))
    if not given.isdecimal() or int(given) < 1:
        raise InvalidInput(f"{name} is a number from 1, not {given!r}.")
    return int(given)


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
