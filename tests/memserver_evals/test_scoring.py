"""Scores on worked examples: the right values were worked out by hand from the rules."""

from math import sqrt

import pytest

from memserver.embeddings.base import Vector
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver_evals.scoring.abstention import abstains
from memserver_evals.scoring.documents import is_insufficient, nq_accuracy, said_answer
from memserver_evals.scoring.locomo import locomo_f1
from memserver_evals.scoring.similarity import cosine, csim
from memserver_evals.scoring.text import (
    contains,
    contains_substring,
    count_words,
    first_words,
    normalise,
    rouge_l,
    squad_normalise,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Quick, brown fox!", "quick brown fox"),
        ("An apple a day", "apple day"),
        ("Wi-Fi", "wifi"),
        ("theatre", "theatre"),
        ("Röntgen\u2019s", "röntgen\u2019s"),
        ("The", ""),
    ],
)
def test_squads_normalisation_is_as_published(text: str, normal: str) -> None:
    assert squad_normalise(text) == normal


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Quick, brown fox!", "quick brown fox"),
        ("Wi-Fi", "wi fi"),
        ("Röntgen\u2019s machine", "rontgen machine"),
        ("John Carter's!", "john carter"),
        ("don't", "dont"),
        ("1,000,000 bees", "1000000 bees"),
        ("1,00", "1 00"),
        ("3.5 km. Then", "3.5 km then"),
        ("STRASSE straße", "strasse strasse"),
        ("「東京」へ", "東京 へ"),
        ("हिन्दी।", "हिन्दी"),
        ("The", "the"),
        ("!", ""),
    ],
)
def test_normalising_keeps_the_words_alone(text: str, normal: str) -> None:
    assert normalise(text) == normal


@pytest.mark.parametrize(
    ("answer", "golds", "stands"),
    [
        ("I think it was Fatal Charm, yes.", ["Fatal Charm!"], True),
        ("It was the charm, fatal as ever", ["Fatal Charm!"], False),
        ("She turned 1010", ["101"], False),
        ("Wilhelm Rontgen", ["Röntgen"], True),
        ("no idea", ["Malta", "no idea"], True),
        ("", ["Malta"], False),
        ("anything", ["!"], False),
        ("the The", ["The"], True),
    ],
)
def test_containment_is_of_whole_words(answer: str, golds: list[str], stands: bool) -> None:
    assert contains(answer, golds) is stands


def test_a_substring_may_cut_words_and_an_empty_right_answer_is_in_nothing() -> None:
    assert contains_substring("She turned 1010", ["101"])
    assert contains_substring("The USA", ["u.s.a."])
    assert not contains_substring("Malta", ["The"])
    assert contains_substring("I like the band The The", ["The"])
    assert not contains_substring("Malta", [""])


def test_rouge_l_is_the_share_of_the_right_words_and_of_the_said_ones_in_order() -> None:
    """Of `the cat sat on the mat`, `the mat the cat sat` has `the cat sat` in order: 3 of 6, and of 5."""
    pytest.importorskip("rouge_score")
    gold = "the cat sat on the mat"
    assert rouge_l("the mat the cat sat", [gold]) == pytest.approx((3 / 6, 3 / 5))
    assert rouge_l("no such animal", [gold]) == (0, 0)
    assert rouge_l(f"I say {gold} all day", [gold]) == pytest.approx((1, 6 / 10))
    assert rouge_l("cats", ["dog", "cat"]) == (1, 1), "the best right answer counts, stemmed"
    assert rouge_l("", [gold]) == (0, 0)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("one two three four", "one two three"),
        ("one two", "one two"),
        ("", ""),
        ("I don't know, really", "I don't know"),
        ("one-two_three/four", "one-two_three"),
        ("(one) ... two! three. Four", "(one) ... two! three"),
    ],
)
def test_only_the_first_words_of_a_text_are_kept_whatever_parts_them(text: str, first: str) -> None:
    assert first_words(text, 3) == first
    assert count_words(first) == min(3, count_words(text))


