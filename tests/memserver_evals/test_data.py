"""The loaders read what was published, and name the place of whatever is wrong before anything runs."""

import copy
import gzip
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memserver.errors import BadData
from memserver_evals.data.locomo import read_locomo
from memserver_evals.data.longmemeval import read_longmemeval, read_longmemeval_evidence
from memserver_evals.data.msc import read_msc, read_self_instruct
from memserver_evals.data.natural_questions import (
    read_lost_in_the_middle,
    read_natural_questions,
)
from tests.memserver_evals import rows

Rows = list[dict[str, Any]]


def read_nq(path: Path) -> Any:
    return read_natural_questions(
        path, rows.lines(path.parent / "passages.jsonl", rows.nq_passages())
    )


FORMATS: dict[str, tuple[Callable[[Path], Any], Callable[..., dict[str, Any]], str]] = {
    "msc": (read_msc, rows.msc, "jsonl"),
    "self_instruct": (read_self_instruct, rows.self_instruct, "jsonl"),
    "nq": (read_nq, rows.nq_question, "jsonl"),
    "lost_in_the_middle": (read_lost_in_the_middle, rows.lost_in_the_middle, "jsonl.gz"),
    "locomo": (read_locomo, rows.locomo, "json"),
    "longmemeval": (read_longmemeval, rows.longmemeval, "json"),
    "longmemeval_evidence": (read_longmemeval_evidence, rows.longmemeval_evidence, "jsonl"),
}


def write(folder: Path, name: str, data: Rows) -> Path:
    form = FORMATS[name][2]
    path = folder / f"{name}.{form}"
    return rows.document(path, data) if form == "json" else rows.lines(path, data)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_reads_its_made_up_rows_from_lines_and_where_it_is_a_list_from_a_list(
    name: str, tmp_path: Path
) -> None:
    read, row, form = FORMATS[name]
    first = read(write(tmp_path, name, [row()]))
    assert first
    if form == "json":
        assert read(rows.lines(tmp_path / "as.jsonl", [row()])) == first


def test_a_dialogue_of_ours_has_times_and_who_is_asked(tmp_path: Path) -> None:
    [read] = read_msc(write(tmp_path, "msc", [rows.msc()]))
    assert read.gaps == (timedelta(days=6), timedelta(hours=3), timedelta(weeks=1))
    assert [len(session) for session in read.sessions] == [2, 2, 2]
    assert read.question is not None
    assert (read.question.asker, read.question.answerer) == ("B", "A")
    assert read.persona("B") == ("I repair clocks.", "I have a ferry ticket.")
    assert read.opener is not None
    assert read.opener.human == "Any more clocks from Zanzibar?"


def test_the_published_questions_are_asked_by_b_after_the_fourth_session_and_its_fifth_is_no_history(
    tmp_path: Path,
) -> None:
    [read] = read_self_instruct(write(tmp_path, "self_instruct", [rows.self_instruct()]))
    assert read.id == "valid_7"
    assert len(read.sessions) == 2
    assert read.gaps == (timedelta(days=5), timedelta(hours=2))
    assert read.question is not None
    assert read.question.asker == "B"
    assert read.question.answerer == "A"
    assert "Back again." not in str(read.sessions)


def test_who_began_a_published_session_is_known_from_what_each_is_and_not_from_the_place(
    tmp_path: Path,
) -> None:
    [read] = read_self_instruct(write(tmp_path, "self_instruct", [rows.self_instruct()]))
    speakers = [[line.speaker for line in session] for session in read.sessions]
    assert speakers == [["A", "B"], ["B", "A"]]
    assert read.guessed == 2


def test_a_published_turn_that_says_who_speaks_is_believed(tmp_path: Path) -> None:
    row = rows.self_instruct()
    row["previous_dialogs"][0]["dialog"] = [
        {"id": "Speaker 2", "text": "My falcons are well."},
        {"id": "Speaker 2", "text": "Are you there?"},
        {"id": "Speaker 1", "text": "Yes."},
    ]
    [read] = read_self_instruct(write(tmp_path, "self_instruct", [row]))
    assert [line.speaker for line in read.sessions[0]] == ["B", "B", "A"]
    assert read.guessed == 1


