"""The rule that copies from where the rarest words of the question stand."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from memserver_evals.systems.copying import CopyingSystem
from memserver_evals.task import Document, Library, Material, Reply, Session, Utterance

AT = datetime(2021, 5, 3, 9, 0, tzinfo=UTC)


def session(*said: tuple[str, str]) -> Session:
    utterances = [
        Utterance("user" if who == "user" else "assistant", text, AT, id=str(number))
        for number, (who, text) in enumerate(said)
    ]
    return Session(AT, tuple(utterances))


async def ask(material: Material, question: str) -> Reply:
    async with CopyingSystem().begin("1", material) as conversation:
        return await conversation.say(question)


TALK: Sequence[tuple[str, str]] = (
    ("user", "What instrument do you play, and what else do you play?"),
    ("assistant", "I do play " + "very " * 20 + "often"),
    ("assistant", "My instrument is a hurdy-gurdy, which I bought in Lyon."),
    ("user", "I play none."),
)


async def test_the_turn_with_the_rarest_words_of_the_question_is_copied() -> None:
    material = Material((session(*TALK),), answers_from="assistant")
    reply = await ask(material, "What instrument have you got?")
    assert reply.text == "My instrument is a hurdy-gurdy, which I bought in Lyon."
    assert [each.id for each in reply.found] == ["2"]
    assert (reply.tokens_in, reply.exchanges, reply.searches) == (0, (), None)


async def test_who_said_it_matters_only_where_the_task_says_so() -> None:
    reply = await ask(Material((session(*TALK),)), "What instrument do you play?")
    assert reply.text == TALK[0][1]


async def test_of_a_turn_the_first_fifteen_words_are_copied() -> None:
    reply = await ask(Material((session(TALK[1]),)), "Do you play?")
    assert reply.text == "I do play " + " ".join(["very"] * 12)


@pytest.mark.parametrize("shared", [True, False])
async def test_of_documents_the_sentence_is_copied(shared: bool) -> None:
    documents = (
        Document("d0", "The harbour is old. Ships come to the harbour."),
        Document("d1", "Ulm is old! Its minster was finished in 1890, says the guide."),
    )
    material = Material(library=Library("l", documents, shared=shared))
    reply = await ask(material, "When was the minster finished?")
    assert reply.text == "Its minster was finished in 1890, says the guide."
    assert [(each.kind, each.id) for each in reply.found] == [("document", "d1")]


async def test_nothing_is_copied_where_no_word_is_shared() -> None:
    for material in (Material(), Material((session(TALK[3]),))):
        reply = await ask(material, "Zanzibar?")
        assert (reply.text, reply.found) == ("", ())
