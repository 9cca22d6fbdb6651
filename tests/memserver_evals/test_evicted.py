"""Facts that left the queue: the data, and how it is played by agents that note, search, or do neither."""

from collections.abc import Sequence
from math import isnan
from pathlib import Path

import pytest

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, Step, say
from memserver.testing.scripted_rules import last_user_text
from memserver_evals.scoring.text import contains
from memserver_evals.task import Played, Reply, Turn
from memserver_evals.tasks import evicted
from memserver_evals.tasks.registry import TaskOptions
from sweet_rl.warm_start.corpus import CORPUS
from sweet_rl.warm_start.corpus_check import content_words, phrases
from tests.memserver_evals.support import endpoints, evaluate, lines, results
from tests.support.server import OneDatabase

TASK = evicted.make(TaskOptions())
FACTS = {fact["ask"]: fact for person in evicted.read_data()["person"] for fact in person["facts"]}


def test_each_answer_stands_in_one_message_and_half_of_the_questions_share_no_word_with_it() -> (
    None
):
    examples = TASK.examples()
    assert len(examples) == len(FACTS) == 48
    shared = []
    for each in examples:
        holding = [line for line in each.material.said if contains(line.text, each.golds)]
        assert {line.id for line in holding} == each.evidence, each.id
        assert not contains(each.question, each.golds)
        shared.append(len(content_words(each.question) & content_words(holding[0].text)))
    assert max(shared) <= 2
    assert shared.count(0) >= 24


def test_no_sentence_shares_eight_words_in_a_row_with_what_a_model_was_trained_on() -> None:
    learnt = {
        phrase
        for path in CORPUS.parent.rglob("*")
        if path.suffix in {".txt", ".toml", ".jsonl"}
        for line in path.read_text(encoding="utf-8").splitlines()
        for phrase in phrases(line)
    }
    assert len(learnt) > 200_000
    ours = [*evicted.read_data()["talk"], *FACTS, *(fact["said"] for fact in FACTS.values())]
    assert not [phrase for text in ours for phrase in phrases(text) if phrase in learnt]


def notes_the_first_and_searches_for_the_rest(
    prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]
) -> Step:
    """Notes the first fact of a person; asked for another one it searches, and reads it off the result."""
    said = last_user_text(prompt)
    if (fact := FACTS.get(said)) is not None:
        seen = prompt[-1].text if prompt[-1].role == "tool" else prompt[0].text
        if contains(seen, fact["answer"]):
            return say(f"I remember: {fact['answer'][0]}.", inner_thought="It's there.")
        if prompt[-1].role != "tool":
            words = {"query": " ".join(fact["said"].split()[:4]), "request_heartbeat": True}
            return Call("recall_memory_search", {**words, "inner_thought": "Look."})
        return say("I don't know.", inner_thought="Nothing.")
    if said in FIRST and prompt[-1].role != "tool":
        note = {"section": "human", "content": said, "request_heartbeat": True}
        return Call("working_context_append", {**note, "inner_thought": "Keep."})
    return say("I see. " * 20, inner_thought="Small talk.")


FIRST = {person["facts"][0]["said"] for person in evicted.read_data()["person"]}


def test_an_agent_is_there_when_the_facts_are_said_and_it_is_seen_how_it_remembered_them(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    systems = [f"--system={name}" for name in ("memserver", "full", "copying")]
    asked = ("evicted", *systems, "--limit", "6", "--out", str(out))
    with endpoints(notes_the_first_and_searches_for_the_rest, monkeypatch, tmp_path):
        done = evaluate(*asked, database=database)
        assert done.error is None, done.output
        again = evaluate(*asked, database=database)
    assert "18 to play, 18 of them done" in again.output
    rows = [each for each in lines(out / "examples.jsonl") if each["system"] == "memserver"]
    assert {each["example"].endswith("/1") for each in rows} == {True, False}
    for each in rows:
        noted = each["example"].endswith("/1")
        assert each["scores"] == {
            "containment": 1,
            "containment_whole": 1,
            "judge_string": 1,
            "evidence_found": not noted,
            "noted": noted,
            "evicted": 1,
            "in_prompt": noted,
            "searched": not noted,
        }, each["example"]
    assert results(out)["run"]["windows"] == {"memserver": 1280, "full": 8192, "copying": None}
    for name in ("full", "copying"):
        found = results(out)["systems"][name]["scores"]
        assert {found[score]["mean"] for score in ("noted", "evicted", "searched")} == {None}
    first = next(each for each in lines(out / "played.jsonl") if each["system"] == "full")
    shown = first["played"]["turns"][0]["reply"]["exchanges"][0]["prompt"][0]["content"]
    [example] = [each for each in TASK.examples() if each.id == first["example"]]
    assert all(f"User: {line.text}" in shown for line in example.material.said)


def test_what_an_agent_elsewhere_noted_is_not_known() -> None:
    example = TASK.examples()[0]
    played = Played((Turn(example.question, Reply(example.golds[0], searches=())),))
    scores = TASK.score(example, played)
    assert scores["containment"] == 1
    assert scores["searched"] == 0
    assert isnan(scores["noted"])
    assert isnan(scores["evicted"])
