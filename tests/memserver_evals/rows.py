"""Invented rows in the formats that the loaders read."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def lines(path: Path, rows: Iterable[object]) -> Path:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def document(path: Path, rows: object) -> Path:
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


def said(*texts: str, first: str = "A") -> list[dict[str, str]]:
    sides = "AB" if first == "A" else "BA"
    return [{"speaker": sides[turn % 2], "text": text} for turn, text in enumerate(texts)]


def own(**fields: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": "I like tea."}],
        "question": "What do I like?",
        "answer": "tea",
        **fields,
    }


def msc(name: str = "made_0", **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "split": "made",
        "personas": [
            ["I keep bees.", "I am left-handed."],
            ["I repair clocks.", "I have a ferry ticket."],
        ],
        "sessions": [
            said("Hello, I keep bees.", "Nice. I repair clocks for a living."),
            said("How are the clocks?", "Fine, I mended one from Zanzibar."),
            said("Guess what, I bought a Stradivarius copy.", "A violin? Wonderful!"),
        ],
        "gaps": ["6 days", "3 hours", "1 week"],
        "summaries": [],
        "dmr": {
            "question": "What instrument did you tell me you bought?",
            "answer": "A Stradivarius copy!",
            "asker": "B",
            "answerer": "A",
            "evidence": {"session": 3, "turn": 0, "keyword": "Stradivarius"},
        },
        "opener": {
            "history_sessions": 2,
            "speaker": "A",
            "gap": "3 hours",
            "human": "Any more clocks from Zanzibar?",
        },
        **fields,
    }


def self_instruct(name: str = "valid_7", **fields: Any) -> dict[str, Any]:
    def earlier(*texts: str, number: int, unit: str) -> dict[str, Any]:
        return {
            "personas": [[], []],
            "dialog": [{"text": text} for text in texts],
            "time_num": number,
            "time_unit": unit,
            "time_back": "some time ago",
        }

    return {
        "personas": [["I train falcons."], ["I bake rye bread."]],
        "init_personas": [],
        "dialog": [{"id": "Speaker 1", "text": "Back again.", "convai2_id": name}],
        "metadata": {"initial_data_id": name, "session_id": 4},
        "previous_dialogs": [
            earlier("My falcons are well.", "My bread too, it is rye.", number=5, unit="days"),
            earlier(
                "The rye bread burnt today.",
                "A pity! The falcons would eat it.",
                number=2,
                unit="hours",
            ),
        ],
        "summary_speaker_1": [["I train falcons."], ["I have falcons that would eat anything."]],
        "summary_speaker_2": [["I bake rye bread."], ["My rye bread burnt."]],
        "self_instruct": {"B": "What birds did you say you train?", "A": "Falcons!"},
        **fields,
    }


def nq_passages() -> list[dict[str, Any]]:
    return [
        {"id": "p0", "title": "Moon", "text": "The Moon is made of rock."},
        {"id": "p1", "title": "Cheese", "text": "Some say the Moon is cheese."},
        {"id": "p2", "title": "Sea", "text": "The sea is salt."},
    ]


def nq_question(name: str = "q0", **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "question": "what is the moon made of",
        "answers": ["rock"],
        "gold_ids": ["p0"],
        "ctx_ids": ["p0", "p1"],
        **fields,
    }


def lost_in_the_middle(**fields: Any) -> dict[str, Any]:
    return {
        "question": "what is the moon made of",
        "answers": ["rock"],
        "ctxs": [
            {
                "id": "81",
                "title": "Cheese",
                "text": "Some say cheese.",
                "score": "1.05",
                "hasanswer": False,
                "isgold": False,
            },
            {
                "id": "82",
                "title": "Moon",
                "text": "The Moon is made of rock.",
                "score": "1.01",
                "hasanswer": True,
                "isgold": True,
            },
        ],
        "nq_annotated_gold": {"title": "Moon", "short_answers": ["rock"]},
        **fields,
    }


def locomo(name: str = "conv-1", **fields: Any) -> dict[str, Any]:
    return {
        "sample_id": name,
        "conversation": {
            "speaker_a": "Ada",
            "speaker_b": "Ben",
            "session_2_date_time": "9:05 am on 2 July, 2023",
            "session_2": [
                {"speaker": "Ben", "dia_id": "D2:1", "text": "Look!", "blip_caption": "a red kite"}
            ],
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ada", "dia_id": "D1:1", "text": "I sailed to Malta last week."},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "Great."},
            ],
            "session_3_date_time": "1:00 pm on 8 August, 2023",
        },
        "qa": [
            {
                "question": "Where did Ada sail?",
                "answer": "Malta",
                "evidence": ["D1:1; D2:1"],
                "category": 4,
            },
            {
                "question": "In which year?",
                "answer": 2023,
                "evidence": ["D1:1", "D"],
                "category": 2,
            },
            {
                "question": "Why did Ada fly?",
                "adversarial_answer": "for fun",
                "evidence": ["D1:1"],
                "category": 5,
            },
        ],
        **fields,
    }


def longmemeval(name: str = "lme_1", **fields: Any) -> dict[str, Any]:
    return {
        "question_id": name,
        "question_type": "multi-session",
        "question": "How many boats do I have?",
        "question_date": "2023/05/30 (Tue) 23:40",
        "answer": 3,
        "answer_session_ids": ["answer_1"],
        "haystack_dates": ["2023/05/21 (Sun) 02:21", "2023/05/20 (Sat) 02:57"],
        "haystack_session_ids": ["answer_1", "other_2"],
        "haystack_sessions": [
            [
                {"role": "user", "content": "I bought a third boat.", "has_answer": True},
                {"role": "assistant", "content": "Nice."},
            ],
            [
                {"role": "user", "content": "What is rain?"},
                {"role": "assistant", "content": "Water."},
            ],
        ],
        **fields,
    }


def longmemeval_evidence(name: str = "lme_2", **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "question_type": "temporal-reasoning",
        "abstention": False,
        "question": "How long ago did I buy the boat?",
        "question_date": "2023-05-30T00:00:00+00:00",
        "answer": ["9 days", 9],
        "answer_session_ids": ["answer_1"],
        "evidence_sessions": [
            {
                "date": "2023/05/21 (Sun) 02:21",
                "turns": [{"role": "user", "content": "I bought a boat."}],
            }
        ],
        **fields,
    }


def nq_question_without_own(name: str) -> dict[str, Any]:
    row = nq_question(name)
    del row["ctx_ids"]
    return row
