"""Learning from preferences among ways to continue, in plain PyTorch: the steps that `fitting` takes.

A side is a way: the calls of a whole episode (multi-turn DPO, the critic), or one call (the actor). Its score is the
sum of its tokens' log-probabilities, each with its weight, less what the reference gives it; a pair of sides costs
-log sigmoid(beta * (better - worse)). All losses here depend on the model by these scores alone. So a step computes the
scores first, then how the loss changes with each, and then the gradient part by part, within any memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import Any

import torch
from torch.nn.functional import cross_entropy, logsigmoid
from typing_extensions import override

from sweet_rl.memory_episodes.examples import Example, ScoredRow
from sweet_rl.progress import Progress, unseen
from sweet_rl.rows import batch_of, batches, placed, seen
from sweet_rl.warm_start.fitting import Learning

Model = Any
TOKENS_AT_ONCE = 16_000
"""Of rows that go through the model together, padded."""
AT_ONCE = 8
_Owned = tuple[ScoredRow, int]
"""A row, and the number of its example's first side."""


class LearningSides(Learning[Example]):
    @override
    def size(self, row: Example, /) -> int:
        return row.tokens


class Imitation(LearningSides):
    """Learning all sides as they are: rejection fine-tuning, of the plays that were not rejected."""

    @override
    def step(self, model: Model, batch: Sequence[Example], /) -> float:
        tokens, total = max(1, sum(sum(example.lengths) for example in batch)), 0.0
        for part in _parts(batch):
            loss = -_scores_of(model, part, _sides(batch)).sum() / tokens
            loss.backward()
            total += float(loss.detach())
        return total


@dataclass(frozen=True)
class PreferenceSettings(LearningSides):
    beta: float  # how strongly the policy may leave the reference
    nll: float = 0.0  # weight of the better sides' mean negative log-likelihood

    @override
    def step(self, model: Model, batch: Sequence[Example], /) -> float:
        with torch.no_grad():
            values = scores(model, batch)
        values.requires_grad_()
        loss = self.of(values, batch)
        loss.backward()
        for part in _parts(batch):
            own = _scores_of(model, part, len(values))
            (own * values.grad).sum().backward()
        return float(loss.detach())

    def of(self, values: torch.Tensor, batch: Sequence[Example]) -> torch.Tensor:
        """The loss of a batch from the scores of all its sides, in order."""
        pairs = [
            (first + better, first + worse)
            for example, first in _with_first(batch)
            for better, worse in example.pairs
        ]
        better, worse = torch.tensor(pairs, device=values.device).T
        lengths = [each for example in batch for each in example.lengths]
        references = [each for example in batch for each in example.references]
        gained = values - torch.tensor(references, device=values.device)
        loss = -logsigmoid(self.beta * (gained[better] - gained[worse])).mean()
        if self.nll:
            chosen = better.unique()
            size = torch.tensor(lengths, device=values.device)[chosen].sum().clamp(min=1)
            loss = loss - self.nll * values[chosen].sum() / size
        return loss


def with_references(model: Model, examples: Sequence[Example]) -> list[Example]:
    """The examples with their sides' scores by the model as it is now."""
    known = scores_by_example(model, examples)
    return [replace(each, references=own) for each, own in zip(examples, known, strict=True)]


def scores_by_example(
    model: Model, examples: Sequence[Example], progress: Progress = unseen
) -> list[tuple[float, ...]]:
    model.eval()
    found: list[tuple[float, ...]] = []
    for start in range(0, len(examples), AT_ONCE):
        batch = examples[start : start + AT_ONCE]
        with torch.no_grad():
            values = iter(scores(model, batch).tolist())
        found += [tuple(islice(values, len(example.lengths))) for example in batch]
        progress(len(found), len(examples))
    return found


def scores(model: Model, batch: Sequence[Example]) -> torch.Tensor:
    """The weighted log-probability of every side of every example, in order."""
    total = torch.zeros(_sides(batch), device=model.device)
    for part in _parts(batch):
        total = total + _scores_of(model, part, _sides(batch))
    return total


def _scores_of(model: Model, part: Sequence[_Owned], count: int) -> torch.Tensor:
    """What some rows add to the scores; only scored tokens have logits computed."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    made = placed(batch_of([each.row for each, _ in part], 0), base)
    device, longest = base.device, made["input_ids"].shape[1]
    weights = torch.zeros(len(part), longest, device=device)
    sides = torch.zeros(len(part), longest, dtype=torch.long, device=device)
    for number, (each, first) in enumerate(part):
        weights[number, : len(each.weights)] = torch.tensor(each.weights, device=device)
        sides[number, : len(each.sides)] = torch.tensor(each.sides, device=device) + first
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
        hidden = base.model(**seen(made), use_cache=False).last_hidden_state[:, :-1]
        wanted = weights[:, 1:] != 0
        logits = base.lm_head(hidden[wanted])
    likely = -cross_entropy(logits.float(), made["input_ids"][:, 1:][wanted], reduction="none")
    added = weights[:, 1:][wanted] * likely
    return torch.zeros(count, device=device).index_add(0, sides[:, 1:][wanted], added)


def _parts(batch: Sequence[Example]) -> Iterator[list[_Owned]]:
    """All rows in parts that fit the memory."""
    rows = [(row, first) for example, first in _with_first(batch) for row in example.rows]
    for places in batches([len(row.row.ids) for row, _ in rows], TOKENS_AT_ONCE):
        yield [rows[place] for place in places]


def _with_first(batch: Sequence[Example]) -> Iterator[tuple[Example, int]]:
    """Each example with the number of its first side."""
    yield from zip(
        batch, accumulate((len(each.lengths) for each in batch), initial=0), strict=False
    )


def _sides(batch: Sequence[Example]) -> int:
    return sum(len(example.lengths) for example in batch)
