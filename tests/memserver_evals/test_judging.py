"""Judges: what they ask, how their replies are read, and how far they agree with labels."""

import json
from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from memserver.errors import BadData, InvalidInput, ModelUnavailable
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.prompts import Prompts
from memserver_evals.data.longmemeval import QUESTION_TYPES
from memserver_evals.judging.agreement import (
    LabelledAnswer,
    agreement,
    count,
    read_labels,
    write_unlabelled,
)
from memserver_evals.judging.base import Verdict
from memserver_evals.judging.endpoint import EndpointJudge, read_verdict
from memserver_evals.judging.prompts import RULES, judge_prompt
from memserver_evals.judging.string import StringJudge
from memserver_evals.task import Claim
from tests.memserver_evals import rows
from tests.support.http_app import Current

CLAIM = Claim("Which violin?", ("A Stradivarius copy!",), "It was a copy of a Stradivarius.", "msc")


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("It names the violin.\nCORRECT", True),
        ("It evades.\nWRONG", False),
        ("CORRECT", True),
        ("  **Wrong.**  ", False),
        ("It is fine.\nVerdict: correct", True),
        ("It is fine.\n**Final verdict:** CORRECT", True),
        ("The answer is INCORRECT.", False),
        ("It is NOT CORRECT", False),
        ('{"reason": "same thing", "label": "CORRECT"}', True),
        ("<think>CORRECT? or WRONG?</think>\nIt differs. WRONG", False),
        ("A CORRECT answer would name it; this is WRONG", None),
        ("It could be CORRECT or WRONG.\nWRONG", False),
        ("That is correct, I think.", None),
        ("<think>it is CORRECT", True),
        ("yes", None),
        ("", None),
        ("<think>CORRECT</think>", None),
        ("CORRECTLY said", None),
    ],
)
def test_a_reply_is_read_by_fixed_rules(reply: str, verdict: bool | None) -> None:
    assert read_verdict(reply) is verdict


@given(st.text())
def test_any_reply_is_read_and_the_same_each_time(reply: str) -> None:
    assert read_verdict(reply) is read_verdict(reply)
    assert read_verdict(f"{reply}\nCORRECT") is True


def test_each_rule_has_a_prompt_with_question_right_answer_and_answer() -> None:
    for rule in RULES:
        asked = judge_prompt(Prompts(), Claim("Which one?", ("gold-1",), "said-1", rule))
        assert all(part in asked for part in ("Which one?", "gold-1", "said-1", "CORRECT or WRONG"))


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no rule 'trivia'"):
        judge_prompt(Prompts(), Claim("?", ("g",), "a", "trivia"))


def test_the_rule_of_the_original_task_is_in_its_prompt() -> None:
    def asked(case: str) -> str:
        return judge_prompt(Prompts(), Claim("?", ("g",), "a", f"longmemeval:{case}"))

    reported = {kind: asked(kind) for kind in (*QUESTION_TYPES, "abstention")}
    assert "off by one" in reported["temporal-reasoning"]
    assert "true before" in reported["knowledge-update"]
    assert "personal to the user" in reported["single-session-preference"]
    assert "can't be answered" in reported["abstention"]
    plain = {
        reported[kind] for kind in QUESTION_TYPES if kind.startswith(("single-session-u", "multi"))
    }
    assert len(plain) == 1
    assert "off by one" not in plain.pop()
    assert "touches on the same thing" in judge_prompt(Prompts(), CLAIM)
    assert "doesn't tell" in judge_prompt(Prompts(), Claim("?", ("x",), "a", "locomo:abstention"))


async def test_the_string_judge_is_strict_and_takes_abstention_in_its_usual_words() -> None:
    judge = StringJudge()
    cases = [
        (CLAIM, False),
        (Claim("?", ("Stradivarius copy",), "the Stradivarius copy", "msc"), True),
        (Claim("?", ("not told",), "That was not mentioned.", "locomo:abstention"), True),
        (Claim("?", ("not told",), "It cannot be determined.", "longmemeval:abstention"), True),
        (Claim("?", ("not told",), "In May. That was not told", "longmemeval:abstention"), False),
    ]
    for claim, right in cases:
        assert (await judge.judge(claim)).correct is right


class Judging:
    """An endpoint that answers as it should, and keeps what it was asked."""

    def __init__(self, status: int = 200, **answer: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self.app = Starlette(
            routes=[Route("/v1/chat/completions", self.complete, methods=["POST"])]
        )
        self.status, self.answer = status, answer

    async def complete(self, request: Request) -> JSONResponse:
        self.asked.append(await request.json())
        return JSONResponse(self.answer, self.status)


def reply(text: str | None) -> dict[str, Any]:
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 90, "completion_tokens": 7},
    }


async def judged(served: str, current: Current, endpoint: Judging, claim: Claim = CLAIM) -> Verdict:
    current.app = endpoint.app
    client = EndpointClient(Endpoint(served, max_retries=0))
    try:
        return await EndpointJudge(client, "a-judge").judge(claim)
    finally:
        await client.aclose()


async def test_a_model_judges_at_temperature_0_and_the_exchange_is_kept(
    served: str, current: Current
) -> None:
    endpoint = Judging(**reply("Same thing.\nCORRECT"))
    verdict = await judged(served, current, endpoint)
    [asked] = endpoint.asked
    assert (asked["model"], asked["temperature"]) == ("a-judge", 0)
    assert "Which violin?" in asked["messages"][0]["content"]
    assert verdict.correct
    assert verdict.exchange is not None
    assert verdict.exchange.prompt == tuple(asked["messages"])
    assert (verdict.exchange.tokens_in, verdict.exchange.tokens_out) == (90, 7)
    assert verdict.exchange.purpose == "judge"


