"""What of documents and histories fits into a prompt, and what share of them that is."""

from collections.abc import Sequence

import pytest

from memserver_evals.systems.history import AT_ONCE, Fitted, Piece, fit, fit_cut
from memserver_evals.systems.speaking import Speaker
from memserver_evals.task import Cut, Found


class Counting(Speaker):
    """Counts a token for each four characters, and how many texts it was asked about."""

    def __init__(self) -> None:
        object.__setattr__(self, "asked", 0)

    async def count(self, texts: Sequence[str]) -> list[int]:
        object.__setattr__(self, "asked", self.asked + len(texts))  # type: ignore[attr-defined]
        return [len(text) // 4 for text in texts]


def pieces(*lengths: int) -> list[Piece]:
    return [Piece(str(n % 10) * length, Found(str(n))) for n, length in enumerate(lengths)]


def shown(fitted: Fitted) -> list[tuple[str, int]]:
    return [(piece.found.id, len(piece.text)) for piece in fitted.pieces]


async def test_the_first_that_fit_are_shown_or_the_newest_in_order() -> None:
    """Each takes 10 + 1 tokens."""
    three = pieces(43, 43, 43)
    first = await fit(Counting(), three, 25)
    assert (shown(first), first.tokens, first.wanted) == ([("0", 43), ("1", 43)], 24, 36)
    newest = await fit(Counting(), three, 25, newest=True)
    assert shown(newest) == [("1", 43), ("2", 43)]
    everything = await fit(Counting(), three, 36)
    assert everything.tokens == everything.wanted


async def test_where_not_even_one_fits_it_is_shown_cut() -> None:
    fitted = await fit(Counting(), pieces(399), 10)
    [(_, length)] = shown(fitted)
    assert 0 < length <= 40
    assert (await fit(Counting(), pieces(399), 0)).pieces == ()


async def test_of_thousands_only_those_are_counted_that_may_fit_and_the_rest_is_estimated() -> None:
    speaker = Counting()
    fitted = await fit(speaker, pieces(*[43] * 7000), 120)
    assert len(fitted.pieces) == 10
    assert speaker.asked == AT_ONCE  # type: ignore[attr-defined]
    assert fitted.wanted == 7000 * 12


@pytest.mark.parametrize(
    ("cut", "lengths", "tokens"),
    [("tokens", [43, 39], 23), ("characters", [11, 11], 8), ("whole", [90], 23)],
)
async def test_every_document_gets_its_share_in_tokens_or_as_the_paper_did_in_characters(
    cut: Cut, lengths: list[int], tokens: int
) -> None:
    """Documents of 23 and 12 tokens, and room for 23: a share is 11."""
    fitted = await fit_cut(Counting(), pieces(90, 43), 23, cut)
    assert ([length for _, length in shown(fitted)], fitted.tokens) == (lengths, tokens)
    assert fitted.wanted == 35


async def test_more_documents_than_there_is_room_for_are_none() -> None:
    speaker = Counting()
    fitted = await fit_cut(speaker, pieces(*[43] * 7000), 120, "tokens")
    assert fitted.pieces == ()
    assert fitted.wanted == 7000 * 12
    assert speaker.asked == AT_ONCE  # type: ignore[attr-defined]
