"""What goes through a critic: rows of tokens, some of which are scored, and batches of them.

The candidates of one state share a row. Each begins with the last token of what they have in common, sees
that and itself and no other candidate, and has the positions that it would have alone: so the long common
part is computed once, not sixteen times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

Batch = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens.

    Attributes:
        ids: of the tokens.
        scored: 1 for each that is scored; each unbroken run of them is a turn.
        branches: for each the number of its branch, from 1; 0 for what all have in common. Empty: one chat.
        positions: of each in its branch. Empty: one chat.
    """

    ids: list[int]
    scored: list[int]
    branches: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()

    @property
    def turns(self) -> int:
        """How many are scored."""
        before = [0, *self.scored]
        return sum(now > last for now, last in zip(self.scored, before, strict=False))


def forked(common: list[int], branches: Sequence[list[int]]) -> Row:
    """One row for several ways to go on; all tokens of these are scored."""
    *shared, last = common
    ids, scored = list(shared), [0] * len(shared)
    numbers, positions = [0] * len(shared), list(range(len(shared)))
    for number, branch in enumerate(branches, 1):
        ids += [last, *branch]
        scored += [0] + [1] * len(branch)
        numbers += [number] * (1 + len(branch))
        positions += range(len(shared), len(shared) + 1 + len(branch))
    return Row(ids, scored, tuple(numbers), tuple(positions))


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


def batch_of(rows: Sequence[Row], filler: int, device: torch.device, dtype: torch.dtype) -> Batch:
    """Rows as a model takes them: either all chats, or all forks."""

    def padded(values: Iterator[Sequence[int]], value: int) -> torch.Tensor:
        tensors = [torch.tensor(each) for each in values]
        return pad_sequence(tensors, batch_first=True, padding_value=value).to(device)

    batch = {
        "input_ids": padded((row.ids for row in rows), filler),
        "completion_mask": padded((row.scored for row in rows), 0),
        "attention_mask": padded(([1] * len(row.ids) for row in rows), 0),
    }
    if rows[0].branches:
        branches = padded((row.branches for row in rows), -1)
        batch["position_ids"] = padded((row.positions for row in rows), 0)
        batch["attention_mask"] = _mask(branches, dtype)
    return batch


def _mask(branches: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What each token sees, (rows, 1, tokens, tokens), as numbers that are added; padding sees itself."""
    length = branches.shape[1]
    asking, asked = branches[:, :, None], branches[:, None, :]
    earlier = torch.ones(length, length, dtype=torch.bool, device=branches.device).tril()
    seen = ((asking == asked) | (asked == 0)) & earlier
    mask = torch.zeros(seen.shape, dtype=dtype, device=branches.device)
    return mask.masked_fill(~seen, torch.finfo(dtype).min)[:, None]
