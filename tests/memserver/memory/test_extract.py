"""An extract holds what tells most, within its limit, and does so when it is folded again."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memserver.memory.extract import extract

FACTS = [
    "[2026-01-05] user: My name is Ada, and I moved here from Bergen in 1998.",
    "[2026-01-05] user: I am allergic to peanuts.",
    "[2026-01-05] assistant: I will send you the recipe on Friday.",
]
TALK = [
    "[2026-01-05] user: Hello there! How are you?",
    "[2026-01-05] assistant: Oh, that is nice. What do you think?",
    "[2026-01-05] user: Yes, I think so too.",
    "[2026-01-05] assistant: Is it going well? Right, right.",
]


async def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


async def test_names_dates_promises_and_what_somebody_can_not_eat_outlive_small_talk() -> None:
    found = await extract("", [*TALK, FACTS[0], *TALK, *FACTS[1:], *TALK], 36, words)
    assert "My name is Ada, and I moved here from Bergen in 1998." in found
    assert "I am allergic to peanuts." in found
    assert "I will send you the recipe on Friday." in found
    assert "How are you?" not in found


async def test_the_old_notes_facts_stay_when_small_talk_is_folded_in() -> None:
    notes = await extract("", FACTS, 40, words)
    for day in range(6, 30):
        notes = await extract(
            notes, [line.replace("-05", f"-{day:02}") for line in TALK], 40, words
        )
    assert all(fact.partition(": ")[2] in notes for fact in FACTS)
    assert notes.startswith("[2026-01-05] user: My name is Ada")


async def test_what_is_said_again_is_kept_once() -> None:
    found = await extract(FACTS[1], [FACTS[1], FACTS[1].replace("-05", "-06")], 100, words)
    assert found.count("peanuts") == 1


async def test_notes_that_a_model_wrote_are_sentences_too() -> None:
    found = await extract("Ada has a cello, Hugo. They talked about it.", TALK, 14, words)
    assert found.startswith("Ada has a cello, Hugo.")


async def test_small_talk_alone_leaves_its_end() -> None:
    assert (
        await extract("", ["[2026-01-05] user: Hello. So so."], 20, words)
        == "[2026-01-05] user: So so."
    )
    assert await extract("", [], 20, words) == ""


@pytest.mark.parametrize(
    ("fact", "talk"),
    [
        ("Ich heiße Jürgen und bin 1962 in Köln geboren.", "Ach so, na ja."),
        ("我叫李明，1990年出生在成都。", "好的。"),  # noqa: RUF001
        ("Меня зовут Иван, я живу в Казани.", "Да."),
    ],
)
async def test_other_languages_leave_their_facts_too(fact: str, talk: str) -> None:
    lines = [f"[2026-01-05] user: {talk}"] * 9
    found = await extract("", [*lines, f"[2026-01-05] user: {fact}", *lines], 30, words)
    assert fact in found


texts = st.text(alphabet=st.sampled_from("abcdeI .!?\n':[]é。"), max_size=80)


@given(
    old=texts,
    lines=st.lists(
        st.builds("[2026-01-05] {}: {}".format, st.sampled_from(["user", "assistant"]), texts),
        max_size=8,
    ),
    limit=st.integers(1, 60),
)
async def test_whatever_is_said_the_extract_fits_and_is_made_of_it(
    old: str, lines: list[str], limit: int
) -> None:
    found = await extract(old, lines, limit, words)
    again = await extract(found, [], limit, words)
    for text in (found, again):
        # One sentence that is longer than the limit is left for the caller to cut.
        assert len(text.split()) <= limit or "\n" not in text
    everything = f"{old}\n" + "\n".join(lines)
    for word in found.replace(".", " ").split():
        assert word in everything.replace(".", " ")
