"""Pairs in few rows: what all prompts begin with once in a row, and each prompt once for its two sides.

Where in the rows the sides are goes with the batch, so a loss sees two rows for each pair, chosen ones first,
whatever went through the model.
"""

from collections.abc import Sequence
from itertools import takewhile

import torch
from torch.nn.utils.rnn import pad_sequence

from memserver.sweet_rl.score_rows import Batch, Row, batch_of, joined

ROW = 768
"""Tokens that a row may have; one pair alone may have more. The more, the less is there twice, and the more
every token attends to for nothing."""


def batch_of_pairs(pairs: Sequence[Row], filler: int) -> Batch:
    """Forks of two branches each, as a batch with `places`: (sides, tokens), -1 where nothing is scored."""
    starts = [pair.ids[: pair.branches.count(0)] for pair in pairs]
    alike = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*starts, strict=False))
    shared = sum(1 for _ in alike)
    sizes = [len(pair.ids) - shared for pair in pairs]
    groups = _fitted(sizes, max(ROW - shared, *sizes))
    batch = batch_of([joined([pairs[one] for one in group], shared) for group in groups], filler)
    starts_at: dict[int, int] = {}
    for number, group in enumerate(groups):
        start = number * batch["input_ids"].shape[1]
        for one in group:
            starts_at[one] = start
            start += sizes[one]
    places = [
        _places(pair, starts_at[one], side) for side in (1, 2) for one, pair in enumerate(pairs)
    ]
    return batch | {"places": pad_sequence(places, batch_first=True, padding_value=-1)}


def by_side(values: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each token's value, (rows, tokens), the sides' own, (sides, tokens); and which are scored."""
    if "places" not in batch:
        return values, batch["completion_mask"]
    places = batch["places"]
    return values.flatten()[places.clamp(min=0)], (places >= 0).long()


def _places(pair: Row, start: int, side: int) -> torch.Tensor:
    marks = enumerate(zip(pair.branches, pair.scored, strict=True))
    return torch.tensor(
        [start + at if scored else -1 for at, (branch, scored) in marks if branch == side]
    )


def _fitted(sizes: Sequence[int], room: int) -> list[list[int]]:
    """The places of sizes, longest first, each in the first group that has room for it."""
    groups: list[list[int]] = []
    for place in sorted(range(len(sizes)), key=lambda one: -sizes[one]):
        for group in groups:
            if sum(sizes[one] for one in group) + sizes[place] <= room:
                group.append(place)
                break
        else:
            groups.append([place])
    return groups
