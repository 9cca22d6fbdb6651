"""Orders the calls of a state by a critic, and says how well that agrees with what executing them came to."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from peft import PeftModel
from transformers import AutoTokenizer

from memserver_evals.scoring.statistics import Estimate, estimate
from sweet_rl import adapters
from sweet_rl.memory_episodes.examples import Tokenizer, examples_to_score
from sweet_rl.memory_episodes.layout import CRITIC_OF, Arm, Run
from sweet_rl.memory_episodes.learning import scores_by_example
from sweet_rl.memory_episodes.records import Executed
from sweet_rl.oracle import agreement
from sweet_rl.progress import show_progress
from sweet_rl.trajectories import Candidates, Ranked

Scores = list[tuple[float, ...]]
FIELDS = set(Candidates.model_fields)


class Scorer:
    def __init__(self, base: Path, reference: Path | None) -> None:
        self._base, self.reference = base, reference
        self._tokenizer: Tokenizer = AutoTokenizer.from_pretrained(base)

    def advantages(self, states: Sequence[Candidates], critic: Path, *, hidden: bool) -> Scores:
        """The mean log-ratio of critic and reference for each call; both see the hidden information, or neither."""
        own = self.likelihoods(states, critic, hidden=hidden)
        before = self.likelihoods(states, self.reference, hidden=hidden)
        return _differences(own, before)

    def informed(self, states: Sequence[Candidates]) -> Scores:
        """How much likelier each call is to the reference once it has the hidden information: no training."""
        known = self.likelihoods(states, self.reference, hidden=True)
        return _differences(known, self.likelihoods(states, self.reference, hidden=False))

    def likelihoods(
        self, states: Sequence[Candidates], adapter: Path | None, *, hidden: bool
    ) -> Scores:
        model = adapters.load_base(self._base)
        if adapter is not None:
            model = PeftModel.from_pretrained(model, str(adapters.checked(adapter)))
        examples = examples_to_score(states, self._tokenizer, hidden=hidden)
        with show_progress("states") as progress:
            return scores_by_example(model, examples, progress)


def ranked(states: Sequence[Candidates], advantages: Scores) -> list[Ranked]:
    """States with the critic's scores, and with the oracle's where they were executed."""
    return [
        Ranked(**state.model_dump(include=FIELDS), advantages=scored, oracle=_oracle(state))
        for state, scored in zip(states, advantages, strict=True)
    ]


def rank_candidates(run: Run, scorer: Scorer, arm: Arm, seed: int) -> list[Ranked]:
    """A seed's candidates as the critic of an arm has them."""
    critic = CRITIC_OF[arm]
    states = [state for each in run.candidates(seed) for state in each.states]
    hidden = critic == "critic"
    return ranked(states, scorer.advantages(states, run.adapter(critic, seed), hidden=hidden))


def agreements(run: Run, scorer: Scorer, seed: int) -> dict[str, Any]:
    """How well those who could order calls agree with what executing them came to."""
    states = [state for each in run.executed() for state in each.states]
    likely = scorer.likelihoods(states, scorer.reference, hidden=False)
    found = {
        "one execution": ceiling(states),
        "likelihood": agreement(ranked(states, likely)),
        "likelier when informed": agreement(ranked(states, scorer.informed(states))),
    }
    by_critic = {}
    for critic in dict.fromkeys(CRITIC_OF.values()):
        adapter = run.adapter(critic, seed)
        if adapter.is_dir():
            scored = scorer.advantages(states, adapter, hidden=critic == "critic")
            by_critic[critic] = ranked(states, scored)
            found[critic] = agreement(by_critic[critic])
    if len(by_critic) > 1 and (more := raised(*by_critic.values())) is not None:
        interval = {"mean": more.mean, "interval": [more.low, more.high], "states": more.count}
        found["the hidden information raises it by"] = interval
    return found


def ceiling(states: Iterable[Executed]) -> dict[str, Any]:
    """How well one execution of each call agrees with the mean of the others: no critic can do much better."""
    found = [
        Ranked(
            **state.model_dump(include=FIELDS),
            advantages=tuple(each[0] for each in state.rewards),
            oracle=tuple(fmean(each[1:]) for each in state.rewards),
        )
        for state in states
        if state.rewards and len(state.rewards[0]) > 1
    ]
    return agreement(found)


def raised(one: Iterable[Ranked], other: Iterable[Ranked]) -> Estimate | None:
    """By how much one critic's agreement within states is above another's, the states of a task drawn together.

    None where in no state one call came to more than another.
    """
    values, clusters = [], []
    for a, b in zip(one, other, strict=True):
        both = [agreement([each])["agreement"] for each in (a, b)]
        if None not in both:
            values.append(both[0] - both[1])
            clusters.append(a.task)
    return estimate(values, clusters) if values else None


def _oracle(state: Candidates) -> tuple[float, ...] | None:
    rewards = state.rewards if isinstance(state, Executed) else ()
    return tuple(fmean(each) for each in rewards) or None


def _differences(one: Scores, other: Scores) -> Scores:
    return [
        tuple(a - b for a, b in zip(*both, strict=True)) for both in zip(one, other, strict=True)
    ]
