"""Lessons in answering from notes: from the one that holds the answer, or by a search where none does."""

import json
from random import Random

from sweet_rl.warm_start.chains import Chain
from sweet_rl.warm_start.corpus import Turn, asides
from sweet_rl.warm_start.reading import small_model_prompts
from sweet_rl.warm_start.reading_notes import last_notes, lessons_from_notes
from sweet_rl.warm_start.small_talk import SmallTalk

CHAT = [SmallTalk("What a day.", "Quite a day.", held_out=False)]
TALKS = asides()[:40]


def lessons(seed: int = 1) -> list[Chain]:
    random, prompts = Random(seed), small_model_prompts()
    return [
        chain for talk in TALKS for chain in lessons_from_notes(talk, CHAT, random, prompts, each=3)
    ]


def test_an_answer_stands_in_the_note_that_it_quotes_and_that_note_is_in_sight() -> None:
    answered = 0
    for chain in lessons():
        call, goal = json.loads(chain.messages[-1]["content"]), chain.lessons[0].goal
        if call["tool"] != "send_message":
            assert call["tool"] == "recall_memory_search"
            continue
        answered += 1
        said = call["arguments"]["message"]
        _, _, note = said.partition('. I noted: "')
        assert goal.lower() in note.lower()
        assert note.removesuffix('"') in chain.messages[0]["content"]
    assert 0.5 < answered / len(lessons()) < 0.95


def test_where_no_note_holds_the_answer_it_is_searched_for() -> None:
    asked = {question.text: question for talk in TALKS for question in talk.questions}
    for chain in lessons():
        call = json.loads(chain.messages[-1]["content"])
        if call["tool"] == "recall_memory_search":
            question = asked[chain.messages[-2]["content"].partition("] ")[2]]
            assert call["arguments"]["query"] == question.text[:190]
            human = (
                chain.messages[0]["content"]
                .partition("[human]\n")[2]
                .partition("Recall storage")[0]
            )
            if question.kind == "fact":
                assert question.answer.lower() not in human.lower()


def test_a_question_whose_answer_a_note_says_in_other_words_is_left_out() -> None:
    for talk in TALKS:
        [*found] = lessons_from_notes(talk, CHAT, Random(1), small_model_prompts(), each=1)
        asked = {chain.messages[-2]["content"].partition("] ")[2] for chain in found}
        kept = [note.lower() for note in last_notes(talk.turns)]
        for question in talk.questions:
            if question.kind == "fact" and not any(question.answer.lower() in n for n in kept):
                assert question.text not in asked


def test_a_changed_note_is_the_changed_one_in_its_place() -> None:
    turns = [
        Turn("user", "a", 0, ("Has a red boat", "Likes rain")),
        Turn("user", "b", 0, ("Has a red boat -> Has a white boat", "Owns a kite")),
    ]
    assert last_notes(turns) == ["Has a white boat", "Likes rain", "Owns a kite"]


def test_lessons_are_the_same_for_the_same_seed() -> None:
    assert lessons(3) == lessons(3)