def test_documents_of_lost_in_the_middle_are_one_where_they_are_the_same(tmp_path: Path) -> None:
    twice = [rows.lost_in_the_middle(), rows.lost_in_the_middle(question="and now?")]
    data = read_lost_in_the_middle(write(tmp_path, "lost_in_the_middle", twice))
    assert [question.id for question in data.questions] == ["nq0000", "nq0001"]
    assert len(data.passages) == 2
    [gold] = data.questions[0].gold_ids
    assert data.passages[gold].title == "Moon"
    assert len(data.questions[0].own_ids) == 2


def test_retrieved_documents_without_a_gold_mark_are_gold_where_they_hold_the_answer(
    tmp_path: Path,
) -> None:
    row = rows.lost_in_the_middle()
    for context in row["ctxs"]:
        del context["isgold"]
    data = read_lost_in_the_middle(write(tmp_path, "lost_in_the_middle", [row]))
    assert [data.passages[gold].title for gold in data.questions[0].gold_ids] == ["Moon"]
    row["ctxs"][1]["hasanswer"] = False
    with pytest.raises(BadData, match=r"record 1: ctxs: none is marked isgold, and none hasanswer"):
        read_lost_in_the_middle(write(tmp_path, "lost_in_the_middle", [row]))


def test_a_conversation_of_locomo_is_in_order_and_its_broken_evidence_is_fixed(
    tmp_path: Path,
) -> None:
    [read] = read_locomo(write(tmp_path, "locomo", [rows.locomo()]))
    assert [session.number for session in read.sessions] == [1, 2]
    assert read.sessions[0].began == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert read.sessions[1].turns[0].shown == "Look! [shows a picture: a red kite]"
    assert [(each.answer, each.trap, each.evidence) for each in read.questions] == [
        ("Malta", "", ("D1:1", "D2:1")),
        ("2023", "", ("D1:1",)),
        ("", "for fun", ("D1:1",)),
    ]


def test_chats_of_longmemeval_are_in_order_and_abstention_is_in_the_id(tmp_path: Path) -> None:
    data = [rows.longmemeval(), rows.longmemeval("lme_1_abs")]
    read, abstains = read_longmemeval(write(tmp_path, "longmemeval", data))
    assert [session.id for session in read.sessions] == ["other_2", "answer_1"]
    assert read.sessions[1].turns[0].evidence
    assert read.asked_at == datetime(2023, 5, 30, 23, 40, tzinfo=UTC)
    assert read.answers == ("3",)
    assert [read.abstention, abstains.abstention] == [False, True]


def test_evidence_of_longmemeval_alone_is_distinguished_from_a_whole_haystack(
    tmp_path: Path,
) -> None:
    [read] = read_longmemeval_evidence(
        write(tmp_path, "longmemeval_evidence", [rows.longmemeval_evidence()])
    )
    assert not read.whole
    assert read.answers == ("9 days", "9")
    assert read.evidence_sessions == tuple(session.id for session in read.sessions)


# --- bad data

