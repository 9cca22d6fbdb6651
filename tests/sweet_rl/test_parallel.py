"""Several units at once: in which order, where, and what happens where one fails."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from memserver.errors import InvalidInput, SetupError
from sweet_rl.resumable import EXIT_STATUS, Deadline, OutOfTime
from sweet_rl.runs.context import RunContext
from sweet_rl.runs.parallel import ParallelRunner
from sweet_rl.runs.run import Selection
from sweet_rl.runs.run_state import RunState
from sweet_rl.runs.units import Unit, units_of
from sweet_rl.sampling.samplers import Sampler
from sweet_rl.task_sets import Environment
from tests.sweet_rl.small_run import small

SAMPLING = {"candidates", "rft-matched", "validate", "evaluate", "grid"}


@dataclass
class Source:
    """Servers that are ready at the third look; nothing is sampled in this process."""

    looks: int = 0
    prepared: bool = False

    def prepare(self) -> None:
        self.prepared = True

    def addresses(self) -> Sequence[str] | None:
        self.looks += 1
        return ("http://a/v1", "http://b/v1") if self.looks > 2 else None

    def open(self, adapter: Path | None) -> AbstractAsyncContextManager[Sampler]:
        raise AssertionError(f"{adapter} is sampled elsewhere")


@dataclass
class Process:
    """Runs for some looks; then its unit is done, if it ends well."""

    unit: Unit
    out: Path
    looks: int
    status: int = 0
    stopped: list[str] = field(default_factory=list)

    def ended(self) -> int | None:
        self.looks -= 1
        if self.looks > 0:
            return None
        if self.status == 0:
            state = RunState(self.out)
            with state.working_on(self.unit):
                state.finish(self.unit, {"steps": 1})
        return self.status

    def last_lines(self) -> str:
        return "no memory is left"

    def dismiss(self) -> None:
        self.stopped.append("dismissed")

    def stop(self) -> None:
        self.stopped.append("stopped")


@dataclass
class Processes:
    """Starts them, and writes down with what."""

    out: Path
    status: Callable[[Unit], int] = lambda _: 0
    started: dict[str, Process] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    endpoints: dict[str, tuple[str, ...]] = field(default_factory=dict)
    most: int = 0
    jobs: int = 1
    gpus: Sequence[str] = ()

    def start(self, unit: Unit, place: int, endpoints: Sequence[str]) -> Process:
        for needed in unit.needs.values():
            assert RunState(self.out).figures(needed) is not None
        self.places[unit.path], self.endpoints[unit.path] = place, tuple(endpoints)
        looks = 2 + len(self.started) % 3
        self.started[unit.path] = Process(unit, self.out, looks, self.status(unit))
        self.most = max(self.most, sum(each.looks > 0 for each in self.started.values()))
        return self.started[unit.path]


def bench(tmp_path: Path, deadline: Deadline | None = None) -> RunContext:
    return RunContext(
        small(tmp_path),
        tmp_path / "run",
        tmp_path / "base",
        Source(),
        Environment(),
        deadline or Deadline(),
        lambda _: nullcontext(lambda done, total: None),
    )


def side_by_side(
    tools: RunContext, processes: Processes, jobs: int = 3, places: int = 2
) -> ParallelRunner:
    processes.jobs, processes.gpus = jobs, tuple(map(str, range(places)))
    return ParallelRunner(tools, processes, lambda *_: None, pause=0)


def test_all_units_are_done_each_behind_what_it_needs_and_several_at_once(tmp_path: Path) -> None:
    tools, processes = bench(tmp_path), Processes(tmp_path / "run")
    units = units_of(tools.recipe)
    done = side_by_side(tools, processes).run(units, Selection())
    assert {unit.path for unit in done} == {unit.path for unit in units}
    assert processes.most == 3
    assert set(processes.places.values()) == {0, 1}
    assert side_by_side(tools, processes).run(units, Selection()) == [], "nothing is done twice"


def test_what_samples_waits_for_the_servers_and_is_told_where_they_are(tmp_path: Path) -> None:
    tools, processes = bench(tmp_path), Processes(tmp_path / "run")
    side_by_side(tools, processes, jobs=2).run(units_of(tools.recipe), Selection())
    for path, told in processes.endpoints.items():
        stage = path.split("/")[1].split(".")[0]
        assert told == (("http://a/v1", "http://b/v1") if stage in SAMPLING else ())
    assert next(iter(processes.started)) == "shared/warm-start", "which needs no server"


def test_critics_of_the_gate_learn_beside_its_plays_and_small_ones_are_scored_first(
    tmp_path: Path,
) -> None:
    critics = "{large: {critic: {most: 90}}, small: {critic: {most: 9}}}"
    recipe = small(tmp_path, gate="{}", variants=critics, rank="{}")
    tools = replace(bench(tmp_path), recipe=recipe)
    processes = Processes(tmp_path / "run")
    gate = Selection(stages=("warm-start", "collect", "critic", "gate-states", "gate-scores"))
    side_by_side(tools, processes).run(units_of(recipe), replace(gate, seeds=(1,)))
    begun = list(processes.started)
    assert begun.index("seed-1/critic.small") < begun.index("seed-1/gate-states")
    assert begun.index("seed-1/critic.small") < begun.index("seed-1/critic.large")
    assert begun.index("seed-1/gate-scores.small") < begun.index("seed-1/gate-scores.large")
    assert processes.endpoints["seed-1/gate-states"] == ("http://a/v1", "http://b/v1")


def test_behind_a_failure_nothing_begins_and_what_ran_is_kept(tmp_path: Path) -> None:
    tools = bench(tmp_path)
    processes = Processes(tmp_path / "run", lambda unit: int(unit.path == "seed-1/mdpo"))
    with pytest.raises(SetupError, match="seed-1/mdpo failed:\nno memory is left"):
        side_by_side(tools, processes).run(units_of(tools.recipe), Selection())
    beside = [path for path in processes.started if path != "seed-1/mdpo"]
    state = RunState(tools.out)
    units = {unit.path: unit for unit in units_of(tools.recipe)}
    assert all(state.figures(units[path]) is not None for path in beside)
    assert "seed-1/evaluate.mdpo" not in processes.started
    again = Processes(tmp_path / "run")
    side_by_side(tools, again).run(list(units.values()), Selection())
    assert again.started.keys() == units.keys() - set(beside)


def test_a_process_whose_time_was_over_is_no_failure(tmp_path: Path) -> None:
    tools = bench(tmp_path, Deadline.after(0.3))
    processes = Processes(tmp_path / "run", lambda _: EXIT_STATUS)
    wanted = Selection(stages=("warm-start", "collect", "rft"))
    with pytest.raises(OutOfTime, match="4 units are not done"):
        side_by_side(tools, processes).run(units_of(tools.recipe), wanted)
    assert list(processes.started) == ["shared/warm-start", "shared/collect"]


def test_an_interruption_ends_all_processes(tmp_path: Path) -> None:
    tools = bench(tmp_path)

    class Interrupted(Processes):
        def start(self, unit: Unit, place: int, endpoints: Sequence[str]) -> Process:
            if len(self.started) == 1:
                raise KeyboardInterrupt
            return super().start(unit, place, endpoints)

    processes = Interrupted(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        side_by_side(tools, processes).run(units_of(tools.recipe), Selection())
    assert [each.stopped for each in processes.started.values()] == [["dismissed", "stopped"]]


def test_single_units_are_named_by_their_folders(tmp_path: Path) -> None:
    tools, processes = bench(tmp_path), Processes(tmp_path / "run")
    wanted = Selection(only=("shared/warm-start", "shared/collect"))
    side_by_side(tools, processes).run(units_of(tools.recipe), wanted)
    assert list(processes.started) == ["shared/warm-start", "shared/collect"]
    with pytest.raises(InvalidInput, match="no seed-9/rft"):
        side_by_side(tools, processes).run(units_of(tools.recipe), Selection(only=("seed-9/rft",)))
