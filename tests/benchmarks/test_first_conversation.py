"""The first conversation counts as right what is right, and nothing else."""

import random
from collections.abc import Sequence

import httpx2
import pytest

from benchmarks.first_conversation import SMALL_TALK, Tally, Told, converse
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import ScriptedModel, Step, count_bytes, say
from memserver.testing.scripted_rules import last_user_text
from sweet_rl.warm_start.facts import split_of
from sweet_rl.warm_start.small_talk import sentences
from tests.support.server import OneDatabase, serving

TOLD = Told("Ada", "cello", "Hugo", "March", 3)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Ada, Hugo, March 3.", {"name": True, "thing": True, "birthday": True}),
        ("hugo, march the 3rd", {"name": False, "thing": True, "birthday": True}),
        ("Ada, March", {"name": True, "thing": False, "birthday": False}),
    ],
)
async def test_an_answer_is_right_if_it_has_what_was_said(
    database: OneDatabase, answer: str, right: dict[str, bool]
) -> None:
    def answered(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        return say(answer if "?" in last_user_text(prompt) else "I see, how nice of you to say so!")

    model = ScriptedModel(answered, count=lambda text: count_bytes(text) // 10)
    tally = Tally()
    async with (
        serving(database, model) as server,
        httpx2.AsyncClient(
            transport=server.http._transport, base_url="http://localhost/v1"
        ) as http,
    ):
        await converse(http, TOLD, random.Random(1), tally)
    figures = tally.figures()
    assert tally.rights == [right]
    assert figures["right"] == float(all(right.values()))
    assert (figures["turns"], figures["malformed_replies"]) == (17, 0)
    assert figures["stop_reasons"] == {"message_sent": 17}
    assert "My birthday is March 3." in tally.transcripts[0]


def test_what_is_said_and_talked_about_is_in_no_training() -> None:
    known = {text for text, _ in sentences()}
    assert not known & set(SMALL_TALK)
    for number in range(30):
        reported = Told.at_random(random.Random(number))
        assert split_of(reported.name) == split_of(reported.thing_name) == "test"
