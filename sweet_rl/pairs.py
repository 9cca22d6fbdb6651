"""What preferences are learnt from: pairs of whole collaborations, and pairs of single turns.

Pure functions over records. Chance comes from a seed and the record's own key, so a longer file begins
with the pairs of a shorter one.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random
from statistics import pstdev

from memserver.prompts import Prompts
from sweet_rl.trajectories import ChatMessage, Pair, Ranked, Trajectory

PROMPT = 2
"""Messages that all plays of a task have in common: the instructions and what the human says first."""


def successes(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    return [trajectory for trajectory in trajectories if trajectory.reward == 1]


def is_held_out(task: str, share: float) -> bool:
    """Whether a critic doesn't learn from a task: by its name, so all variants and seeds hold out the same."""
    return zlib.crc32(task.encode()) % 1000 < 1000 * share


def trajectory_pairs(
    trajectories: Iterable[Trajectory], *, every_success: bool = False
) -> list[Pair]:
    """For each task that was solved: a success against every play that earned less.

    For multi-turn DPO and for the critic, as published (the first of several successes is the chosen one).
    """
    plays: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        plays[trajectory.task].append(trajectory)
    return [
        Pair(
            task=task,
            hidden=chosen.hidden,
            prompt=chosen.messages[:PROMPT],
            chosen=chosen.messages[PROMPT:],
            rejected=rejected.messages[PROMPT:],
        )
        for task, played in plays.items()
        for chosen in islice(successes(played), None if every_success else 1)
        for rejected in played
        if rejected.reward < 1
    ]


def some(pairs: Sequence[Pair], most: int | None) -> list[Pair]:
    """So many of them, drawn from all: those of a smaller number are among those of a larger one."""
    return list(pairs) if most is None else Random(0).sample(pairs, len(pairs))[:most]


def in_tasks(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs of each task together, the tasks in an order that is drawn."""
    tasks = list(dict.fromkeys(pair.task for pair in pairs))
    Random(0).shuffle(tasks)
    order = {task: number for number, task in enumerate(tasks)}
    return sorted(pairs, key=lambda pair: order[pair.task])


@dataclass(frozen=True, slots=True)
class PairRule:
    count: int = 4  # pairs for each state, at most
    # by how many standard deviations of the state's scores the better one must be ahead; 0 as published
    margin: float = 0
    absolute_margin: float = 0  # and by how much in the scores' own unit
    # share of the candidates that count as best (one at least); the better half as published
    top: float = 0.5
    # draw places with replacement, as the released code does: then a pair may come twice, and a text beside itself.
    # Else the same two texts are paired once, and equal texts never.
    by_index: bool = False


def turn_pairs(ranked: Iterable[Ranked], rule: PairRule, *, seed: int = 0) -> list[Pair]:
    """For each state: one of the best of its candidates against one from the worse half, drawn at random."""
    pairs = []
    for record in ranked:
        chance = Random(f"{seed} {record.key}")
        pairs += [
            Pair(
                task=record.task,
                hidden=record.hidden,
                prompt=record.messages,
                chosen=(_said(better),),
                rejected=(_said(worse),),
            )
            for better, worse in _drawn(record, rule, chance)
        ]
    return pairs


def _drawn(record: Ranked, rule: PairRule, chance: Random) -> list[tuple[str, str]]:
    """Pairs of texts of a state that its scores tell well enough apart."""
    ahead = max(rule.absolute_margin, rule.margin * pstdev(record.advantages))
    scored = sorted(zip(record.advantages, record.candidates, strict=True), key=lambda one: -one[0])
    half, best = len(scored) // 2, max(1, int(rule.top * len(scored)))
    better, worse = scored[:best], scored[len(scored) - half :]
    if rule.by_index:
        both = [(chance.choice(better), chance.choice(worse)) for _ in range(rule.count)]
        return [(one, other) for (high, one), (low, other) in both if high - low >= ahead]
    texts = list(
        {
            (one, other): None
            for high, one in better
            for low, other in worse
            if one != other and high > low and high - low >= ahead
        }
    )
    return chance.sample(texts, min(rule.count, len(texts)))


def _said(text: str) -> ChatMessage:
    return {"role": "assistant", "content": text}


def with_hidden(messages: Sequence[ChatMessage], hidden: str) -> list[ChatMessage]:
    """The messages with the reference at the start of the system message, for a critic; an actor never sees it."""
    return with_prefix(
        messages, _prompts().render("colbench/hidden_information.md", reference=hidden)
    )


def with_prefix(messages: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
    first, *rest = messages
    return [{"role": first["role"], "content": f"{text}\n\n{first['content']}"}, *rest]


@cache
def _prompts() -> Prompts:
    return Prompts()
