"""What a run found, as Markdown: the policies, the two comparisons that were fixed before, and how they fail.

Policies differ by seeds, with a t-interval, and by topics of the tasks, with a bootstrap.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import fmean

from memserver_evals.report.markdown import table as markdown
from memserver_evals.scoring.statistics import Estimate, estimate
from memserver_evals.scoring.text import admits_not_knowing
from sweet_rl.intervals import t_interval
from sweet_rl.memory_episodes.layout import Run
from sweet_rl.memory_episodes.records import Drawn, Episode, Task, read_parts

Rewards = Mapping[str, float]
"""By task."""
MANNERS = ("greedy", "drawn")
_KINDS = ("right", "gave up", "no answer", "wrong")
COMPARED = (
    ("SWEET-RL less multi-turn DPO (primary)", "sweet", "mdpo"),
    ("what the hidden information is worth", "sweet", "sweet-blind"),
    ("SWEET-RL less rejection fine-tuning", "sweet", "rft"),
    ("SWEET-RL less where all started", "sweet", "start"),
)
START = "start"
"""How the policy is called that all arms start from; it has no seed, and is compared with every one."""
_OF_SEED = re.compile(r"seed-(\d+)/(.+)")
Played = Mapping[str, Mapping[str, Sequence[Episode]]]
"""By policy, and greedy or drawn."""


@dataclass(frozen=True, slots=True)
class Difference:
    by_seed: tuple[float, ...]  # of their mean rewards on the tasks that both played, seed by seed
    seeds: Estimate  # the mean of these with its t-interval
    topics: Estimate  # the mean over tasks, with an interval that draws topics

    @property
    def is_better(self) -> bool:
        return self.seeds.low > 0 and self.topics.low > 0


def difference(
    one: Mapping[int, Rewards], other: Mapping[int, Rewards], topics: Mapping[str, str]
) -> Difference | None:
    """How much more one arm earns than another; None where no seed has both."""
    seeds = sorted(one.keys() & other.keys())
    played = [one[seed].keys() & other[seed].keys() for seed in seeds]
    tasks = sorted(set.intersection(*played)) if played else []
    if not tasks:
        return None
    by_seed = [fmean(one[seed][task] - other[seed][task] for task in tasks) for seed in seeds]
    by_task = [fmean(one[seed][task] - other[seed][task] for seed in seeds) for task in tasks]
    clusters = [topics[task] for task in tasks]
    return Difference(tuple(by_seed), t_interval(by_seed), estimate(by_task, clusters))


def written(run: Run) -> str:
    tasks = {task.id: task for task in run.tasks() if task.side == "test"}
    played = _read(run)
    parts = [
        "# Memory episodes",
        f"{len(tasks)} test tasks of {len({task.topic for task in tasks.values()})} topics.",
        _policies(played, tasks),
        _differences(played, tasks),
        _failures(played, tasks),
    ]
    return "\n\n".join(parts) + "\n"


def rewards_of(played: Played) -> dict[str, dict[int, Rewards]]:
    """By arm and seed the mean of what each task earned, greedy and drawn counting alike."""
    found: dict[str, dict[int, Rewards]] = defaultdict(dict)
    whole = {
        policy: _of_both(manners)
        for policy, manners in played.items()
        if set(manners) == set(MANNERS)
    }
    for policy, rewards in whole.items():
        if match := _OF_SEED.fullmatch(policy):
            found[match[2]][int(match[1])] = rewards
    if START in whole:
        seeds = {seed for by_seed in found.values() for seed in by_seed}
        found[START] = dict.fromkeys(seeds, whole[START])
    return found


def _of_both(manners: Mapping[str, Sequence[Episode]]) -> Rewards:
    by_manner = [_by_task(manners[manner]) for manner in MANNERS]
    both = set.intersection(*(set(each) for each in by_manner))
    return {task: fmean(each[task] for each in by_manner) for task in both}


def _read(run: Run) -> Played:
    found: dict[str, dict[str, list[Episode]]] = defaultdict(dict)
    root = run.folder / "test"
    for manner in MANNERS:
        for folder in sorted(root.glob(f"**/{manner}")):
            drawn: list[Drawn] = read_parts(folder, "*.jsonl")
            if drawn:
                name = folder.parent.relative_to(root).as_posix()
                found[name][manner] = [each.episode for each in drawn]
    return found


def _policies(played: Played, tasks: Mapping[str, Task]) -> str:
    rows = []
    for policy, manners in sorted(played.items()):
        episodes = [each for found in manners.values() for each in found]
        calls = Counter(_tool(step.action) for each in episodes for _, step in each.steps)
        notes = sum(calls[name] for name in calls if name.startswith("working_context"))
        searches = sum(calls[name] for name in calls if "search" in name)
        means = [_mean(each.reward for each in manners.get(manner, ())) for manner in MANNERS]
        others = [notes, searches, sum(each.evictions for each in episodes)]
        shown = [f"{count / len(episodes):.1f}" for count in others]
        rows.append([policy, *means, *shown, f"{fmean(each.tokens for each in episodes):.0f}"])
    head = ("policy", *MANNERS, "notes", "searches", "evictions", "tokens")
    what = f"Notes, searches, evictions and tokens are of an episode. Tasks played: {len(tasks)}."
    return f"{markdown(head, rows)}\n\n{what}"


def _differences(played: Played, tasks: Mapping[str, Task]) -> str:
    rewards = rewards_of(played)
    topics = {task.id: task.topic for task in tasks.values()}
    rows = []
    for title, one, other in COMPARED:
        found = difference(rewards.get(one, {}), rewards.get(other, {}), topics)
        if found is None:
            rows.append([title, "not run", "", "", ""])
            continue
        seeds = ", ".join(f"{value:+.3f}" for value in found.by_seed)
        better = "yes" if found.is_better else "no"
        rows.append([title, _shown(found.seeds), _shown(found.topics), seeds, better])
    head = ("difference in mean reward", "by seeds (t)", "by topics", "seed by seed", "better")
    return markdown(head, rows)


def _failures(played: Played, tasks: Mapping[str, Task]) -> str:
    rows = []
    for policy, manners in sorted(played.items()):
        kinds: Counter[str] = Counter()
        for episode in (each for found in manners.values() for each in found):
            for asked, outcome in zip(tasks[episode.task].asked, episode.outcomes, strict=True):
                if asked.line is None:
                    kinds["admitted" if outcome.right else "made up"] += 1
                else:
                    kinds["right" if outcome.right else _failure(outcome.answer)] += 1
        never = f"{kinds['admitted']} of {kinds['admitted'] + kinds['made up']}"
        rows.append([policy, *(str(kinds[name]) for name in _KINDS), never])
    return markdown(("policy", *_KINDS, "unanswerable admitted"), rows)


def _failure(answer: str) -> str:
    if not answer.strip():
        return "no answer"
    return "gave up" if admits_not_knowing(answer) else "wrong"


def _tool(action: str) -> str:
    return str(json.loads(action)["tool"])


def _by_task(episodes: Iterable[Episode]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for each in episodes:
        found[each.task].append(each.reward)
    return {task: fmean(rewards) for task, rewards in found.items()}


def _mean(values: Iterable[float]) -> str:
    found = list(values)
    return f"{fmean(found):.3f}" if found else ""


def _shown(found: Estimate) -> str:
    if isnan(found.low):
        return f"{found.mean:+.3f}"
    return f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
