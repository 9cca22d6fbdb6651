"""The same model without memserver: what it is shown, and what is said where it doesn't fit."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from memserver.errors import ContextOverflow, ModelUnavailable, ProtocolViolation
from memserver.messages import PromptMessage
from memserver.prompts import Prompts
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import ScriptedModel
from memserver_evals.systems.chat import ChatSystem
from memserver_evals.systems.choosing import Choice, Everything, Nearest, Summarised
from memserver_evals.systems.speaking import Speaker
from memserver_evals.systems.vectors import VectorIndex
from memserver_evals.task import Document, Library, Material, Reply, Session, Utterance

BEGAN = datetime(2021, 5, 3, 9, 0, tzinfo=UTC)
FACTS = ["I have a cat named Tom", "I live in Bergen", "My job is baking bread", "I play chess"]


def history(texts: Sequence[str]) -> tuple[Session, ...]:
    return tuple(
        Session(
            BEGAN + timedelta(days=day),
            (
                Utterance("user", text, BEGAN + timedelta(days=day), "Ada", f"s{day}.1"),
                Utterance("assistant", "I see.", BEGAN + timedelta(days=day), "Bob", f"s{day}.2"),
            ),
        )
        for day, text in enumerate(texts)
    )


def model(window: int = 2000, **more: object) -> ScriptedModel:
    def answer(prompt: Sequence[PromptMessage]) -> str:
        return f"heard: {prompt[-1].text}"

    return ScriptedModel(summary=answer, context_window=window, **more)  # type: ignore[arg-type]


def system(model: ScriptedModel, choice: Choice | None = None) -> ChatSystem:
    speaker = Speaker(model, max_tokens=100)
    return ChatSystem("full", speaker, Prompts(), choice or Everything())


async def ask(asked: ChatSystem, material: Material, question: str = "What do you know?") -> Reply:
    async with asked.begin("1", material) as conversation:
        return await conversation.say(question, at=BEGAN + timedelta(days=30))


async def test_everything_is_in_the_prompt_with_its_day_and_the_time_of_the_question() -> None:
    reported = model()
    material = Material(history(FACTS), instructions="Be brief.", persona="You are Bob.")
    reply = await ask(system(reported), material)
    [(head, question)] = [(prompt[0].text, prompt[1].text) for prompt in reported.writes]
    for fact in FACTS:
        assert f"Ada: {fact}" in head
    assert head.index("(2021-05-03)") < head.index("(2021-05-04)")
    assert "It is now 2021-06-02 09:00." in head
    assert head.startswith("Be brief.")
    assert "You are Bob." in head
    assert question == "What do you know?"
    assert (reply.text, reply.share_fitted) == ("heard: What do you know?", 1.0)
    [exchange] = reply.exchanges
    assert [each["content"] for each in exchange.prompt] == [head, question]
    assert reply.tokens_in == exchange.tokens_in > 0


async def test_what_does_not_fit_is_cut_from_the_oldest_and_the_share_is_reported() -> None:
    reported = model(window=260)
    reply = await ask(
        system(reported), Material(history([f"Fact {n} is said" for n in range(100)]))
    )
    head = reported.writes[0][0].text
    assert "Fact 99 is said" in head
    assert "Fact 0 is said" not in head
    assert reply.share_fitted is not None
    shown = sum(f"Fact {n} is said" in head for n in range(100))
    assert 0 < reply.share_fitted < 1
    assert reply.share_fitted == pytest.approx(shown / 100, abs=0.02)


async def test_documents_come_before_history_and_the_best_are_kept() -> None:
    reported = model(window=300)
    library = Library("l", tuple(Document(f"d{n}", f"text number {n}") for n in range(200)))
    material = Material(history(FACTS), library)
    reply = await ask(system(reported), material)
    head = reported.writes[0][0].text
    assert "[d0] text number 0" in head
    assert "[d199]" not in head
    assert "Bergen" not in head
    assert reply.share_fitted is not None
    assert reply.share_fitted < 1


async def test_the_documents_that_a_task_fixes_are_shown_in_its_order() -> None:
    reported = model()
    library = Library("l", tuple(Document(f"d{n}", f"text {n}") for n in range(5)))
    await ask(system(reported), Material(library=library, reading=("d3", "d1")))
    head = reported.writes[0][0].text
    assert head.index("[d3]") < head.index("[d1]")
    assert "[d0]" not in head


async def test_a_prompt_that_is_refused_as_too_long_is_cut_further() -> None:
    class Stricter(ScriptedModel):
        async def write(self, prompt: Sequence[PromptMessage], *, max_tokens: int, on_text=None):  # type: ignore[no-untyped-def]
            if sum(len(each.text.split()) for each in prompt) > 150:
                raise ContextOverflow("too long")
            return await super().write(prompt, max_tokens=max_tokens)

    reported = Stricter(summary="yes", context_window=400)
    reply = await ask(system(reported), Material(history(FACTS * 10)))
    assert reply.text == "yes"
    assert reply.share_fitted is not None
    assert reply.share_fitted < 1


async def test_several_turns_are_one_conversation() -> None:
    reported = model()
    async with system(reported).begin("1", Material()) as conversation:
        await conversation.say("My name is Ada.")
        await conversation.say("Who am I?")
    texts = [each.text for each in reported.writes[1][1:]]
    assert texts == ["My name is Ada.", "heard: My name is Ada.", "Who am I?"]


async def test_retrieval_shows_only_what_is_nearest_and_says_what_that_was() -> None:
    reported = model()
    choice = Nearest(VectorIndex(HashingEmbedder()), top_k=1)
    reply = await ask(
        system(reported, choice), Material(history(FACTS)), "Where do I live? In Bergen?"
    )
    assert "I live in Bergen" in reported.writes[0][0].text
    assert "chess" not in reported.writes[0][0].text
    assert [each.id for each in reply.found] == ["s1.1"]


async def test_as_many_documents_are_retrieved_as_the_task_says() -> None:
    reported = model()
    library = Library("l", tuple(Document(f"d{n}", f"word{n} text") for n in range(9)))
    material = Material(library=library, documents_shown=3)
    choice = Nearest(VectorIndex(HashingEmbedder()), top_k=1)
    reply = await ask(system(reported, choice), material, "word4 text")
    assert reply.found[0].id == "d4"
    assert len(reply.found) == 3


async def test_the_summary_stands_for_the_history_and_what_it_cost_is_counted() -> None:
    reported = ScriptedModel(summary="Ada lives in Bergen.", context_window=2000)
    choice = Summarised(Speaker(reported, 100), Prompts(), 200)
    asked = system(reported, choice)
    material = Material(history(FACTS))
    reply = await ask(asked, material)
    again = await ask(asked, material)
    head = reported.writes[-1][0].text
    assert "Ada lives in Bergen." in head
    assert "chess" not in head
    assert [each.purpose for each in reply.exchanges] == ["summary", "answer"]
    assert reply == again  # whether it was made for another example before
    assert len(reported.writes) == 3


async def test_a_summary_can_be_an_extract_that_asks_the_model_nothing() -> None:
    reported = model()
    choice = Summarised(Speaker(reported, 100), Prompts(), 200, "extract")
    reply = await ask(system(reported, choice), Material(history(FACTS)))
    assert "I live in Bergen" in reported.writes[-1][0].text
    assert [each.purpose for each in reply.exchanges] == ["answer"]
    assert len(reported.writes) == 1


async def test_a_model_that_says_nothing_has_answered_with_an_error() -> None:
    class Silent(ScriptedModel):
        async def write(self, prompt: Sequence[PromptMessage], *, max_tokens: int, on_text=None):  # type: ignore[no-untyped-def]
            raise ProtocolViolation("nothing", raw="<nothing>")

    material = Material(library=Library("l", (Document("d1", "Bergen has a harbour."),)))
    choice = Nearest(VectorIndex(HashingEmbedder()), top_k=1)
    reply = await ask(system(Silent(), choice), material)
    assert (reply.text, reply.error) == ("", "model_protocol_violation")
    assert [each.id for each in reply.found] == ["d1"]
    assert reply.share_fitted == 1
    [asked] = reply.exchanges
    assert "Bergen has a harbour." in str(asked.prompt)
    assert asked.answer["content"] == "<nothing>"


async def test_a_model_that_is_down_is_no_answer() -> None:
    class Down(ScriptedModel):
        async def write(self, prompt: Sequence[PromptMessage], *, max_tokens: int, on_text=None):  # type: ignore[no-untyped-def]
            raise ModelUnavailable("down")

    with pytest.raises(ModelUnavailable):
        await ask(system(Down()), Material())
