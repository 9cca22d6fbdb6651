"""Questions whose answers' places are known, from three data sets; each corpus becomes one collection.

Owns how the files are read. What they are and whose is told in the README beside them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Question:
    """A question, and the places in its corpus of the texts that answer it.

    A hard one has texts in the corpus that were chosen to be mistaken for its answer.
    """

    text: str
    evidence: frozenset[int]
    hard: bool = False


@dataclass(frozen=True)
class Corpus:
    """Texts that are searched together, and what is asked of them."""

    name: str
    texts: tuple[str, ...]
    questions: tuple[Question, ...]


DATA_SETS = {
    "nq": "NaturalQuestions passages",
    "msc": "MSC evidence turns",
    "locomo": "LoCoMo evidence turns",
}


def read_corpora(data: Path, data_set: str) -> list[Corpus]:
    """The corpora of one of DATA_SETS."""
    readers = {"nq": _natural_questions, "msc": _multi_session_chat, "locomo": _locomo}
    return list(readers[data_set](data))


def _natural_questions(data: Path) -> Iterator[Corpus]:
    """One corpus of all passages; right is the question's own gold passage and no other."""
    passages = _lines(data / "nq_passages.jsonl")
    place = {passage["id"]: number for number, passage in enumerate(passages)}
    yield Corpus(
        "nq",
        tuple(f"{passage['title']}\n{passage['text']}" for passage in passages),
        tuple(
            Question(
                line["question"],
                frozenset(place[gold] for gold in line["gold_ids"]),
                hard=bool(line.get("ctx_ids")),
            )
            for line in _lines(data / "nq_open.jsonl")
        ),
    )


def _multi_session_chat(data: Path) -> Iterator[Corpus]:
    """A corpus for each dialogue that has a question about an earlier turn."""
    for line in _lines(data / "msc.jsonl"):
        if not line.get("dmr"):
            continue
        turns = [(s, t) for s, session in enumerate(line["sessions"]) for t in range(len(session))]
        texts = [line["sessions"][s][t] for s, t in turns]
        evidence = line["dmr"]["evidence"]  # its sessions count from 1, its turns from 0
        place = turns.index((evidence["session"] - 1, evidence["turn"]))
        yield Corpus(
            line["id"],
            tuple(f"{turn['speaker']}: {turn['text']}" for turn in texts),
            (Question(line["dmr"]["question"], frozenset({place})),),
        )


def _locomo(data: Path) -> Iterator[Corpus]:
    """A corpus for each conversation; questions without evidence in it are left out."""
    for record in json.loads((data / "locomo10.json").read_text(encoding="utf-8")):
        talk = record["conversation"]
        turns = [turn for part in talk.values() if isinstance(part, list) for turn in part]
        place = {turn["dia_id"]: number for number, turn in enumerate(turns)}
        questions = []
        for asked in record["qa"]:
            evidence = frozenset(place[found] for found in asked["evidence"] if found in place)
            if evidence:
                questions.append(Question(asked["question"], evidence))
        yield Corpus(record["sample_id"], tuple(_said(turn) for turn in turns), tuple(questions))


def _said(turn: dict[str, Any]) -> str:
    shown = f" [shows a picture: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return f"{turn['speaker']}: {turn['text']}{shown}"


def _lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
