"""Chunks: within the window, on borders, and together the whole text."""

import math

from hypothesis import given
from hypothesis import strategies as st

from memserver.embeddings.sentence_transformers import SentenceTransformersEmbedder
from memserver.memory.chunking import Chunker, embed_whole
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.text import Span


def shown(text: str, spans: list[Span]) -> list[str]:
    return [text[span.start : span.end] for span in spans]


async def test_a_text_within_the_limit_is_one_chunk():
    text = "One. Two. Three."
    chunks = await Chunker(HashingEmbedder()).plan(text, [0, 5, 10])
    assert shown(text, chunks) == [text]


async def test_chunks_end_with_sentences_and_repeat_the_last_ones():
    text = "a a a. b b b. c c c. d d d. e e e."
    chunks = await Chunker(HashingEmbedder(), tokens=9, overlap=3).plan(text, range(0, 35, 7))
    assert shown(text, chunks) == ["a a a. b b b. c c c.", "c c c. d d d. e e e."]


async def test_no_chunk_runs_over_a_border_and_nothing_is_repeated_across_it():
    text = "a a. b b. c c. d d."
    chunks = await Chunker(HashingEmbedder(), tokens=6, overlap=2).plan(text, [0, 5, 10, 15], [10])
    assert shown(text, chunks) == ["a a. b b.", "c c. d d."]


async def test_a_sentence_longer_than_a_chunk_is_cut_between_words():
    text = " ".join(f"word{number}" for number in range(100))
    chunks = await Chunker(HashingEmbedder(), tokens=16, overlap=0).plan(text)
    assert " ".join(shown(text, chunks)) == text
    assert all(0 < len(chunk.split()) <= 16 for chunk in shown(text, chunks))


async def test_a_word_longer_than_a_chunk_is_cut_between_characters():
    text = "漢" * 5000
    embedder = SentenceTransformersEmbedder()
    chunks = await Chunker(embedder, overlap=0).plan(text)
    assert "".join(shown(text, chunks)) == text
    assert max(await embedder.count_tokens(shown(text, chunks))) <= embedder.window
    await embedder.aclose()


async def test_the_embedders_window_bounds_chunks_whatever_is_requested():
    text = "word " * 1000
    chunks = await Chunker(HashingEmbedder(window=50), tokens=500).plan(text)
    assert max(len(chunk.split()) for chunk in shown(text, chunks)) <= 50


async def test_a_text_that_is_too_long_has_a_part_in_its_one_vector_to_its_end():
    embedder = HashingEmbedder(window=20)
    short, long, other = "a b c", "filler " * 50 + "zebras", "filler " * 50 + "physics"
    plain, one, two = await embed_whole([short, long, other], embedder)
    [alone] = await embedder.embed([short])
    assert plain == alone
    assert math.isclose(math.hypot(*one), 1)
    assert one != two


async def test_an_empty_text_has_no_chunks():
    assert await Chunker(HashingEmbedder()).plan(" \n ") == []


@given(
    words=st.lists(st.text("ab.\n é漢\u0301", min_size=1, max_size=12), max_size=80),
    cuts=st.lists(st.integers(0, 900), max_size=20),
    borders=st.lists(st.integers(0, 900), max_size=5),
    tokens=st.integers(1, 20),
    overlap=st.integers(0, 30),
)
async def test_every_character_that_is_no_space_is_in_a_chunk_and_every_chunk_within_the_limit(
    words: list[str], cuts: list[int], borders: list[int], tokens: int, overlap: int
):
    text = " ".join(words)
    inside = [border for border in borders if border < len(text)]
    sentences = [cut for cut in cuts if cut < len(text)]
    embedder = HashingEmbedder()
    chunks = await Chunker(embedder, tokens=tokens, overlap=overlap).plan(text, sentences, inside)
    covered = {at for span in chunks for at in range(span.start, span.end)}
    assert {at for at, char in enumerate(text) if not char.isspace()} <= covered
    for span, count in zip(chunks, await embedder.count_tokens(shown(text, chunks)), strict=True):
        assert count <= tokens
        assert not any(span.start < border < span.end for border in inside)
    assert [span.start for span in chunks] == sorted({span.start for span in chunks})
