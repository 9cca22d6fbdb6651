"""Each task: what its examples are, what a system gets to see, and how answers are scored."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import isnan
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from memserver.errors import BadData, InvalidInput
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver_evals.data.msc import read_msc
from memserver_evals.runs.records import Job, PlayedRecord
from memserver_evals.runs.results import score_all
from memserver_evals.task import Found, Material, Played, Reply, Turn
from memserver_evals.tasks import locomo, longmemeval, msc, nq, opener, retrieval
from memserver_evals.tasks.catalog import TASKS
from memserver_evals.tasks.opener import OpenerTask, greetings
from memserver_evals.tasks.registry import TaskOptions
from tests.memserver_evals import rows
from tests.memserver_evals.playing import PlayedSystem

GENERATED = {
    name: {"source": "generated", "each": "3"} for name in ("colbench-backend", "colbench-frontend")
}
"""Tasks that make their own examples where that is wanted."""


def options(folder: Path | None, **extra: str) -> TaskOptions:
    return TaskOptions(folder, extra=extra)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_of_the_list_is_made_of_its_files_with_unique_ids_and_the_groups_it_names(
    name: str, folder: Path
) -> None:
    task = TASKS[name].make(options(folder, **GENERATED.get(name, {})))
    examples = task.examples()
    assert task.name == name
    assert len({example.id for example in examples}) == len(examples) > 0
    for example in examples:
        assert set(task.groups(example)) - {"cluster"} == set(task.group_keys)
    again = TASKS[name].make(options(folder, **GENERATED.get(name, {})))
    assert task.data_hash == again.data_hash


@pytest.mark.parametrize("name", TASKS)
def test_an_unknown_option_is_refused_by_every_task(name: str, folder: Path) -> None:
    with pytest.raises(InvalidInput, match="has no option 'colour'"):
        TASKS[name].make(options(folder, colour="red"))


@pytest.mark.parametrize("name", sorted(TASKS.keys() - {"nested-kv", "evicted", *GENERATED}))
def test_a_task_without_its_data_says_what_is_missing(name: str, tmp_path: Path) -> None:
    for where in (None, tmp_path):
        with pytest.raises(BadData) as caught:
            TASKS[name].make(options(where))
        assert "--data or MEMSERVER_DATA" in caught.value.hint


@pytest.mark.parametrize("name", sorted(TASKS.keys() - {"nested-kv"}))
async def test_an_answer_that_never_came_is_scored_and_rewarded_with_nothing(
    name: str, folder: Path
) -> None:
    pytest.importorskip("rouge_score")
    task = TASKS[name].make(options(folder, **GENERATED.get(name, {})))
    for example in task.examples():
        for played in (Played(()), Played((Turn("?", Reply("", error="model_error")),))):
            scores = task.score(example, played)
            assert scores[task.main_score] == 0
            assert task.reward(example, played) == 0


# --- MSC


async def test_the_sessions_of_msc_are_a_history_with_real_gaps_and_the_question_comes_after(
    folder: Path,
) -> None:
    pytest.importorskip("rouge_score")
    task = msc.make(options(folder))
    [example] = task.examples()
    system = PlayedSystem(lambda *_: "It was a copy of a Stradivarius.")
    played = await task.play(example, system)
    [reported] = system.reported
    sessions = reported.material.sessions
    assert [session.began - msc.START for session in sessions] == [
        timedelta(0),
        timedelta(days=6),
        timedelta(days=6, hours=3),
    ]
    assert reported.at == msc.START + timedelta(days=13, hours=3)
    first = sessions[0].utterances
    assert [(each.role, each.text) for each in first] == [
        ("assistant", "Hello, I keep bees."),
        ("user", "Nice. I repair clocks for a living."),
    ]
    assert first[1].at == msc.START + timedelta(minutes=1)
    assert task.groups(example) == {"session": 3}
    scores = task.score(example, played)
    assert scores["containment"] == 1
    assert scores["whole_answer"] == 0
    assert scores["rouge_l_recall"] == pytest.approx(2 / 3), (
        "`a … copy` or `a … stradivarius` of three words"
    )
    assert scores["rouge_l_precision"] == pytest.approx(2 / 7)
    claim = task.claim(example, played)
    assert claim is not None
    assert (claim.kind, claim.gold) == ("msc", ("A Stradivarius copy!",))


@pytest.mark.parametrize(("words", "counts"), [("15", 0), ("16", 1)])
def test_of_an_answer_only_the_first_words_count_for_scores_reward_and_judges(
    words: str, counts: float, folder: Path
) -> None:
    """Whoever pastes all that was said is right no more often than by chance."""
    pytest.importorskip("rouge_score")
    task = msc.make(options(folder, answer_words=words))
    [example] = task.examples()
    pasted = Played((Turn("?", Reply(f"{'bees ' * 15}Stradivarius")),))
    scores = task.score(example, pasted)
    assert scores["containment"] == task.reward(example, pasted) == counts
    assert scores["containment_whole"] == 1
    assert bool(scores["rouge_l_recall"]) is bool(counts)
    claim = task.claim(example, pasted)
    assert claim is not None
    assert ("Stradivarius" in claim.answer) is bool(counts)


def test_a_right_answer_that_is_longer_may_be_said_whole(tmp_path: Path) -> None:
    row = rows.longmemeval(answer=" ".join(f"boat{n}" for n in range(20)))
    rows.document(tmp_path / "longmemeval_s.json", [row])
    task = longmemeval.make(options(tmp_path, answer_words="3"))
    [example] = task.examples()
    said = Played((Turn("?", Reply(example.golds[0])),))
    assert task.score(example, said)["containment"] == 1


@pytest.mark.parametrize("name", ["msc", "locomo", "longmemeval", "nq"])
@pytest.mark.parametrize("words", ["0", "few", "-1"])
def test_a_number_of_words_that_is_none_is_refused(name: str, words: str, folder: Path) -> None:
    with pytest.raises(InvalidInput, match="answer_words is a number from 1"):
        TASKS[name].make(options(folder, answer_words=words))


@pytest.mark.parametrize("task", [msc, opener])
def test_dialogues_are_halved_by_the_checksum_of_their_ids(task: Any, tmp_path: Path) -> None:
    rows.lines(tmp_path / "msc.jsonl", [rows.msc(f"made_{number}") for number in range(20)])
    kept = {half: task.make(options(tmp_path, half=half)) for half in ("all", "even", "odd")}
    ids = {half: [each.id for each in made.examples()] for half, made in kept.items()}
    assert ids["even"] == [each for each in ids["all"] if crc32(each.encode()) % 2 == 0]
    assert sorted(ids["even"] + ids["odd"]) == sorted(ids["all"])
    assert len({made.data_hash for made in kept.values()}) == 3
    with pytest.raises(InvalidInput, match="half is all or even or odd"):
        task.make(options(tmp_path, half="third"))


async def test_a_session_that_is_longer_than_the_gap_after_it_ends_before_the_next_begins(
    tmp_path: Path,
) -> None:
    long = rows.said(*(f"line {number}" for number in range(90)))
    row = rows.msc(sessions=[long, long], gaps=["1 hour", "1 hour"], opener=None)
    row["dmr"]["evidence"].update(session=1)
    rows.lines(tmp_path / "msc.jsonl", [row])
    [example] = msc.make(options(tmp_path)).examples()
    times = [each.at for session in example.material.sessions for each in session.utterances]
    assert times == sorted(set(times))
    assert example.at is not None
    assert example.at > times[-1]


def test_evidence_counts_where_something_was_retrieved(folder: Path) -> None:
    pytest.importorskip("rouge_score")
    task = msc.make(options(folder))
    [example] = task.examples()

    def score(*found: str) -> float:
        reply = Reply("x", found=tuple(Found(each, "utterance") for each in found))
        return task.score(example, Played((Turn("?", reply),)))["evidence_found"]

    assert score("3:0", "1:1") == 1
    assert score("1:1") == 0
    assert isnan(score()), "a system that doesn't retrieve"
    searched = Played((Turn("?", Reply("x", searches=())),))
    assert task.score(example, searched)["evidence_found"] == 0, "it could have searched"


def test_the_published_questions_are_read_by_their_form(tmp_path: Path) -> None:
    rows.lines(tmp_path / "msc_self_instruct.jsonl", [rows.self_instruct()])
    task = msc.make(options(tmp_path))
    [example] = task.examples()
    assert example.golds == ("Falcons!",)
    assert example.groups == {"session": "unknown"}
    assert [each.role for each in example.material.sessions[1].utterances] == ["user", "assistant"]
    with pytest.raises(BadData, match="no dialogue in it has a question"):
        msc.make(options(tmp_path, evidence="known"))


def test_the_session_in_which_is_asked_can_be_history_too(folder: Path) -> None:
    published = rows.lines(folder / "published.jsonl", [rows.self_instruct()])
    reported: dict[str, str] = {"file": published.name}
    [before] = msc.make(options(folder, **reported)).examples()
    task = msc.make(options(folder, **reported, sessions="5"))
    [example] = task.examples()
    said = [[each.text for each in session.utterances] for session in example.material.sessions]
    assert len(said) == len(before.material.sessions) + 1
    assert said[-1] == ["Back again."]
    last = example.material.sessions[-1]
    assert last.began == before.at
    assert example.at == last.utterances[-1].at + timedelta(minutes=1)
    assert task.data_hash != msc.make(options(folder, **reported)).data_hash
    with pytest.raises(InvalidInput, match=r"msc\.jsonl has no fifth session"):
        msc.make(options(folder, sessions="5"))
    rows.lines(published, [rows.self_instruct(dialog=[])])
    with pytest.raises(BadData, match=r"record 1.*there is no fifth session"):
        msc.make(options(folder, **reported, sessions="5"))


# --- opener


async def test_an_opener_is_compared_with_the_greeted_persons_persona_and_the_humans_opener(
    folder: Path,
) -> None:
    embedder = HashingEmbedder()
    task = OpenerTask(greetings(read_msc(folder / "msc.jsonl")), "hash", embedder)
    [example] = task.examples()
    assert example.persona == ("I repair clocks.", "I have a ferry ticket.")
    assert len(example.material.sessions) == 2
    system = PlayedSystem(lambda *_: "Any more clocks from Zanzibar?")
    played = await task.play(example, system)
    assert "3 hours after you last talked" in system.reported[0].text
    assert system.reported[0].at == msc.START + timedelta(days=6, hours=3)
    scores = task.score(example, played)
    assert scores["sim_h"] == pytest.approx(1)
    assert scores["sim_1"] == scores["human_sim_1"]
    assert json.dumps(dict(played.outcome))
    other = await task.play(example, PlayedSystem(lambda *_: "I repair clocks."))
    assert task.score(example, other)["sim_1"] == pytest.approx(1)


def test_an_opener_needs_a_dialogue_that_has_one(tmp_path: Path) -> None:
    rows.lines(tmp_path / "msc.jsonl", [rows.msc(opener=None)])
    with pytest.raises(BadData, match="has an opener"):
        opener.make(options(tmp_path))


# --- NaturalQuestions


def reader(material: Material, _: str) -> Reply:
    """A fixed-context reader that finds the answer among so few documents that they are not cut away."""
    shown = material.documents_shown or 0
    starved = material.documents_cut == "characters" and shown > 1
    text = nq.INSUFFICIENT if starved or shown > 2 else "ANSWER: Rock, DOCUMENT: The Moon"
    documents = material.library.documents if material.library else ()
    found = tuple(Found(each.id) for each in documents[:shown])
    return Reply(text, found=found, share_fitted=0.5)


async def test_a_fixed_context_reader_is_asked_once_for_each_number_of_documents_and_each_budget(
    folder: Path,
) -> None:
    task = nq.make(options(folder, documents="all,1,2"))
    [example] = task.examples()
    system = PlayedSystem(reader)
    played = await task.play(example, system)
    asked = [
        (each.material.documents_shown, each.material.documents_cut) for each in system.reported
    ]
    assert asked == [
        (1, "characters"),
        (2, "characters"),
        (1, "tokens"),
        (2, "tokens"),
        (3, "characters"),
        (3, "tokens"),
    ], "the number nearest to ten comes last, since the last answer is the one that is judged"
    scores = task.score(example, played)
    assert {name: value for name, value in scores.items() if name.startswith("acc")} == {
        "accuracy": 0,
        "accuracy_whole": 0,
        "accuracy_characters@1": 1,
        "accuracy_characters@2": 0,
        "accuracy@1": 1,
        "accuracy@2": 1,
        "accuracy_characters@all": 0,
        "accuracy@all": 0,
    }
    assert scores["insufficient@all"] == 1
    assert scores["gold_found"] == 1


async def test_a_reader_without_an_answer_to_one_number_of_documents_is_asked_for_the_others(
    folder: Path,
) -> None:
    def silent_at_two(material: Material, question: str) -> Reply:
        reply = reader(material, question)
        if material.documents_shown != 2:
            return reply
        return replace(reply, text="", error="model_protocol_violation")

    task = nq.make(options(folder, documents="1,2", budget="tokens"))
    [example] = task.examples()
    played = await task.play(example, PlayedSystem(silent_at_two))
    [row] = score_all(task, [PlayedRecord(Job("reader", example.id), played)], {})
    assert row.scores["accuracy@1"] == 1
    assert row.scores["accuracy@2"] == row.scores["accuracy"] == 0
    assert row.error == "model_protocol_violation"


async def test_a_system_that_searches_for_itself_is_asked_once_and_its_answer_stands_for_every_number(
    folder: Path,
) -> None:
    task = nq.make(options(folder))
    [example] = task.examples()
    system = PlayedSystem(lambda *_: Reply("It is rock.", found=(Found("p2"),)))
    played = await task.play(example, system)
    assert len(system.reported) == 1
    scores = task.score(example, played)
    assert {value for name, value in scores.items() if name.startswith("accuracy")} == {1.0}
    assert scores["gold_found"] == 0


async def test_of_an_answer_from_documents_the_first_words_count_and_the_document_quoted_does_not(
    folder: Path,
) -> None:
    task = nq.make(options(folder))
    [example] = task.examples()
    for said, right, whole in (
        ("ANSWER: rock, DOCUMENT: The Moon is made of cheese.", 1, 1),
        (f"ANSWER: {'cheese ' * 15}rock", 0, 1),
        ("ANSWER: cheese, DOCUMENT: The Moon is made of rock.", 0, 0),
    ):
        played = Played((Turn("?", Reply(said)),))
        scores = task.score(example, played)
        claim = task.claim(example, played)
        assert (scores["accuracy"], scores["accuracy_whole"]) == (right, whole)
        assert claim is not None
        assert ("rock" in claim.answer) is bool(right)
        assert scores["accuracy@all"] == right


def test_questions_without_distractors_are_asked_only_on_demand(folder: Path) -> None:
    assert [each.id for each in nq.make(options(folder)).examples()] == ["q0"]
    assert len(nq.make(options(folder, questions="all")).examples()) == 2
    rows.lines(folder / "nq_open.jsonl", [rows.nq_question_without_own("q1")])
    with pytest.raises(BadData, match="no question in it has distractors"):
        nq.make(options(folder))


def test_a_file_of_lost_in_the_middle_is_read_for_the_same_task(folder: Path) -> None:
    rows.lines(folder / "litm.jsonl.gz", [rows.lost_in_the_middle()])
    task = nq.make(options(folder, file="litm.jsonl.gz"))
    assert [each.answers for each in task.examples()] == [("rock",)]


@pytest.mark.parametrize("spoilt", [{"documents": "0"}, {"documents": "x"}, {"budget": "money"}])
def test_numbers_and_budgets_that_are_none_are_refused(
    spoilt: Mapping[str, str], folder: Path
) -> None:
    with pytest.raises(InvalidInput):
        nq.make(options(folder, **spoilt))


# --- LoCoMo


async def test_a_conversation_of_locomo_is_overheard_under_names_and_scored_by_category(
    folder: Path,
) -> None:
    pytest.importorskip("nltk")
    task = locomo.make(options(folder))
    hop, year, trap = task.examples()
    system = PlayedSystem(lambda *_: "Malta, not mentioned")
    for example in task.examples():
        await task.play(example, system)
    first = system.reported[0].material.sessions[0].utterances[0]
    assert (first.role, first.spoken, first.id) == (
        "user",
        "Ada: I sailed to Malta last week.",
        "D1:1",
    )
    assert system.reported[0].at == datetime(2023, 7, 3, 9, 5, tzinfo=UTC)
    played = Played((Turn("?", Reply("Malta, not mentioned")),))
    assert task.score(hop, played)["f1"] == pytest.approx(0.5)
    assert task.score(year, played)["f1"] == 0
    assert task.score(trap, played) == pytest.approx(
        {"f1": 1, "containment": 1, "containment_whole": 1, "evidence_found": float("nan")},
        nan_ok=True,
    )
    claims = [task.claim(each, played) for each in (hop, trap)]
    assert [claim.kind for claim in claims if claim] == ["locomo", "locomo:abstention"]
    assert task.groups(hop) == {"category": "single-hop", "cluster": "conv-1"}
    assert len(locomo.make(options(folder, adversarial="without")).examples()) == 2


# --- LongMemEval


async def test_a_question_of_longmemeval_is_asked_at_its_own_time_after_the_chats(
    tmp_path: Path,
) -> None:
    data = [
        rows.longmemeval(),
        rows.longmemeval("lme_1_abs"),
        rows.longmemeval("lme_3", question_type="single-session-preference", answer="likes boats"),
    ]
    rows.document(tmp_path / "longmemeval_s.json", data)
    task = longmemeval.make(options(tmp_path))
    plain, abstains, preference = task.examples()
    system = PlayedSystem(lambda *_: "You have 3 boats.")
    played = await task.play(plain, system)
    [reported] = system.reported
    assert reported.at == datetime(2023, 5, 30, 23, 40, tzinfo=UTC)
    assert [session.id for session in reported.material.sessions] == ["other_2", "answer_1"]
    assert task.score(plain, played)["containment"] == 1
    assert task.score(abstains, played)["containment"] == 0
    assert isnan(task.score(preference, played)["containment"])
    assert task.reward(preference, played) == 0
    refused = Played((Turn("?", Reply("There is not enough information.")),))
    assert task.score(abstains, refused)["containment"] == 1
    claim = task.claim(abstains, played)
    assert claim is not None
    assert claim.kind == "longmemeval:abstention"
    assert plain.evidence == {"answer_1:0"}


# --- retrieval


async def test_recall_is_the_share_of_the_evidence_among_the_first_results(folder: Path) -> None:
    task = retrieval.make(options(folder))
    by_id = {example.id: example for example in task.examples()}
    assert set(by_id) == {"nq_q0", "nq_q1", "msc_made_0", "locomo_conv-1_q000", "locomo_conv-1_q001", "locomo_conv-1_q002"}  # fmt: skip
    two = by_id["locomo_conv-1_q000"]
    assert {each.text for each in two.library.documents if each.id in two.asked.evidence} == {
        "Ada: I sailed to Malta last week.",
        "Ben: Look! [shows a picture: a red kite]",
    }
    found = tuple(Found(each) for each in ("D1:1", "x", "y", "z", "w", "D2:1"))
    played = await task.play(two, PlayedSystem(lambda *_: Reply("", found=found)))
    assert task.score(two, played) == {
        "recall": 1,
        "recall@1": 0.5,
        "recall@5": 0.5,
        "recall@10": 1,
        "recall@20": 1,
    }
    assert task.groups(by_id["nq_q0"])["data"] == "nq (hard)"
    with pytest.raises(InvalidInput, match="not 'poems'"):
        retrieval.make(options(folder, sets="poems"))
