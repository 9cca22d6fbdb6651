"""Broken replies by the thousand; `python -m benchmarks.fuzz_replies` tells what came of them."""

from itertools import islice

import pytest

from memserver.errors import ProtocolViolation
from memserver.llm.reply_parser import parse_json
from memserver.llm.text_stream import CallText
from tests.support.broken_replies import TOOLS, replies
from tests.support.nightly import times
from tests.support.reply_outcomes import KINDS, first, outcomes

MANY = times(2_000, 100_000)


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(2_000, id="few"),
        pytest.param(MANY, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_a_broken_reply_is_a_call_or_a_violation_reported_in_a_short_sentence(count: int):
    counts, faults, slowest = outcomes(first(count, seed=1))
    assert faults == []
    assert counts.total() == count
    assert slowest < 1


def test_the_replies_are_broken_in_every_way_that_a_violation_reports():
    counts, _, _ = outcomes(first(5_000, seed=2))
    assert counts.keys() == {"a call", *KINDS}


def test_what_is_streamed_while_a_call_in_text_comes_is_its_message_or_nothing():
    reported = 0
    for reply in (reply for reply in first(5_000, seed=4) if not reply.calls):
        stream, text = CallText(), reply.content
        heard = "".join(stream.feed(text[start : start + 7]) for start in range(0, len(text), 7))
        try:
            call = parse_json(reply, TOOLS).call
        except ProtocolViolation:
            continue
        assert heard in {"", call.arguments.get("message") if call.name == "send_message" else ""}
        reported += bool(heard)
    assert reported > 10


def test_a_seed_always_gives_the_same_replies():
    def some(seed: int) -> list[str]:
        return [repr(reply) for reply in islice(replies(seed), 50)]

    assert some(3) == some(3) != some(4)
