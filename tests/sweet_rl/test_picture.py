"""The picture of a collaboration has a score beside each message of the agent."""

from io import BytesIO

import pytest

from sweet_rl.picture import LINES, draw
from tests.sweet_rl.conversations import played

pytest.importorskip("matplotlib", reason="the extra `eval` has it")
TALK = ("I want f for $1 or $2.", "Which limit?", "7", "x > 7\n" * 40)


def size(content: bytes) -> tuple[int, int]:
    from matplotlib.image import imread

    height, width, _ = imread(BytesIO(content)).shape
    return width, height


def test_a_picture_grows_with_the_talk_and_not_with_one_endless_message() -> None:
    short = size(draw(played("t", 0, 0.5, *TALK[:2]), {"critic": [0.25]}))
    whole = size(draw(played("t", 0, 0.5, *TALK), {"critic": [0.25, -1.5], "oracle": [1, 0]}))
    assert whole[0] == short[0]
    assert short[1] < whole[1] < short[1] + 130 * (LINES + 4) * 0.25


def test_each_turn_needs_a_score() -> None:
    with pytest.raises(ValueError, match="2 turns"):
        draw(played("t", 0, 0.5, *TALK), {"critic": [0.25]})
