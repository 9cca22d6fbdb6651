"""Pairs in few rows: each prompt once for its two sides, and what the prompts of a row begin with once.

Where in the rows the sides are goes with the batch, so a loss sees two rows for each pair, chosen ones first,
whatever went through the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

from sweet_rl.score_rows import Batch, Row, batch_of, joined

ROOMS = (512, 768, 1024)
"""Tokens that a row may have; one pair alone may have more. Each is tried, and the cheapest is taken."""
_ATTENDED = 2048
"""Tokens that are attended to for what all else of a token costs: about 4 for each number of a hidden state,
so it is that of a small model; for a larger one long rows cost less."""


@dataclass(frozen=True, slots=True)
class _Bin:
    places: tuple[int, ...]  # of the pairs among all
    shared: int  # tokens that all of them begin with
    size: int  # tokens of the row


def batch_of_pairs(pairs: Sequence[Row], filler: int) -> Batch:
    """Forks of two branches each, as a batch with `places`: (sides, tokens), -1 where nothing is scored."""
    bins = min((_packed(pairs, room) for room in ROOMS), key=_cost)
    rows = [joined([pairs[place] for place in each.places], each.shared) for each in bins]
    batch = batch_of(rows, filler)
    starts: dict[int, int] = {}
    for number, each in enumerate(bins):
        start = number * batch["input_ids"].shape[1]
        for place in each.places:
            starts[place] = start
            start += len(pairs[place].ids) - each.shared
    sides = [
        _scored(pair, side, starts[place]) for side in (1, 2) for place, pair in enumerate(pairs)
    ]
    return batch | {"places": pad_sequence(sides, batch_first=True, padding_value=-1)}


def by_side(values: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each token's value, (rows, tokens), the sides' own, (sides, tokens); and which are scored."""
    if "places" not in batch:
        return values, batch["completion_mask"]
    places = batch["places"]
    return values.flatten()[places.clamp(min=0)], (places >= 0).long()


def _scored(pair: Row, side: int, start: int) -> torch.Tensor:
    """Where the scored tokens of a side are among all tokens of a batch; -1 for the others."""
    marks = enumerate(zip(pair.branches, pair.scored, strict=True))
    return torch.tensor(
        [start + at if scored else -1 for at, (branch, scored) in marks if branch == side]
    )


def _packed(pairs: Sequence[Row], room: int) -> list[_Bin]:
    """Longest first, each pair where it takes the fewest tokens; in a row of its own if there is no room."""
    bins: list[_Bin] = []
    for place in sorted(range(len(pairs)), key=lambda one: -len(pairs[one].ids)):
        grown = [(_with(each, place, pairs), number) for number, each in enumerate(bins)]
        fitting = [(each.size - bins[at].size, at, each) for each, at in grown if each.size <= room]
        if fitting:
            _, at, bins[at] = min(fitting, key=lambda found: found[:2])
        else:
            pair = pairs[place]
            bins.append(_Bin((place,), pair.branches.count(0), len(pair.ids)))
    return bins


def _with(old: _Bin, place: int, pairs: Sequence[Row]) -> _Bin:
    first, new = pairs[old.places[0]], pairs[place]
    most = min(old.shared, new.branches.count(0))
    both = zip(first.ids[:most], new.ids[:most], strict=True)
    shared = next((at for at, (one, other) in enumerate(both) if one != other), most)
    again = (old.shared - shared) * (len(old.places) - 1)
    return _Bin((*old.places, place), shared, old.size + again + len(new.ids) - shared)


def _cost(bins: Sequence[_Bin]) -> int:
    longest = max(each.size for each in bins)
    return len(bins) * longest * (longest + _ATTENDED)
