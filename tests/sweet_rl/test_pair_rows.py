"""Pairs in few rows: whatever shares a row, each token sees what it would see alone."""

from random import Random

import pytest

from tests.support.lazy import lazy

pair_rows = lazy("sweet_rl.rows")
torch = lazy("torch")

FILLER = 0
Pair = tuple[list[int], list[list[int]], list[list[int]]]


def some_pairs(count: int, seed: int) -> list[Pair]:
    """Prompts with one of two beginnings, and for each two sides with what of them is scored."""
    chance = Random(seed)

    def tokens(most: int) -> list[int]:
        return [chance.randint(1, 99) for _ in range(chance.randint(1, most))]

    beginnings = [[100 + at for at in range(6)], [200 + at for at in range(6)]]
    pairs = []
    for _ in range(count):
        sides = [tokens(9), tokens(9)]
        scored = [[chance.randint(0, 1) for _ in side] for side in sides]
        pairs.append((chance.choice(beginnings) + tokens(5), sides, scored))
    return pairs


def fork(
    prompt: list[int], sides: list[list[int]], scored: list[list[int]] | None = None
) -> list[object]:
    """The two sides of a pair."""
    marks = scored or [[1] * len(side) for side in sides]
    return [pair_rows.forked(prompt, [side], [own]) for side, own in zip(sides, marks, strict=True)]


@pytest.mark.parametrize("room", [1, 30, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_each_side_has_its_tokens_and_sees_its_prompt_and_itself(
    monkeypatch: pytest.MonkeyPatch, seed: int, room: int
) -> None:
    monkeypatch.setattr("sweet_rl.rows.ROOMS", (room,))
    pairs = some_pairs(9, seed)
    batch = pair_rows.batch_of_pairs([fork(*pair) for pair in pairs], FILLER)
    ids, positions = batch["input_ids"], batch["position_ids"]
    rows, length = ids.shape
    seen = pair_rows._mask(batch["branches"], batch["parents"], torch.float32)[:, 0] == 0
    found, marks = pair_rows.by_side(torch.arange(rows * length).view(rows, length), batch)
    wanted = [
        (prompt, sides[one], scored[one]) for one in (0, 1) for prompt, sides, scored in pairs
    ]
    for (prompt, tokens, scored), places, own in zip(wanted, found, marks, strict=True):
        assert own[: len(scored) + 1].tolist() == [0, *scored], "the prompt's last token first"
        assert not own[len(scored) + 1 :].any()
        for at in own.nonzero()[:, 0].tolist():
            row, token = divmod(int(places[at]), length)
            visible = seen[row, token]
            order = positions[row, visible].argsort()
            assert positions[row, visible][order].tolist() == list(range(len(prompt) + at))
            assert ids[row, visible][order].tolist() == prompt + tokens[:at]
    assert int(batch["completion_mask"].sum()) == int(marks.sum())


def test_pairs_share_rows_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [fork([1, 2, 3, 4], [[5, at], [at]]) for at in range(4)]
    sizes = {}
    for room in (1, 14, 1000):
        monkeypatch.setattr("sweet_rl.rows.ROOMS", (room,))
        sizes[room] = tuple(pair_rows.batch_of_pairs(pairs, FILLER)["input_ids"].shape)
    assert sizes == {1: (8, 6), 14: (2, 14), 1000: (1, 23)}
    monkeypatch.setattr("sweet_rl.rows.ROOMS", (1, 14, 1000))
    assert tuple(pair_rows.batch_of_pairs(pairs, FILLER)["input_ids"].shape) == (1, 23), (
        "the cheapest"
    )


def test_a_side_of_several_pairs_is_computed_once() -> None:
    good, bad = [5, 6], [[7], [8], [7]]
    pairs = [fork([1, 2, 3, 4], [good, each]) for each in bad]
    pairs.append(fork([1, 2, 3, 9], [good, bad[0]]))
    batch = pair_rows.batch_of_pairs(pairs, FILLER)
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4, 5, 6, 9, 5, 6, 4, 7, 4, 8, 9, 7]]
    ids, marks = pair_rows.by_side(batch["input_ids"], batch)
    said = [row[own > 0].tolist() for row, own in zip(ids, marks, strict=True)]
    assert said == [good, good, good, good, [7], [8], [7], [7]]
    places = batch["places"].tolist()
    assert places[0] == places[1] == places[2] != places[3]
