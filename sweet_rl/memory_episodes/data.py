"""What each method learns from: plays that are imitated, pairs of plays, and pairs of calls in one state.

Pure functions over records. Chance comes from a seed and the record's own key.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from random import Random

from sweet_rl.memory_episodes.records import Drawn, Episode, Kept, Ordered, Preferred
from sweet_rl.trajectories import Ranked

NEARLY = 1e-9
"""Rewards are fifths, which are no exact numbers."""


def own_plays(drawn: Iterable[Drawn], count: int, seed: int) -> list[Episode]:
    """So many plays of each task, drawn for a seed among all that there are: seeds share few of them."""
    plays: dict[str, list[Episode]] = defaultdict(list)
    for each in drawn:
        plays[each.episode.task].append(each.episode)
    return [
        each
        for task, played in plays.items()
        for each in Random(f"{seed} {task}").sample(played, min(count, len(played)))
    ]


def play_pairs(episodes: Iterable[Episode], margin: float) -> list[Preferred]:
    """The best and the worst play of each task whose rewards are so far apart: for multi-turn DPO and the critic."""
    plays: dict[str, list[Episode]] = defaultdict(list)
    for each in episodes:
        plays[each.task].append(each)
    found = []
    for task, played in plays.items():
        better, worse = (end(played, key=lambda one: one.reward) for end in (max, min))
        if better.reward - worse.reward >= margin - NEARLY:
            found.append(Preferred(task=task, better=better.sample, worse=worse.sample))
    return found


def kept(episodes: Iterable[Episode], least: float) -> list[Kept]:
    return [
        Kept(task=each.task, sample=each.sample)
        for each in episodes
        if each.reward >= least - NEARLY
    ]


def tokens_of(drawn: Iterable[Drawn]) -> int:
    """What plays with candidates cost: tokens that were generated, whether they were acted on or not."""
    return sum(each.episode.tokens + sum(state.tokens for state in each.states) for each in drawn)


def matched(
    own: Sequence[Episode], drawn: Iterable[Drawn], tokens: int, seed: int
) -> list[Episode]:
    """The own plays, and others in some order until those have so many generated tokens."""
    taken = {each.key for each in own}
    others = [each.episode for each in drawn if each.key not in taken]
    Random(seed).shuffle(others)
    found = list(own)
    for each in others:
        if tokens <= 0:
            break
        found.append(each)
        tokens -= each.tokens
    return found


def call_pairs(
    ranked: Iterable[Ranked], *, count: int = 4, informative: float = 0.5, seed: int = 0
) -> list[Ordered]:
    """For each state some calls of its better half, each against one of the worse half, drawn at random.

    Args:
        ranked: candidates with their advantages.
        count: pairs for each state, at most.
        informative: share of the pairs that is kept: those whose advantages are furthest apart, over all states alike.
            So a state in which nothing matters gives none.
        seed: of the draws.
    """
    states = [(each, _across(each)) for each in ranked]
    gaps = sorted(_gap(each, pair) for each, pairs in states for pair in pairs)
    least = gaps[int((1 - informative) * (len(gaps) - 1))] if gaps else 0.0
    found = []
    for each, pairs in states:
        wide = [pair for pair in pairs if _gap(each, pair) >= least]
        drawn = Random(f"{seed} {each.key}").sample(wide, min(count, len(wide)))
        if drawn:
            known = each.model_dump(exclude={"advantages", "oracle"})
            found.append(Ordered(**known, pairs=tuple(drawn)))
    return found


def _across(ranked: Ranked) -> list[tuple[int, int]]:
    """Each call of the better half with each of the worse half, where a text counts once."""
    places = {text: place for place, text in reversed(list(enumerate(ranked.candidates)))}
    order = sorted(places.values(), key=lambda place: -ranked.advantages[place])
    half = len(order) // 2
    return list(product(order[:half], order[len(order) - half :]))


def _gap(ranked: Ranked, pair: tuple[int, int]) -> float:
    better, worse = pair
    return ranked.advantages[better] - ranked.advantages[worse]
