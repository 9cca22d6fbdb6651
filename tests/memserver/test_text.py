"""Text at the boundary."""

from hypothesis import given
from hypothesis import strategies as st

from memserver.memory.shortening import shorten
from memserver.testing.scripted import ScriptedModel
from memserver.text import clean, clean_json, snippet

ANY = st.text(st.characters(codec=None, categories=None) | st.characters(categories=["Cs"]))


@given(ANY)
def test_cleaned_text_can_be_stored_and_stays_the_same_when_cleaned_again(text: str) -> None:
    cleaned = clean(text)
    assert "\0" not in cleaned
    cleaned.encode()
    assert clean(cleaned) == cleaned


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_ordinary_text_is_kept_verbatim(text: str) -> None:
    assert clean(text) == text


def test_json_is_cleaned_in_keys_and_values() -> None:
    assert clean_json({"a\0": ["\ud83d", 1, None]}) == {"a": ["\ufffd", 1, None]}


def test_a_snippet_is_one_line() -> None:
    assert snippet("a\n b\t c", 10) == "a b c"
    assert snippet("abcdef", 4) == "abc…"


@given(st.integers(40, 3000), st.integers(32, 200))
async def test_a_shortened_text_has_no_more_tokens_than_requested(words: int, limit: int) -> None:
    model = ScriptedModel()
    text = " ".join(f"w{number}" for number in range(words))
    [count] = await model.count_tokens([await shorten(text, words, limit, model)])
    assert count <= limit
