"""The data sets of the retrieval benchmark are read so that a question's evidence is where it says."""

import json
from pathlib import Path

import numpy as np

from benchmarks.generated import GeneratedPassages
from benchmarks.retrieval_data import read_corpora


def write(folder: Path, name: str, *lines: object) -> None:
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_evidence_is_found_at_its_place_in_each_data_set(tmp_path: Path) -> None:
    texts = [{"id": f"p{n}", "title": f"Title {n}", "text": f"text {n}"} for n in range(3)]
    write(tmp_path, "nq_passages.jsonl", *texts)
    write(
        tmp_path,
        "nq_open.jsonl",
        {"question": "a?", "gold_ids": ["p2"]},
        {"question": "b?", "gold_ids": ["p0"], "ctx_ids": ["p0", "p1"]},
    )
    said = [
        [{"speaker": "A", "text": f"{session} {turn}"} for turn in range(2)] for session in "xy"
    ]
    asked = {"question": "c?", "evidence": {"session": 2, "turn": 1, "keyword": "y"}}
    write(tmp_path, "msc.jsonl", {"id": "m", "sessions": said, "dmr": asked}, {"id": "n"})
    talk = {
        "speaker_a": "Ada",
        "session_1": [{"speaker": "Ada", "dia_id": "D1:1", "text": "hello"}],
        "session_2": [
            {"speaker": "Ben", "dia_id": "D2:1", "text": "look", "blip_caption": "a cat"}
        ],
    }
    qa = [{"question": "d?", "evidence": ["D2:1"]}, {"question": "e?", "evidence": ["D9:1"]}]
    record = {"sample_id": "l", "conversation": talk, "qa": qa}
    (tmp_path / "locomo10.json").write_text(json.dumps([record]))
    read = {name: read_corpora(tmp_path, name) for name in ("nq", "msc", "locomo")}
    found = {
        name: [
            (question.text, [corpus.texts[place] for place in question.evidence], question.hard)
            for corpus in corpora
            for question in corpus.questions
        ]
        for name, corpora in read.items()
    }
    assert found == {
        "nq": [("a?", ["Title 2\ntext 2"], False), ("b?", ["Title 0\ntext 0"], True)],
        "msc": [("c?", ["A: y 1"], False)],
        "locomo": [("d?", ["Ben: look [shows a picture: a cat]"], False)],
    }


def test_generated_passages_are_the_same_for_a_seed_and_of_unit_length() -> None:
    first, again, other = (GeneratedPassages(seed, 100, 100) for seed in (1, 1, 2))
    (vectors, texts), (same, same_texts), (different, _) = (
        made.next(20) for made in (first, again, other)
    )
    assert np.array_equal(vectors, same)
    assert texts == same_texts
    assert not np.array_equal(vectors, different)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
