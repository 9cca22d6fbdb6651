"""The teacher on the real server: what it does, and how it is written down."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memserver.agent.call_run import NOTHING_TO_DO
from memserver.agent.pressure import NOTHING_TO_SAVE
from memserver.llm.reply_parser import RawReply, parse_json
from memserver.llm.tokens import Estimated
from memserver.prompts import shipped_prompts
from memserver.settings import Settings
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.tools.memory_tools import memory_tools
from memserver.tools.tool import describe
from memserver.wiring.services import assemble
from sweet_rl.warm_start.chains import Chain, read_chains
from sweet_rl.warm_start.facts import Fact, lasting
from sweet_rl.warm_start.intents import (
    TRAINING,
    Ask,
    AskAll,
    AskDay,
    Change,
    Chat,
    Forget,
    Keep,
    LookUp,
    Note,
    Notice,
    Past,
    Saying,
    Tell,
    User,
)
from sweet_rl.warm_start.small_talk import SmallTalk
from sweet_rl.warm_start.teacher import right_summary
from sweet_rl.warm_start.traces import Recorder, SimulatedClock, Teachers
from tests.support.server import OneDatabase

KINDS = {kind.label: kind for kind in lasting()}
DOG, CAR = Fact(KINDS["Dog"], "Rex"), Fact(KINDS["Birthday"], "May 4")
NOTE = Note("packing list", "Oslo", "tent, rope")
LONG_AGO = datetime(2025, 12, 1, 9, tzinfo=UTC)


async def play(database: OneDatabase, file: Path, *found: User) -> list[Chain]:
    """What the recorder writes down of these users."""
    settings = Settings(
        _env_file=None, prompts_dir=shipped_prompts() / "small_model", jobs_at_once=0
    )
    teachers, clock = Teachers(Estimated()), SimulatedClock()
    async with assemble(
        database.app, teachers, HashingEmbedder(), settings, clock=clock
    ) as services:
        await Recorder(services, teachers, clock).record(file, found, seed=1)
    return list(read_chains(file))


def user(*sayings: tuple[str, object], past: tuple[Past, ...] = (), window: int = 8192) -> User:
    said = tuple(Saying(text, intent) for text, intent in sayings)  # type: ignore[arg-type]
    return User(past, said, window, "working_context_first", None)


def calls(chains: list[Chain]) -> list[tuple[str, str]]:
    """Each call in order: the tool, and the value that counts; not that an alert finds nothing to save."""
    found = []
    for chain in chains:
        for lesson in chain.lessons:
            if lesson.kind != "summary":
                call = json.loads(chain.messages[lesson.message]["content"])
                if call["tool"] == NOTHING_TO_SAVE.spec.name:
                    continue
                found.append(
                    (
                        call["tool"],
                        next(
                            reversed(
                                [
                                    value
                                    for name, value in call["arguments"].items()
                                    if name != "request_heartbeat"
                                ]
                            )
                        ),
                    )
                )
    return found


async def test_what_is_told_is_noted_changed_and_forgotten(
    database: OneDatabase, tmp_path: Path
) -> None:
    chains = await play(
        database,
        tmp_path / "t",
        user(
            ("My dog is called Rex.", Tell((DOG,))),
            ("My dog is called Rex.", Tell((DOG,))),
            ("What is my dog called?", Ask(DOG)),
            ("My dog is called Bo.", Change(DOG, Fact(DOG.kind, "Bo"))),
            ("What do you know about me?", AskAll((Fact(DOG.kind, "Bo"),))),
            ("Forget my dog.", Forget(Fact(DOG.kind, "Bo"))),
        ),
    )
    found = calls(chains)
    assert [tool for tool, _ in found] == [
        *("working_context_append", "send_message", "send_message", "send_message"),
        *("working_context_replace", "send_message", "send_message"),
        *("working_context_replace", "send_message"),
    ]
    assert [found[0][1], found[4][1], found[7][1]] == ["Dog: Rex", "Dog: Bo", ""]
    assert "Rex" in found[3][1]
    assert "Dog: Bo" in found[6][1]


async def test_what_is_out_of_sight_is_searched_and_what_is_not_found_is_admitted(
    database: OneDatabase, tmp_path: Path
) -> None:
    talk = [
        Past(role, f"{number} Nothing much happened on this day, as on most days.", LONG_AGO)
        for number in range(40)
        for role in ("user", "assistant")
    ]
    past = (Past("user", "My Dog is called Rex.", LONG_AGO), *talk)
    chains = await play(
        database,
        tmp_path / "t",
        user(
            ("What is my dog called?", Ask(DOG)),
            ("When is my birthday?", Ask(CAR, known=False)),
            past=past,
            window=4096,
        ),
    )
    assert [tool for tool, _ in calls(chains)] == [
        *("recall_memory_search", "send_message"),
        *("recall_memory_search", "recall_memory_search_ignore_case", "send_message"),
    ]
    assert "Rex" in calls(chains)[1][1]
    assert "haven't" in calls(chains)[4][1]


async def test_lists_go_to_the_archive_and_days_are_looked_up(
    database: OneDatabase, tmp_path: Path
) -> None:
    past = tuple(
        Past("user", text, LONG_AGO + timedelta(minutes=number))
        for number, text in enumerate(("I saw a fox.", "It was red."))
    )
    chains = await play(
        database,
        tmp_path / "t",
        user(
            ("Keep this.", Keep(NOTE)),
            ("What is on it?", LookUp(NOTE)),
            ("What did I say on 2025-12-01?", AskDay("2025-12-01", "on 2025-12-01")),
            past=past,
        ),
    )
    found = calls(chains)
    assert [tool for tool, _ in found] == [
        *("archival_memory_insert", "send_message", "archival_memory_search", "send_message"),
        *("recall_memory_search_date", "send_message"),
    ]
    assert "tent, rope" in found[3][1]
    assert found[5][1].endswith("I saw a fox.")


async def test_an_event_is_answered_and_what_is_none_of_the_agents_business_is_left_alone(
    database: OneDatabase, tmp_path: Path
) -> None:
    happened = (
        Saying("", Notice("Hello again!"), event="login"),
        Saying("Ask how the concert went.", Notice("How did the concert go?"), event="timer"),
        Saying("Cache cleared.", Notice(""), event="custom"),
        Saying("(They are back.)", Notice("Hello!")),
    )
    chains = await play(
        database, tmp_path / "t", User((), happened, 8192, "working_context_first", None)
    )
    messages = [each["content"] for chain in chains for each in chain.messages]
    shown = [text for text in messages if text.startswith("[event]")]
    assert shown == [
        "[event] login",
        "[event] timer: Ask how the concert went.",
        "[event] custom: Cache cleared.",
    ]
    lessons = [
        chain.messages[each.message]["content"] for chain in chains for each in chain.lessons
    ]
    given = [(call["tool"], call["arguments"]) for call in map(json.loads, lessons)]
    assert given == [
        ("send_message", {"message": "Hello again!"}),
        ("send_message", {"message": "How did the concert go?"}),
        ("nothing_to_do", {}),
        ("send_message", {"message": "Hello!"}),
    ]


async def test_every_turn_of_random_users_is_a_valid_call_behind_a_real_prompt(
    database: OneDatabase, tmp_path: Path
) -> None:
    talk = [SmallTalk("It rained.", "Oh dear.", held_out=False)]
    settings = Settings(
        _env_file=None, prompts_dir=shipped_prompts() / "small_model", jobs_at_once=0
    )
    teachers, clock = Teachers(Estimated()), SimulatedClock()
    async with assemble(
        database.app, teachers, HashingEmbedder(), settings, clock=clock
    ) as services:
        recorder = Recorder(services, teachers, clock)
        await recorder.record_made_up(tmp_path / "t", TRAINING, talk, count=4, seed=7)
    chains = list(read_chains(tmp_path / "t"))
    own = describe(memory_tools(), ("persona", "human"))
    specs = [*own, NOTHING_TO_SAVE.spec, NOTHING_TO_DO.spec]
    lessons = [(chain, lesson) for chain in chains for lesson in chain.lessons]
    assert len(lessons) > 60
    assert {"summary", "tell", "chat", "ask"} <= {lesson.kind for _, lesson in lessons}
    for chain, lesson in lessons:
        message = chain.messages[lesson.message]
        assert message["role"] == "assistant"
        assert chain.messages[0]["role"] == "system"
        if lesson.kind == "summary":
            assert "The new notes:" in chain.messages[lesson.message - 1]["content"]
            continue
        call = parse_json(RawReply(content=message["content"]), specs).call
        assert lesson.goal.lower() in json.dumps(dict(call.arguments), ensure_ascii=False).lower()
    assert len(chains) < len(lessons), "turns whose prompts only grew are one chain"


async def test_a_teacher_that_goes_wrong_stops_the_recording(
    database: OneDatabase, tmp_path: Path
) -> None:
    too_small = user(("Hello.", Chat("Hi!")), window=300)
    with pytest.raises(AssertionError, match="context_overflow"):
        await play(database, tmp_path / "t", too_small)
    assert not (tmp_path / "t").exists()


def test_a_summary_keeps_what_no_note_holds_and_drops_small_talk() -> None:
    request = (
        "Notes so far:\nThe user said: I saw a fox.\n\nNew messages:\n"
        "[2026-01-01] user: It rained.\n[2026-01-01] assistant: Oh dear.\n"
        "[2026-01-01] user: My uncle Bo sang.\n\nThe new notes:"
    )
    memorable = {"My uncle Bo sang."}
    both = "The user said: I saw a fox.\nThe user said: My uncle Bo sang."
    assert right_summary(request, memorable, most_words=50) == both
    assert right_summary(request, memorable, most_words=8) == "The user said: My uncle Bo sang."
    empty = request.replace("The user said: I saw a fox.", "(none)")
    assert right_summary(empty, set(), most_words=50) == "Small talk only."