EARLY = "previous_dialogs"
FAULTS: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("msc", lambda row: row.pop("sessions"), r"line 2: sessions: Field required"),
    ("msc", lambda row: row["sessions"][1].clear(), r"line 2: sessions: session 2 is empty"),
    ("msc", lambda row: row["sessions"][0][1].update(speaker="C"), r"line 2: sessions\[0\]\[1\]\.speaker: .*'A' or 'B'"),
    ("msc", lambda row: row["sessions"][0][1].update(text=7), r"line 2: sessions\[0\]\[1\]\.text: .*valid string"),
    ("msc", lambda row: row["sessions"][0][1].update(text=" "), r"line 2: sessions\[0\]\[1\]\.text: it is empty"),
    ("msc", lambda row: row.update(gaps=["soon"] * 3), r"line 2: gaps: 'soon' is no time"),
    ("msc", lambda row: row["gaps"].pop(), r"line 2: gaps: there are fewer gaps than sessions"),
    ("msc", lambda row: row["dmr"].update(answer=""), r"line 2: dmr\.answer: it is empty"),
    ("msc", lambda row: row["dmr"].update(asker="A"), r"line 2: dmr: asker and answerer are the same"),
    ("msc", lambda row: row["dmr"]["evidence"].update(turn=9), r"line 2: .*evidence: session 3 has 2 turns"),
    ("msc", lambda row: row["dmr"]["evidence"].update(session=9), r"line 2: .*evidence: there is no session 9"),
    ("msc", lambda row: row.update(dmrs=row.pop("dmr")), r"line 2: there is a field 'dmrs'; is 'dmr' meant"),
    ("msc", lambda row: row["opener"].update(history_sessions=4), r"line 2: opener.history_sessions"),
    ("msc", lambda row: row.update(id="made_0"), r'line 2: "made_0" is the id of line 1 too'),
    ("self_instruct", lambda row: row["self_instruct"].pop("A"), r"line 2: self_instruct\.A: Field required"),
    ("self_instruct", lambda row: row[EARLY][1].update(time_unit="moons"), r"line 2: previous_dialogs\[1\]: '2 moons'"),
    ("self_instruct", lambda row: row[EARLY][1].update(time_num="2"), r"line 2: previous_dialogs\[1\]\.time_num"),
    ("self_instruct", lambda row: row[EARLY].clear(), r"line 2: previous_dialogs: "),
    ("self_instruct", lambda row: row["metadata"].update(initial_data_id="made_0"), r"record 2: metadata\.initial_data_id 'made_0'"),
    ("nq", lambda row: row.update(answers=[]), r"line 2: answers: .*at least 1 item"),
    ("nq", lambda row: row.update(answers=[""]), r"line 2: answers\[0\]: it is empty"),
    ("nq", lambda row: row.update(answers="rock"), r"line 2: answers: .*valid array"),
    ("nq", lambda row: row.update(gold_ids=["p9"]), r"record 2 \(q1\): gold_ids: there is no passage 'p9'"),
    ("nq", lambda row: row.update(ctx_ids=["p1", "p2"]), r"record 2 \(q1\): ctx_ids: the gold passages are not"),
    ("nq", lambda row: row.update(ctx_idz=row.pop("ctx_ids")), r"line 2: there is a field 'ctx_idz'"),
    ("lost_in_the_middle", lambda row: row.update(ctxs=[]), r"line 2: ctxs: .*at least 1 item"),
    ("lost_in_the_middle", lambda row: row["ctxs"][0].update(text=None), r"line 2: ctxs\[0\]\.text: .*valid string"),
    ("lost_in_the_middle", lambda row: row.update(answers=[]), r"line 2: answers: "),
    ("locomo", lambda row: row["qa"][1].pop("answer"), r"\[1\]\.qa\[1\]: there is no answer"),
    ("locomo", lambda row: row["qa"][1].update(category=6), r"\[1\]\.qa\[1\]\.category: "),
    ("locomo", lambda row: row["qa"][1].update(evidence="D1:1"), r"\[1\]\.qa\[1\]\.evidence: "),
    ("locomo", lambda row: row["conversation"]["session_1"][1].pop("dia_id"), r"\[1\]: conversation\.session_1\[1\]\.dia_id"),
    ("locomo", lambda row: row["conversation"]["session_1"][1].update(dia_id="D1:1"), r"\[1\]: .*'D1:1' is the dia_id of two"),
    ("locomo", lambda row: row["conversation"].update(session_1_date_time="May"), r"\[1\]: conversation\.session_1_date_time: 'May'"),
    ("locomo", lambda row: row["conversation"].pop("speaker_b"), r"\[1\]: conversation\.speaker_b"),
    ("locomo", lambda row: row.update(sample_id="made_0"), r'\[1\]: "made_0" is the id of \[0\] too'),
    ("longmemeval", lambda row: row.update(question_type="trivia"), r"\[1\]\.question_type: "),
    ("longmemeval", lambda row: row.update(answer=" "), r"\[1\]\.answer: it is empty"),
    ("longmemeval", lambda row: row["haystack_dates"].pop(), r"\[1\]: haystack_dates, .* differ in length"),
    ("longmemeval", lambda row: row.update(question_date="2023/13/30 (Tue) 23:40"), r"\[1\]\.question_date: '2023/13/30"),
    ("longmemeval", lambda row: row["haystack_sessions"][0][1].update(role="tool"), r"\[1\]\.haystack_sessions\[0\]\[1\]\.role"),
    ("longmemeval_evidence", lambda row: row.update(answer=[]), r"line 2: answer: "),
    ("longmemeval_evidence", lambda row: row.update(abstention="no"), r"line 2: abstention: "),
    ("longmemeval_evidence", lambda row: row["evidence_sessions"][0].update(date="today"), r"line 2: evidence_sessions\[0\]\.date: 'today' is no time"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "spoil", "reported"), FAULTS)
