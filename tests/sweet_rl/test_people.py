"""The corpus' people on the real server: what the teacher does with them, and what is written down."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from memserver.llm.tokens import Estimated
from memserver.prompts import shipped_prompts
from memserver.settings import Settings
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.wiring.services import assemble
from sweet_rl.warm_start.chains import read_chains
from sweet_rl.warm_start.corpus import (
    CorpusQuestion,
    Written,
    asides,
    conversations,
    shelves,
)
from sweet_rl.warm_start.corpus_users import (
    confiding,
    following,
    greeted,
    living,
    recalling,
    users,
)
from sweet_rl.warm_start.intents import Consult, Converse, Notice, Past, Remember, Saying, User
from sweet_rl.warm_start.reading import answer, lessons_of, small_model_prompts
from sweet_rl.warm_start.small_talk import SmallTalk
from sweet_rl.warm_start.traces import Recorder, SimulatedClock, Teachers
from tests.support.server import OneDatabase

LONG_AGO = datetime(2025, 1, 2, 9, tzinfo=UTC)
NOW = datetime(2025, 3, 1, 9, tzinfo=UTC)
CUP = CorpusQuestion(
    "What did your cup cost?", "two pounds", "My cup cost two pounds at the fair.", "fact"
)
CHAT = [SmallTalk("How are you?", "Fine!", held_out=False)]
Call = tuple[str, str]


async def play(database: OneDatabase, file: Path, *played: User) -> list[Call]:
    """Each call that was written down, with its last argument."""
    settings = Settings(
        _env_file=None,
        prompts_dir=shipped_prompts() / "small_model",
        history="compact",
        summary_method="extract",
        index_after_seconds=0,
        jobs_at_once=0,
    )
    teachers, clock = Teachers(Estimated()), SimulatedClock()
    async with assemble(
        database.app, teachers, HashingEmbedder(), settings, clock=clock
    ) as services:
        await Recorder(services, teachers, clock).record_all(file, played, seed=1)
    calls = []
    for chain in read_chains(file):
        for lesson in chain.lessons:
            call = json.loads(chain.messages[lesson.message]["content"])
            given = [
                value for name, value in call["arguments"].items() if name != "request_heartbeat"
            ]
            calls.append((call["tool"], str(given[-1]) if given else ""))
    return calls


def somebody(*sayings: tuple[str, object], past: tuple[Past, ...] = (), **more: object) -> User:
    said = tuple(
        Saying(text, intent, NOW + timedelta(minutes=minute))  # type: ignore[arg-type]
        for minute, (text, intent) in enumerate(sayings)
    )
    return User(past, said, 8192, "working_context_first", None, **more)  # type: ignore[arg-type]


def long_past(*texts: str) -> tuple[Past, ...]:
    """What was said long ago, and then other things."""
    all_texts = (*texts, *(f"It rained on day {number}." for number in range(8)))
    return tuple(
        Past("assistant", text, LONG_AGO + timedelta(minutes=minute))
        for minute, text in enumerate(all_texts)
    )


async def test_what_was_said_long_ago_is_searched_for_by_the_question_and_quoted(
    database: OneDatabase, tmp_path: Path
) -> None:
    past = long_past("I like tea. My cup cost two pounds at the fair. It is blue.")
    asked = (CUP.text, Remember(CUP, "assistant"))
    calls = await play(database, tmp_path / "a.jsonl.gz", somebody(asked, past=past))
    assert calls == [
        ("recall_memory_search", CUP.text),
        ("send_message", 'Two pounds. I said: "My cup cost two pounds at the fair."'),
    ]


async def test_what_was_said_just_now_and_what_is_noted_is_answered_at_once(
    database: OneDatabase, tmp_path: Path
) -> None:
    told = Converse("A blue one!", ("Cup: cost two pounds, blue",))
    calls = await play(
        database,
        tmp_path / "a.jsonl.gz",
        somebody(
            ("My cup cost two pounds at the fair.", told),
            ("And what did it cost?", Remember(CUP, "user")),
            ("What did my cup cost?", Remember(CUP, "user", ("Cup: cost two pounds, blue",))),
        ),
    )
    assert calls == [
        ("working_context_append", "Cup: cost two pounds, blue"),
        ("send_message", "A blue one!"),
        ("send_message", 'Two pounds. You said: "My cup cost two pounds at the fair."'),
        ("send_message", 'Two pounds. I noted: "Cup: cost two pounds, blue"'),
    ]


async def test_a_note_that_changes_is_replaced(database: OneDatabase, tmp_path: Path) -> None:
    calls = await play(
        database,
        tmp_path / "a.jsonl.gz",
        somebody(
            ("I live in Hull.", Converse("Nice.", ("Lives in Hull",))),
            ("I have moved to Bath.", Converse("Oh!", ("Lives in Hull -> Lives in Bath",))),
        ),
    )
    assert ("working_context_replace", "Lives in Bath") in calls


async def test_what_was_never_said_is_admitted_and_what_no_search_finds_is_not_learnt(
    database: OneDatabase, tmp_path: Path
) -> None:
    never = CorpusQuestion("What is your wife's name?", "I never said.", "", "unanswerable")
    lost = CorpusQuestion(
        "Which colour was it?", "blue", "It is a sentence that nobody has said, blue.", "fact"
    )
    calls = await play(
        database,
        tmp_path / "a.jsonl.gz",
        somebody(
            (never.text, Remember(never, "")),
            (lost.text, Remember(lost, "user")),
            past=long_past("Tea."),
        ),
    )
    said = [text for tool, text in calls if tool == "send_message"]
    assert len(said) == 1
    assert said[0].startswith("I can't find that.")


async def test_documents_are_searched_and_quoted_in_the_form_that_is_wanted(
    database: OneDatabase, tmp_path: Path
) -> None:
    bridge = CorpusQuestion(
        "who built the bridge", "Ann Lee", "It was built by Ann Lee in 1901.", "fact"
    )
    gone = CorpusQuestion("who painted it", "nobody", "", "unanswerable")
    documents = ("The bridge stands in Hull. It was built by Ann Lee in 1901.", "The tower is old.")
    calls = await play(
        database,
        tmp_path / "a.jsonl.gz",
        somebody(
            (bridge.text, Consult(bridge, quoted=True)),
            (gone.text, Consult(gone, quoted=True)),
            documents=documents,
            task="The documents are in archival storage.",
        ),
    )
    assert calls[0] == ("archival_memory_search", bridge.text)
    assert calls[1] == (
        "send_message",
        "ANSWER: Ann Lee, DOCUMENT: It was built by Ann Lee in 1901.",
    )
    assert calls[-1] == ("send_message", "INSUFFICIENT INFORMATION")


async def test_a_key_is_followed_to_its_last_value(database: OneDatabase, tmp_path: Path) -> None:
    user = following(Random(3))
    calls = await play(database, tmp_path / "a.jsonl.gz", user)
    calls = [call for call in calls if call[0] != "nothing_to_save"]
    expected: list[Call] = []
    for saying in user.sayings:
        chain = saying.intent.chain  # type: ignore[union-attr]
        expected += [("archival_memory_search", value) for value in chain]
        expected.append(("send_message", f"The value is {chain[-1]}."))
    assert calls == expected


async def test_before_an_eviction_what_has_no_note_is_saved(
    database: OneDatabase, tmp_path: Path
) -> None:
    talk = next(talk for talk in conversations() if talk.side == "train")
    calls = await play(database, tmp_path / "a.jsonl.gz", living(talk, CHAT, Random(1)))
    tools = {tool for tool, _ in calls}
    assert {"working_context_append", "nothing_to_save", "send_message"} <= tools


async def test_what_is_mentioned_in_passing_is_noted_and_answered_when_it_is_out_of_sight(
    database: OneDatabase, tmp_path: Path
) -> None:
    aside = next(each for each in asides() if each.side == "train")
    user = confiding(aside, CHAT, Random(1))
    calls = await play(database, tmp_path / "a.jsonl.gz", user)
    noted = {text for tool, text in calls if tool == "working_context_append"}
    wanted = {note for turn in aside.turns for note in turn.notes if " -> " not in note}
    assert wanted <= noted
    asked = [each.intent for each in user.sayings if isinstance(each.intent, Remember)]
    said = " ".join(text.lower() for tool, text in calls if tool == "send_message")
    assert len(asked) >= 4
    assert all(
        each.question.answer.lower() in said for each in asked if each.question.kind == "fact"
    )


async def test_an_aside_without_notes_is_searched_for_after_small_talk(
    database: OneDatabase, tmp_path: Path
) -> None:
    aside = next(each for each in asides() if each.side == "train")
    user = recalling(aside, CHAT, Random(2))
    assert len(user.past) >= len(aside.turns) + 12
    calls = await play(database, tmp_path / "a.jsonl.gz", user)
    asked = [each.text for each in user.sayings if isinstance(each.intent, Remember)]
    shown = [
        each["content"] for one in read_chains(tmp_path / "a.jsonl.gz") for each in one.messages
    ]
    found = [text for text in shown if "Showing " in text]
    assert "meaning]" in found[0]  # what was imported is indexed before anybody asks
    searched = [text for tool, text in calls if tool == "recall_memory_search"]
    assert set(searched) <= {*asked, "2"}
    assert searched[0] == asked[0]


def test_every_conversation_gives_users_of_every_kind() -> None:
    talks, found = conversations()[:10], shelves("train")[:2]
    played = list(users(talks, found, CHAT, Random(1), each=1))
    kinds = {type(saying.intent).__name__ for user in played for saying in user.sayings}
    assert kinds == {"Chat", "Converse", "Remember", "Consult", "Follow", "Notice"}
    spoken_to = [user for user in played if isinstance(user.sayings[0].intent, Notice)]
    assert spoken_to
    assert len(played) - len(spoken_to) == 2 * len(talks) + len(found) + len(talks) // 5 + 1


def test_who_comes_back_is_asked_what_a_person_asked_and_is_not_given_news_of_the_agents_own() -> (
    None
):
    greetings = [
        (talk, user) for talk in conversations() if (user := greeted(talk, Random(1))) is not None
    ]
    assert len(greetings) > 60
    for talk, user in greetings:
        first, *others = user.sayings
        assert isinstance(first.intent, Notice)
        assert all(isinstance(each.intent, Converse) for each in others)
        hello, asked = first.intent.reply.split("! ", 1)
        assert len(hello) < 30
        turn = talk.turns[len(user.past)]
        assert turn.speaker == "assistant"
        assert asked.split("? ")[0].rstrip("?…") in turn.text


def test_every_question_of_the_corpus_becomes_lessons_that_hold_its_answer() -> None:
    talk: Written = conversations()[0]
    lessons = list(lessons_of(talk, Random(1), small_model_prompts(), each=2))
    assert len(lessons) == 2 * len(talk.questions)
    for chain in lessons:
        call = json.loads(chain.messages[chain.lessons[0].message]["content"])
        assert call["tool"] == "send_message"
        assert len(call["arguments"]["message"]) <= 200
    spans = [each for each in talk.questions if each.kind == "fact"]
    assert all(each.answer.lower() in answer(each, "user").lower() for each in spans)
