"""What goes through a model: rows of tokens, some of which are scored, and batches of them.

Ways to go on from one state share a row: the candidates that a critic scores, and the two sides of a pair
that is learnt from. Each begins with the last token of what they have in common, sees that and itself and no
other one, and has the positions that it would have alone: so the long common part is computed once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from sweet_rl.adapters import Model

Batch = dict[str, Any]
_ALIGNED = 16
"""Numbers in a row of a mask; with others, a kernel on a GPU makes a copy of it in every layer."""


@dataclass(frozen=True, slots=True)
class Row:
    ids: list[int]  # of the tokens
    scored: list[int]  # 1 for each that is scored; each unbroken run of them is a turn
    # for each the number of its branch, from 1; 0 for what all have in common. Empty: one chat.
    branches: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()  # of each in its branch
    parents: tuple[int, ...] = ()  # for each the branch that its own begins behind; 0 mostly

    @property
    def turns(self) -> int:
        before = [0, *self.scored]
        return sum(now > last for now, last in zip(self.scored, before, strict=False))


def forked(
    common: list[int], branches: Sequence[list[int]], scored_of: Sequence[list[int]] | None = None
) -> Row:
    """One row for several ways to go on.

    Args:
        common: tokens; there is one at least.
        branches: the tokens of each way.
        scored_of: for each of these 1 or 0; None: all are scored.
    """
    *shared, last = common
    own = scored_of or [[1] * len(branch) for branch in branches]
    ids, scored = list(shared), [0] * len(shared)
    numbers, positions = [0] * len(shared), list(range(len(shared)))
    for number, (branch, marks) in enumerate(zip(branches, own, strict=True), 1):
        ids += [last, *branch]
        scored += [0, *marks]
        numbers += [number] * (1 + len(branch))
        positions += range(len(shared), len(shared) + 1 + len(branch))
    return Row(ids, scored, tuple(numbers), tuple(positions), (0,) * len(ids))


def joined(forks: Sequence[Row], shared: int) -> Row:
    """One row for several forks, whose first `shared` tokens are the same, and there once."""
    ids, scored = forks[0].ids[:shared], forks[0].scored[:shared]
    numbers, parents = [0] * shared, [0] * shared
    positions = list(forks[0].positions[:shared])
    for fork in forks:
        trunk = max(numbers, default=0) + 1
        ids += fork.ids[shared:]
        scored += fork.scored[shared:]
        numbers += [trunk + number for number in fork.branches[shared:]]
        parents += [trunk if number else 0 for number in fork.branches[shared:]]
        positions += fork.positions[shared:]
    return Row(ids, scored, tuple(numbers), tuple(positions), tuple(parents))


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """The places of rows, longest first, in groups that have so many tokens when padded."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda one: -lengths[one]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > tokens:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def batch_of(rows: Sequence[Row], filler: int) -> Batch:
    """Rows, padded: either all chats, or all forks. `placed` makes it what a model takes."""

    def padded(values: Iterator[Sequence[int]], value: int) -> torch.Tensor:
        tensors = [torch.tensor(each) for each in values]
        return pad_sequence(tensors, batch_first=True, padding_value=value)

    batch = {
        "input_ids": padded((row.ids for row in rows), filler),
        "completion_mask": padded((row.scored for row in rows), 0),
    }
    if not rows[0].branches:
        return batch | {"attention_mask": padded(([1] * len(row.ids) for row in rows), 0)}
    return batch | {
        "position_ids": padded((row.positions for row in rows), 0),
        "branches": padded((row.branches for row in rows), -1),
        "parents": padded((row.parents for row in rows), 0),
    }


def placed(batch: Batch, model: Model) -> Batch:
    """The batch where a model is. Forks get their mask there, which is large."""
    found = {name: values.to(model.device) for name, values in batch.items()}
    if "branches" in found:
        found["attention_mask"] = _mask(found.pop("branches"), found.pop("parents"), model.dtype)
    return found


def seen(batch: Batch) -> Batch:
    names = ("input_ids", "attention_mask", "position_ids")
    return {name: batch[name] for name in names if name in batch}


def _mask(branches: torch.Tensor, parents: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What each token sees, (rows, 1, tokens, tokens), as numbers that are added; padding sees itself."""
    length = branches.shape[1]
    own, asked = branches[:, :, None], branches[:, None, :]
    earlier = torch.ones(length, length, dtype=torch.bool, device=branches.device).tril()
    hidden = ~(((own == asked) | (parents[:, :, None] == asked) | (asked == 0)) & earlier)
    width = -(-length // _ALIGNED) * _ALIGNED
    mask = torch.zeros(len(branches), 1, length, width, dtype=dtype, device=branches.device)
    return mask[..., :length].masked_fill_(hidden[:, None], torch.finfo(dtype).min)
