"""Learning from preferences among ways to go on, in plain PyTorch: the steps that `fitting` takes.

A side is a way: the calls of a whole episode (multi-turn DPO, the critic), or one call (the actor). Its score is the
sum of its tokens' log-probabilities, each with its weight, less what the reference gives it; a pair of sides costs
-log sigmoid(beta * (better - worse)). All losses here depend on the model by these scores alone. So a step computes the
scores first, then how the loss changes with each, and then the gradient part by part, within any memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.functional import cross_entropy, logsigmoid
from typing_extensions import override

from sweet_rl.memory_episodes.examples import ScoredRow
from sweet_rl.rows import batch_of, placed, seen
from sweet_rl.warm_start.fitting import Learning

Model = Any
TOKENS_AT_ONCE = 16_000
"""Of rows that go through the model together, padded."""


@dataclass(frozen=True, slots=True)
class Example:
    """Sides with preferences among them: the plays of one task, or the calls of one state."""

    rows: tuple[ScoredRow, ...]  # their sides are numbered from 0
    pairs: tuple[tuple[int, int], ...]  # the better side and the worse one
    # what each side's weights add up to: its tokens, or its calls where a call's score is a mean
    lengths: tuple[int, ...]
    references: tuple[float, ...] = ()  # each side's score by the reference

    @property
    def tokens(self) -> int:
        return sum(len(each.row.ids) for each in self.rows)


@dataclass(frozen=True)
class Imitation(Learning[Example]):
    @override
    def size(self, row: Example, /) -> int:
        return row.tokens

    @override
    def step(self, model: Model, batch: Sequence[Example], /) -> float:
        lengths = max(1, sum(sum(example.lengths) for example in batch))
        total = 0.0
        for part, owners in _parts(batch):
            count = sum(len(example.lengths) for example in batch)
            loss = -_of_part(model, part, owners, count).sum() / lengths
            loss.backward()
            total += float(loss.detach())
        return total


@dataclass(frozen=True)
class Preference(Learning[Example]):
    beta: float  # how strongly the policy may leave the reference
    nll: float = 0.0  # weight of the better sides' mean negative log-likelihood

    @override
    def size(self, row: Example, /) -> int:
        return row.tokens

    @override
    def step(self, model: Model, batch: Sequence[Example], /) -> float:
        with torch.no_grad():
            values = scores(model, batch)
        values.requires_grad_()
        loss = self.of(values, batch)
        loss.backward()
        for part, owners in _parts(batch):
            own = _of_part(model, part, owners, len(values))
            (own * values.grad).sum().backward()
        return float(loss.detach())

    def of(self, values: torch.Tensor, batch: Sequence[Example]) -> torch.Tensor:
        better, worse = _pairs(batch, values.device)
        lengths = [each for example in batch for each in example.lengths]
        references = [each for example in batch for each in example.references]
        gained = values - torch.tensor(references, device=values.device)
        loss = -logsigmoid(self.beta * (gained[better] - gained[worse])).mean()
        if self.nll:
            chosen = better.unique()
            size = torch.tensor(lengths, device=values.device)[chosen].sum().clamp(min=1)
            loss = loss - self.nll * values[chosen].sum() / size
        return loss


def with_references(model: Model, examples: Sequence[Example], at_once: int = 16) -> list[Example]:
    model.eval()
    found = []
    for start in range(0, len(examples), at_once):
        batch = examples[start : start + at_once]
        with torch.no_grad():
            values = scores(model, batch).tolist()
        for example in batch:
            own, values = values[: len(example.lengths)], values[len(example.lengths) :]
            found.append(replace(example, references=tuple(own)))
    return found


def scores(model: Model, batch: Sequence[Example]) -> torch.Tensor:
    count = sum(len(example.lengths) for example in batch)
    total = torch.zeros(count, device=model.device)
    for part, owners in _parts(batch):
        total = total + _of_part(model, part, owners, count)
    return total


def _of_part(
    model: Model, part: Sequence[ScoredRow], owners: Sequence[int], count: int
) -> torch.Tensor:
    """What some rows add to the scores; only scored tokens have logits computed."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    made = placed(batch_of([each.row for each in part], 0), base)
    device, longest = base.device, made["input_ids"].shape[1]
    weights = torch.zeros(len(part), longest, device=device)
    sides = torch.zeros(len(part), longest, dtype=torch.long, device=device)
    for number, (each, owner) in enumerate(zip(part, owners, strict=True)):
        weights[number, : len(each.weights)] = torch.tensor(each.weights, device=device)
        sides[number, : len(each.sides)] = torch.tensor(each.sides, device=device) + owner
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
        hidden = base.model(**seen(made), use_cache=False).last_hidden_state[:, :-1]
        wanted = weights[:, 1:] != 0
        logits = base.lm_head(hidden[wanted])
    likely = -cross_entropy(logits.float(), made["input_ids"][:, 1:][wanted], reduction="none")
    added = weights[:, 1:][wanted] * likely
    return torch.zeros(count, device=device).index_add(0, sides[:, 1:][wanted], added)


def _parts(batch: Sequence[Example]) -> Iterator[tuple[list[ScoredRow], list[int]]]:
    """All rows in parts that fit the memory, each row with the number of its example's first side."""
    rows: list[tuple[ScoredRow, int]] = []
    first = 0
    for example in batch:
        rows += [(each, first) for each in example.rows]
        first += len(example.lengths)
    rows.sort(key=lambda one: len(one[0].row.ids))
    part: list[tuple[ScoredRow, int]] = []
    for each in rows:
        if part and (len(part) + 1) * len(each[0].row.ids) > TOKENS_AT_ONCE:
            yield [one for one, _ in part], [owner for _, owner in part]
            part = []
        part.append(each)
    if part:
        yield [one for one, _ in part], [owner for _, owner in part]


def _pairs(batch: Sequence[Example], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    found, first = [], 0
    for example in batch:
        found += [(first + better, first + worse) for better, worse in example.pairs]
        first += len(example.lengths)
    both = torch.tensor(found, device=device)
    return both[:, 0], both[:, 1]