@pytest.mark.parametrize("said", ["I am not sure.", "", None])
async def test_a_reply_without_a_verdict_is_broken_and_neither_right_nor_wrong(
    said: str | None, served: str, current: Current
) -> None:
    verdict = await judged(served, current, Judging(**reply(said)))
    assert verdict.correct is None
    assert verdict.exchange is not None


@pytest.mark.parametrize("answer", [{}, {"choices": []}, {"choices": [{"message": "CORRECT"}]}])
async def test_an_answer_that_is_no_chat_completion_is_broken(
    answer: dict[str, Any], served: str, current: Current
) -> None:
    assert (await judged(served, current, Judging(**answer))).correct is None


def test_a_judge_with_other_words_or_parameters_is_another_judge(tmp_path: Path) -> None:
    (tmp_path / "judges").mkdir()
    client = EndpointClient(Endpoint("http://127.0.0.1:1/v1"))
    one, same = (EndpointJudge(client, "m") for _ in range(2))
    hotter = EndpointJudge(client, "m", parameters={"temperature": 1})
    (tmp_path / "judges" / "nq.md").write_text("Say CORRECT.")
    reworded = EndpointJudge(client, "m", Prompts(tmp_path))
    identities = [each.identity for each in (one, same, hotter, reworded)]
    assert identities[0] == identities[1]
    assert len(set(identities)) == 3


async def test_a_judge_that_is_down_is_an_error_and_no_verdict(
    served: str, current: Current
) -> None:
    with pytest.raises(ModelUnavailable):
        await judged(served, current, Judging(503, error={"message": "loading"}))


# --- agreement


def labelled(number: int, label: str | None, answer: str = "rock") -> dict[str, Any]:
    return {
        "id": f"a{number}",
        "question": "made of?",
        "gold": ["rock"],
        "answer": answer,
        "kind": "nq",
        "label": label,
        "labelled_by": "me" if label else "",
    }


def test_agreement_and_kappa_are_as_worked_out_by_hand() -> None:
    """20 right by both, 15 wrong by both, 5 too kind, 10 too strict: .7 agree; by chance .5; kappa .4."""
    said = [("correct", True)] * 20 + [("wrong", False)] * 15
    said += [("wrong", True)] * 5 + [("correct", False)] * 10
    answers = [
        LabelledAnswer.model_validate_json(json.dumps(labelled(n, label)))
        for n, (label, _) in enumerate(said)
    ]
    found = count("j", answers, [Verdict(verdict) for _, verdict in said])
    assert found.share == pytest.approx(0.7)
    assert found.kappa == pytest.approx(0.4)
    assert (found.too_kind, found.too_strict, found.broken) == (5, 10, 0)


def test_broken_verdicts_count_as_disagreement_and_have_no_part_in_kappa() -> None:
    labels: list[str] = ["correct", "wrong", "correct", "wrong"]
    answers = [
        LabelledAnswer.model_validate_json(json.dumps(labelled(n, label)))
        for n, label in enumerate(labels)
    ]
    found = count("j", answers, [Verdict(True), Verdict(False), Verdict(None), Verdict(None)])
    assert found.share == pytest.approx(0.5)
    assert found.kappa == pytest.approx(1)
    assert found.broken == 2


def test_kappa_is_undefined_where_everything_is_of_one_kind() -> None:
    answers = [LabelledAnswer.model_validate_json(json.dumps(labelled(0, "correct")))]
    assert isnan(count("j", answers, [Verdict(True)]).kappa)
    assert isnan(count("j", answers, [Verdict(None)]).kappa)
    assert isnan(count("j", [], []).share)
    assert nan != nan


async def test_the_judge_is_asked_about_labelled_answers_alone(tmp_path: Path) -> None:
    path = rows.lines(
        tmp_path / "labels.jsonl",
        [
            labelled(0, "correct"),
            labelled(1, "wrong", "cheese"),
            labelled(2, None),
            labelled(3, "correct", "stone"),
        ],
    )
    found = await agreement(StringJudge(), read_labels(path))
    assert (found.answers, found.both_correct, found.both_wrong, found.too_strict) == (3, 1, 1, 1)


@pytest.mark.parametrize(
    ("spoilt", "reported"),
    [
        ({"label": "maybe"}, r"line 2: label: "),
        ({"labelled_by": " "}, r"line 2: labelled_by: it must say who"),
        ({"gold": []}, r"line 2: .*question and gold go together"),
        ({"id": "a0"}, r'line 2: "a0" is the id of line 1 too'),
    ],
)
def test_a_bad_label_is_reported_with_its_line(
    spoilt: dict[str, Any], reported: str, tmp_path: Path
) -> None:
    path = rows.lines(tmp_path / "l.jsonl", [labelled(0, "correct"), labelled(1, "wrong") | spoilt])
    with pytest.raises(BadData, match=reported):
        read_labels(path)


def test_answers_are_written_for_labelling_and_labels_are_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    answers = [LabelledAnswer.model_validate_json(json.dumps(labelled(n, None))) for n in range(3)]
    assert write_unlabelled(path, answers) == 3
    with pytest.raises(BadData, match="no answer has a label yet"):
        read_labels(path)
    with pytest.raises(BadData, match="is there already"):
        write_unlabelled(path, answers)