def test_a_fault_is_reported_with_its_place(
    name: str, spoil: Callable[[dict[str, Any]], object], reported: str, tmp_path: Path
) -> None:
    read, row, form = FORMATS[name]
    good, bad = (_named(name, row(), f"{number}") for number in range(2))
    assert read(write(tmp_path, name, [good, bad]))
    spoilt = copy.deepcopy(bad)
    spoil(spoilt)
    with pytest.raises(BadData) as caught:
        read(write(tmp_path, name, [good, spoilt]))
    assert caught.value.message.startswith(f"{name}.{form}, ")
    assert re.search(reported, caught.value.message), caught.value.message


def _named(name: str, row: dict[str, Any], number: str) -> dict[str, Any]:
    if name == "self_instruct":
        row["metadata"]["initial_data_id"] = f"made_{number}"
    for key in ("id", "sample_id", "question_id"):
        if key in row:
            row[key] = f"q{number}" if name == "nq" else f"made_{number}"
    return row


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_a_file_cut_off_anywhere_is_bad_data_or_ends_between_two_lines(
    name: str, data: st.DataObject, tmp_path: Path
) -> None:
    read, row, _ = FORMATS[name]
    path = write(tmp_path, name, [_named(name, row(), "0"), _named(name, row(), "1")])
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:cut])
    between = cut in {whole.find(b"\n"), whole.find(b"\n") + 1, len(whole) - 1}
    if not path.name.endswith(".jsonl") or not between:
        with pytest.raises(BadData, match=path.name):
            read(path)
    else:
        assert read(path)
    path.write_bytes(whole)


def test_a_line_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "nq", [rows.nq_question("q0"), rows.nq_question("q1")])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BadData, match=r"nq\.jsonl, line 2: it is not JSON, or is cut off: EOF"):
        read_nq(path)


def test_a_list_that_is_cut_off_says_where(tmp_path: Path) -> None:
    path = write(tmp_path, "locomo", [rows.locomo()])
    path.write_text("\n".join(path.read_text().splitlines()[:20]))
    with pytest.raises(
        BadData, match=r"locomo\.json, it is not JSON, or is cut off: .* at line 20"
    ):
        read_locomo(path)


def test_gzip_that_is_cut_off_says_about_where(tmp_path: Path) -> None:
    many = [rows.lost_in_the_middle(question=f"{number}") for number in range(500)]
    path = write(tmp_path, "lost_in_the_middle", many)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(BadData, match=r"about line \d{2,3}: the gzip file is damaged or cut off"):
        read_lost_in_the_middle(path)
    path.write_bytes(b"\x1f\x8bnot gzip at all")
    with pytest.raises(BadData, match="damaged"):
        read_lost_in_the_middle(path)


def test_text_that_is_not_utf8_is_named_by_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "nq", [rows.nq_question("q0")])
    path.write_bytes(path.read_bytes() + b'{"id": "\xff"}\n')
    with pytest.raises(BadData, match=r"nq\.jsonl, line 2: it is not UTF-8"):
        read_nq(path)


@pytest.mark.parametrize("content", ["", "\n\n", "[]"])
def test_a_file_without_records_is_bad_data(content: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text(content)
    with pytest.raises(BadData, match=r"empty\.json, line 1: there are no records"):
        read_locomo(path)


def test_only_the_first_faults_are_reported_and_the_rest_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "nq", [rows.nq_question(f"q{n}", answers=[]) for n in range(20)])
    with pytest.raises(BadData, match=r"line 5: .*; and 15 more\.") as caught:
        read_nq(path)
    assert "line 6" not in caught.value.message
    assert "Nothing was run." in caught.value.hint


def test_a_byte_order_mark_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    text = json.dumps(rows.msc())
    path = tmp_path / "msc.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + f"\n{text}\r\n\n".encode())
    assert len(read_msc(path)) == 1
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert len(read_msc(path)) == 1


def test_a_missing_file_says_how_to_name_the_folder(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"There is no file .*nowhere\.jsonl") as caught:
        read_msc(tmp_path / "nowhere.jsonl")
    assert "MEMSERVER_DATA" in caught.value.hint
