"""Facts that people mention of themselves, gone from an agent's queue when they are asked for, in other words.

The person talks with the agent itself, turn by turn, so that it may note what lasts before that is out of sight. Other
systems have the person's messages as their history.
"""

import json
import math
import random
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from typing_extensions import override

from memserver.messages import JsonObject
from memserver_evals.scoring.text import ANSWER_WORDS, contains
from memserver_evals.task import Exchange, Material, Played, Reply, Scores, Session, Utterance
from memserver_evals.tasks.question import (
    STEP,
    WORDS_OPTION,
    Question,
    QuestionTask,
    data_hash,
)
from memserver_evals.tasks.registry import TaskEntry, TaskOptions, refuse_unknown

NAME = "evicted"
DATA = Path(__file__).parent.parent / "data" / "evicted.toml"
TALK = 12
"""Messages about nothing after the last fact: more than a window of `WINDOW` tokens has room for."""
WINDOW = 1280
BEGAN, AFTER = datetime(2024, 3, 4, 18, tzinfo=UTC), timedelta(days=2)
"""When the talk begins, and how long after it the question comes."""
NOTING = {"working_context_append", "working_context_replace", "archival_memory_insert"}


class EvictedFacts(QuestionTask):
    name = NAME
    group_keys = ()

    @override
    def score(self, example: Question, played: Played) -> Scores:
        """How well it was remembered, and by what: each of an agent alone.

        `noted`: the right answer stands in something that it wrote down; `evicted`: the message was no longer
        among those in its prompt when the question came; `in_prompt`: the right answer stood there all the same (as a
        note, in the summary, or because it wasn't evicted); `searched`: it searched after the question.
        """
        reply = played.turns[0].reply if played.turns else Reply("")
        asked = [each for each in reply.exchanges if each.purpose == "answer"]
        prompt = next((each.prompt for each in asked if _asks(each, example.question)), ())
        scores = dict.fromkeys(("noted", "evicted", "in_prompt", "searched"), math.nan)
        if reply.searches is not None:
            scores["searched"] = float(any(not each.auto for each in reply.searches))
            if prompt:
                texts = [str(each.get("content")) for each in prompt]
                scores["noted"] = float(any(_notes(each, example) for each in asked))
                scores["in_prompt"] = float(any(contains(text, example.golds) for text in texts))
                scores["evicted"] = float(not any(_message(example) in each for each in texts[1:]))
        return {**super().score(example, played), **scores}


def _asks(asked: Exchange, question: str) -> bool:
    return any(question in str(each.get("content")) for each in asked.prompt[1:])


def _notes(asked: Exchange, example: Question) -> bool:
    """Whether an agent's call writes the right answer down."""
    try:
        call: JsonObject = json.loads(str(asked.answer.get("content")))
        return call["tool"] in NOTING and contains(json.dumps(call["arguments"]), example.golds)
    except (ValueError, KeyError, TypeError):  # it broke the protocol
        return False


def _message(example: Question) -> str:
    [text] = (each.text for each in example.material.said if each.id in example.evidence)
    return text


def questions(data: JsonObject, talk: int = TALK) -> Iterator[Question]:
    """One of each fact; a person's facts are said in one talk, parted and followed by what doesn't matter."""
    for person in data["person"]:
        name, facts = person["id"], person["facts"]
        said = random.Random(name).sample(
            data["talk"], min(len(data["talk"]), talk + len(facts) - 1)
        )
        for place, fact in enumerate(facts):
            said.insert(2 * place, fact["said"])
        material = Material((_session(said),), live=True)
        for place, fact in enumerate(facts):
            yield Question(
                f"{name}/{place + 1}",
                material,
                fact["ask"],
                tuple(fact["answer"]),
                material.said[-1].at + AFTER,
                NAME,
                {"cluster": name},
                frozenset({str(2 * place)}),
            )


def _session(said: list[str]) -> Session:
    utterances = [
        Utterance("user", text, BEGAN + turn * STEP, id=str(turn)) for turn, text in enumerate(said)
    ]
    return Session(BEGAN, tuple(utterances))


def read_data() -> dict[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def make(options: TaskOptions) -> EvictedFacts:
    refuse_unknown(options, ENTRY)
    talk = options.number("talk", TALK)
    examples = list(questions(read_data(), talk))
    words = options.number("answer_words", ANSWER_WORDS)
    return EvictedFacts(examples, data_hash([DATA], talk), words)


ENTRY = TaskEntry(
    name=NAME,
    summary="remember what somebody mentioned of themselves, when it has left the queue and is asked for in other words",
    make=make,
    material=frozenset({"sessions"}),
    options={
        "talk": f"messages about nothing between the last fact and the question ({TALK}, of 30 at most)",
        **WORDS_OPTION,
    },
    windows=(WINDOW, 8192),
)
