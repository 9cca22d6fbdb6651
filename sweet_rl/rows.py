"""What goes through a model: rows of tokens, some of which are scored, and batches of them.

Ways to continue from one state share a row: the candidates that a critic scores, and the two sides of a pair that is
learnt from. Each begins with the last token of what they have in common, sees that and itself and no other one, and
has the positions that it would have alone: so the long common part is computed once. Sides whose prompts begin alike
share rows, too, and one that several pairs have is there once; where in the rows they are goes with the batch, so a loss
sees two rows for each pair, chosen ones first, whatever went through the model.
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
ROOMS = (512, 768, 1024, 2048)
"""Tokens that a row may have; one side alone may have more. Each is tried, and the cheapest is taken."""
_ATTENDED = 2048
"""Tokens that are attended to for what all else of a token costs: about 4 for each number of a hidden state,
so it is that of a small model; for a larger one long rows cost less."""


@dataclass(frozen=True, slots=True)
class Row:
    ids: list[int]  # of the tokens
    scored: list[int]  # 1 for each that is scored; each unbroken run of them is a turn
    # for each the number of its branch, from 1; 0 for what all have in common. Empty: one chat.
    branches: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()  # of each in its branch
    parents: tuple[int, ...] = ()  # for each the branch that its own begins after; 0 mostly

    @property
    def turns(self) -> int:
        before = [0, *self.scored]
        return sum(now > last for now, last in zip(self.scored, before, strict=False))


def forked(
    common: list[int], branches: Sequence[list[int]], scored_of: Sequence[list[int]] | None = None
) -> Row:
    """One row for several ways to continue.

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


@dataclass(frozen=True, slots=True)
class _Bin:
    places: tuple[int, ...]  # of the sides among all
    shared: int  # tokens that all of them begin with
    size: int  # tokens of the row


def batch_of_pairs(pairs: Sequence[tuple[Row, Row]], filler: int) -> Batch:
    """Two forks of one branch each, as a batch with `places`: (sides, tokens), -1 where nothing is scored."""
    both = [pair[side] for side in (0, 1) for pair in pairs]
    sides: list[Row] = []
    numbers = [_number_of(side, sides) for side in both]
    bins = min((_packed(sides, room) for room in ROOMS), key=_cost)
    rows = [joined([sides[place] for place in each.places], each.shared) for each in bins]
    batch = batch_of(rows, filler)
    starts: dict[int, int] = {}
    for number, each in enumerate(bins):
        start = number * batch["input_ids"].shape[1]
        for place in each.places:
            starts[place] = start
            start += len(sides[place].ids) - each.shared
    found = [_scored(sides[number], starts[number]) for number in numbers]
    return batch | {"places": pad_sequence(found, batch_first=True, padding_value=-1)}


def _number_of(side: Row, sides: list[Row]) -> int:
    """Its place among the different ones, to which it is added if need be."""
    if side not in sides:
        sides.append(side)
    return sides.index(side)


def by_side(values: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each token's value, (rows, tokens), the sides' own, (sides, tokens); and which are scored."""
    if "places" not in batch:
        return values, batch["completion_mask"]
    places = batch["places"]
    return values.flatten()[places.clamp(min=0)], (places >= 0).long()


def _scored(side: Row, start: int) -> torch.Tensor:
    """Where the scored tokens of a side are among all tokens of a batch; -1 for the others."""
    marks = enumerate(zip(side.branches, side.scored, strict=True))
    return torch.tensor([start + at if scored else -1 for at, (branch, scored) in marks if branch])


def _packed(sides: Sequence[Row], room: int) -> list[_Bin]:
    """Longest first, each side where it takes the fewest tokens; in a row of its own if there is no room."""
    bins: list[_Bin] = []
    for place in sorted(range(len(sides)), key=lambda one: -len(sides[one].ids)):
        grown = [(_with(each, place, sides), number) for number, each in enumerate(bins)]
        fitting = [(each.size - bins[at].size, at, each) for each, at in grown if each.size <= room]
        if fitting:
            _, at, bins[at] = min(fitting, key=lambda found: found[:2])
        else:
            side = sides[place]
            bins.append(_Bin((place,), side.branches.count(0), len(side.ids)))
    return bins


def _with(old: _Bin, place: int, sides: Sequence[Row]) -> _Bin:
    first, new = sides[old.places[0]], sides[place]
    shared = most = min(old.shared, new.branches.count(0))
    if first.ids[:most] != new.ids[:most]:
        both = zip(first.ids, new.ids, strict=False)
        shared = next(at for at, (one, other) in enumerate(both) if one != other)
    again = (old.shared - shared) * (len(old.places) - 1)
    return _Bin((*old.places, place), shared, old.size + again + len(new.ids) - shared)


def _cost(bins: Sequence[_Bin]) -> int:
    longest = max(each.size for each in bins)
    return len(bins) * longest * (longest + _ATTENDED)