LOCOMO = [
    # 2 common stems of 3 said and 2 right: 2 · 2 / 5
    ("sailed to Malta", "sailing, Malta", 4, 0.8),
    ("Malta", "Malta", 2, 1.0),
    ("May 2023", "7 May 2023", 2, 0.8),
    # before the semicolon alone; the comma goes before words are parted
    ("psychology", "Psychology, counseling; she cares", 3, 2 / 3),
    # split at commas: `kite` is best met by `a kite` (1), `two dogs` by `dogs` (2/3)
    ("a kite, dogs", "kite, two dogs", 1, (1 + 2 / 3) / 2),
    ("a kite, dogs", "kite, two dogs", 4, 0.8),
    ("and the", "and the", 4, 0.0),
    ("", "Malta", 1, 0.0),
    ("That is Not Mentioned.", "", 5, 1.0),
    ("No information available", "", 5, 1.0),
    ("For fun", "for fun", 5, 0.0),
    ("I don't know", "", 5, 0.0),
]


@pytest.mark.parametrize(("answer", "gold", "category", "score"), LOCOMO)
def test_locomos_score_follows_the_rule_of_the_category(
    answer: str, gold: str, category: int, score: float
) -> None:
    pytest.importorskip("nltk")
    assert locomo_f1(answer, gold, category) == pytest.approx(score)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("ANSWER: rock, DOCUMENT: The Moon is rock.", "rock"),
        ("answer: salt, and rock\nDocument: [2] x", "salt, and rock"),
        ("Well. ANSWER: rock", "rock"),
        ("ANSWER: rock,\nDOCUMENT:", "rock"),
        ("It is rock.", "It is rock."),
    ],
)
def test_the_answer_is_what_stands_after_answer(reply: str, answer: str) -> None:
    assert said_answer(reply) == answer


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("I can't find that. You'd have to tell me.", True),
        ("You haven't told me that yet.", True),
        ("I don't know: you never mentioned it.", True),
        ("No information available.", True),
        ("The documents don't mention it.", True),
        ('Five. You said: "I don\'t know why I planted so many."', False),
        ("Sorry. I don't remember it.", True),
        ("In May. That was not told", False),
        (
            "Hamster! It is a lovely pet, and there is nothing better than a wheel, as you said",
            False,
        ),
        ("You visited 12 museums.", False),
        ("", False),
    ],
)
def test_an_answer_abstains_in_the_words_of_a_benchmark_or_of_an_agent(
    answer: str, right: bool
) -> None:
    assert abstains(answer) is right


def test_a_right_answer_that_only_the_quoted_document_holds_does_not_count() -> None:
    assert nq_accuracy("ANSWER: Rock., DOCUMENT: x", ("rock",))
    assert not nq_accuracy("ANSWER: cheese, DOCUMENT: the Moon is rock", ("rock",))
    assert nq_accuracy("I believe it is rock", ("stone", "rock"))


@pytest.mark.parametrize(
    ("reply", "insufficient"),
    [
        ("INSUFFICIENT INFORMATION", True),
        ("ANSWER: Insufficient information, DOCUMENT: none", True),
        ("The documents don't mention it.", True),
        ("There is not enough context.", True),
        ("It cannot be determined", True),
        ("ANSWER: rock, DOCUMENT: it is not mentioned elsewhere", False),
        ("The information is that it's rock.", False),
        ("", False),
    ],
)
def test_insufficient_information_is_recognised(reply: str, insufficient: bool) -> None:
    assert is_insufficient(reply) is insufficient


class Plane(HashingEmbedder):
    """Texts are points: `3 4` lies in the direction (0.6, 0.8)."""

    async def embed(self, texts: "list[str]") -> list[Vector]:  # type: ignore[override]
        points = [[float(number) for number in text.split()] for text in texts]
        return [[value / sqrt(sum(v * v for v in point)) for value in point] for point in points]


async def test_csim_takes_the_nearest_persona_line_the_three_nearest_and_the_human() -> None:
    """The opener points along (1, 0); cosines to the lines are .6, .8, 0, -1 and to the human 0.28."""
    found = await csim(Plane(), "1 0", ["3 4", "4 3", "0 1", "-1 0"], "7 24")
    assert found.sim_1 == pytest.approx(0.8)
    assert found.sim_3 == pytest.approx((0.8 + 0.6 + 0) / 3)
    assert found.sim_h == pytest.approx(0.28)


async def test_csim_takes_what_lines_there_are_and_an_empty_opener_is_like_nothing() -> None:
    found = await csim(Plane(), "1 0", ["3 4"], "1 0")
    assert (found.sim_1, found.sim_3, found.sim_h) == pytest.approx((0.6, 0.6, 1))
    empty = await csim(Plane(), " ", ["3 4"], "1 0")
    assert (empty.sim_1, empty.sim_3, empty.sim_h) == (0, 0, 0)


def test_a_vector_without_length_is_like_nothing() -> None:
    assert cosine([0, 0], [1, 0]) == 0
