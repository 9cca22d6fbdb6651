"""What synthetic users say, and that nothing of the tests is in the training."""

import re
from datetime import UTC, datetime
from random import Random

import pytest

from sweet_rl.warm_start.facts import draw, lasting, passing, split_of
from sweet_rl.warm_start.intents import HELD_OUT, TRAINING, Ask, Holdout, Notice, Tell, User
from sweet_rl.warm_start.small_talk import (
    LONGEST_REPLY,
    SmallTalk,
    load_replies,
    sentences,
    trimmed,
)
from sweet_rl.warm_start.users import make_user

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
TALK = [SmallTalk("It rained.", "Oh dear.", held_out=False)]


def users(side: Holdout, count: int = 150) -> list[User]:
    return [make_user(Random(number), side, TALK, NOW) for number in range(count)]


def told(found: list[User]) -> list[Tell]:
    return [each.intent for user in found for each in user.sayings if isinstance(each.intent, Tell)]


def test_a_value_is_for_training_or_for_tests_and_never_for_both() -> None:
    for kind in {(each.value, each.word) for each in (*lasting(), *passing())}:
        drawn = {
            split: {draw(*kind, split, Random(number)) for number in range(40)}
            for split in ("train", "test")
        }
        assert not drawn["train"] & drawn["test"], kind
    assert split_of("James") == split_of("JAMES")


@pytest.mark.parametrize("name", HELD_OUT)
def test_tests_share_no_value_with_the_training(name: str) -> None:
    values = [
        {fact.value for intent in told(users(side)) for fact in intent.facts}
        for side in (TRAINING, HELD_OUT[name])
    ]
    assert min(map(len, values)) > 30
    assert not values[0] & values[1]


def test_held_out_kinds_and_wordings_are_not_in_the_training() -> None:
    kinds = {fact.kind for intent in told(users(TRAINING)) for fact in intent.facts}
    assert len(kinds) > 100
    assert not any(kind.held_out for kind in kinds)
    held_out = {fact.kind for intent in told(users(HELD_OUT["kinds"])) for fact in intent.facts}
    assert len(held_out) > 20
    assert all(kind.held_out for kind in held_out)
    for number in range(200):
        kind = Random(number).choice(lasting())
        assert kind.tell.pick(False, Random(number)) != kind.tell.forms[-1]
        assert kind.tell.pick(True, Random(number)) == kind.tell.forms[-1]


def test_a_user_asks_for_what_they_told_before_and_for_what_they_never_told() -> None:
    for user in users(TRAINING, 40):
        said = " ".join(each.text for each in user.past).lower()
        for each in user.sayings:
            if isinstance(each.intent, Ask) and each.intent.known:
                assert each.intent.fact.value.lower() in said
            elif isinstance(each.intent, Ask):
                word = each.intent.fact.kind.word
                assert not re.search(rf"my {word} (?!number)", said)  # a flight has one of its own
            said += " " + each.text.lower()


def test_a_greeting_takes_up_what_lasts_and_the_words_of_events_for_tests_are_not_in_the_training() -> (
    None
):
    def events(side: Holdout) -> list[tuple[str, Notice]]:
        found = users(side, 400)
        return [
            (each.event or each.text, each.intent)
            for user in found
            for each in user.sayings
            if isinstance(each.intent, Notice)
        ]

    trained, tested = events(TRAINING), events(HELD_OUT["wordings"])
    assert {"login", "timer", "upload", "custom"} <= {name for name, _ in trained}
    assert any(notice.reply == "" for _, notice in trained)
    assert all(notice.goal in notice.reply for _, notice in trained)
    greetings = {notice.reply for name, notice in trained if name == "login" and notice.goal}
    assert len(greetings) > 30
    said = {notice.reply for _, notice in trained}
    assert not {notice.reply for _, notice in tested if notice.reply} & said


def test_a_conversation_is_given_by_its_seed() -> None:
    assert users(TRAINING, 3) == users(TRAINING, 3)


def test_the_small_talk_has_an_answer_and_a_fifth_of_its_words_is_for_tests() -> None:
    said = dict(sentences())
    replies = load_replies()
    assert len(replies) > 900
    assert all(said[each.text] == each.held_out for each in replies)
    assert 0.2 < sum(each.held_out for each in replies) / len(replies) < 0.5
    assert all(1 < len(each.reply) <= LONGEST_REPLY for each in replies)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("Nice! Tell me more. And more. And more.", "Nice! Tell me more."),
        ("As an AI language model, I can't.", ""),
        ('{"tool": "x"}', ""),
        ("It never ends", ""),
        ("Yes.\n\nNo.", "Yes."),
    ],
)
def test_only_short_whole_plain_answers_are_kept(written: str, kept: str) -> None:
    assert trimmed(written) == kept
