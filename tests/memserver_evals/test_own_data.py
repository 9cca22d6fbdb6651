"""Data of one's own: read, played, and refused with the place of what is wrong."""

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memserver.client import Client
from memserver.client.models import Agent
from memserver.errors import BadData, NotFound
from memserver.messages import PromptMessage, ToolSpec
from memserver.settings import Settings
from memserver.testing.scripted import Step, say
from memserver.testing.scripted_rules import echo
from memserver_evals.task import Turn
from memserver_evals.tasks import own
from memserver_evals.tasks.registry import TaskOptions
from memserver_evals.wiring import own_servers
from tests.memserver_evals import rows
from tests.memserver_evals.playing import PlayedSystem
from tests.memserver_evals.support import endpoints, evaluate, lines, means, results
from tests.support.doc_blocks import REPOSITORY, blocks
from tests.support.server import OneDatabase

CELLO: dict[str, Any] = {
    "id": "cello",
    "sessions": [
        {
            "at": "2024-05-01T10:00",
            "messages": [
                {"role": "user", "content": "My cello is called Hugo.", "id": "hugo"},
                {"role": "assistant", "content": "A fine name."},
            ],
        },
        {"messages": [{"role": "user", "content": "It rains."}]},
    ],
    "documents": ["The harbour opens at nine.", {"id": "fees", "text": "Boats pay three coins."}],
    "questions": [
        {"question": "What is my cello called?", "answer": "Hugo", "evidence": ["hugo"]},
        {"question": "What do boats pay?", "answer": ["three coins", 3], "group": "fees"},
        {"question": "Who is my aunt?", "answer": None},
    ],
}


async def test_a_file_of_ones_own_becomes_questions_after_its_history(tmp_path: Path) -> None:
    path = rows.lines(tmp_path / "mine.jsonl", [CELLO, rows.own()])
    task = own.make(TaskOptions(path))
    examples = task.examples()
    assert [each.id for each in examples] == ["cello/1", "cello/2", "cello/3", "2"]
    assert [task.groups(each)["group"] for each in examples] == ["all", "fees", "all", "all"]
    first = examples[0]
    said = first.material.said
    assert [(each.id, each.at.isoformat()) for each in said] == [
        ("hugo", "2024-05-01T10:00:00+00:00"),
        ("m2", "2024-05-01T10:01:00+00:00"),
        ("m3", "2024-05-02T10:01:00+00:00"),
    ]
    assert first.at == datetime(2024, 5, 3, 10, 1, tzinfo=UTC)
    assert first.material.library is not None
    assert [each.id for each in first.material.library.documents] == ["d1", "fees"]
    answers = {
        "What is my cello called?": "It is Hugo.",
        "What do boats pay?": "They pay 3.",
        "Who is my aunt?": "I don't know.",
    }
    system = PlayedSystem(lambda _, text: answers.get(text, "Coffee."))
    scores = [task.score(each, await task.play(each, system))["containment"] for each in examples]
    assert scores == [1, 1, 1, 0]
    assert task.evidence(first) == {"hugo"}
    asked = examples[2]
    claim = task.claim(asked, await task.play(asked, system))
    assert claim is not None
    assert (claim.kind, claim.gold) == ("answer:abstention", ("It can't be known.",))
    assert isinstance((await task.play(asked, system)).turns[0], Turn)


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"questions": []}, "line 1: it has questions, or question and answer"),
        ({"questions": [], "question": "?"}, "line 1: question and answer go together"),
        ({"history": ["Hello."]}, "line 1: history: Extra inputs are not permitted"),
        ({"questions": [{"question": "?"}]}, "line 1: questions[0].answer: Field required"),
        (
            {"questions": [{"question": "?", "answer": "x", "evidence": ["m9"]}]},
            "record 1: question 1: no message and no document has the id 'm9'",
        ),
        (
            {"questions": [{"question": "?", "answer": "x", "at": "2020-01-01"}]},
            "record 1: question 1 is asked before the last message",
        ),
        ({"messages": [{"role": "user", "content": "x"}]}, "can't both be there"),
        ({"documents": [{"id": "hugo", "text": "x"}]}, "'hugo' is the id of two"),
        (
            {"sessions": [*CELLO["sessions"], {**CELLO["sessions"][0], "at": "2023-01-01"}]},
            "record 1: message m4 is earlier than the one before",
        ),
    ],
)
def test_what_is_wrong_in_a_file_of_ones_own_is_named_with_its_place(
    tmp_path: Path, change: dict[str, Any], reported: str
) -> None:
    path = rows.lines(tmp_path / "mine.jsonl", [{**CELLO, **change}])
    with pytest.raises(BadData) as caught:
        own.make(TaskOptions(path))
    assert reported in caught.value.message, caught.value.message


def test_data_of_ones_own_is_evaluated_by_one_command(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = rows.lines(tmp_path / "mine.jsonl", [CELLO, rows.own()])
    out = tmp_path / "run"
    with endpoints(echo, monkeypatch, tmp_path, summary="It is Hugo."):
        asked = ("own", "--data", str(path), "--out", str(out))
        done = evaluate(*asked, database=database)
        shown = evaluate("show", "own", "--data", str(path))
    assert done.error is None, done.output
    assert means(out, "containment") == {"memserver": 0.0, "full": 0.25}
    assert [each["value"] for each in results(out)["groups"]["group"]] == ["all", "fees"]
    [prompt] = [
        row["played"]["turns"][0]["reply"]["exchanges"][0]["prompt"]
        for row in lines(out / "played.jsonl")
        if (row["system"], row["example"]) == ("full", "cello/1")
    ]
    assert shown.error is None
    for message in prompt:
        assert message["content"].strip() in shown.output
    assert "--- right\nHugo" in shown.output
    assert "the same model with the newest that fits the window" in shown.output


def test_a_task_without_its_data_is_shown_without_an_example(tmp_path: Path) -> None:
    shown = evaluate("show", "locomo", "--data", str(tmp_path)).output
    assert "No example: There is no locomo10.json" in shown
    assert "a simulated person" in evaluate("show", "colbench-backend", "--set", "source=generated", "--set", "each=1").output  # fmt: skip


def test_a_package_brings_a_task_and_a_broken_one_disturbs_no_other(tmp_path: Path) -> None:
    page = REPOSITORY / "memserver_evals" / "README.md"
    [code] = [each.text for each in blocks(page) if each.language == "python"]
    [points] = [each.text for each in blocks(page) if each.language == "toml"]
    info = tmp_path / "riddles-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_bytes(b"Name: riddles\nVersion: 1\n")
    named = points.replace('"', "") + "broken = nobody:ENTRY\nmsc = riddles:ENTRY\n"
    (info / "entry_points.txt").write_text(named.replace("project.entry-points.", ""), "utf-8")
    (tmp_path / "riddles.py").write_text(code, "utf-8")
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY)])
    script = (
        "from memserver_evals.cli.commands import make_commands as made; from memserver.errors import SetupError\n"
        "made()(['list'], standalone_mode=False); made()(['show', 'riddles'], standalone_mode=False)\n"
        "try: made()(['broken', '--limit', '1'], standalone_mode=False)\n"
        "except SetupError as error: print(error.message)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout
    listed = {line.split("│")[1].strip(): line for line in done.splitlines() if "│" in line}
    assert "solve riddles" in listed["riddles"]
    assert "No module named 'nobody'" in listed["broken"]
    assert "MSC" in listed["msc"]
    assert "Has a key, but no lock." in done
    assert "The task broken of nobody:ENTRY can't be used: ModuleNotFoundError" in done


ROSE: dict[str, Any] = {
    "id": "rose",
    "messages": [{"role": "user", "content": "The rose is red.", "at": "2020-01-01"}],
    "question": "What colour is the rose?",
    "answer": "red",
}


def say_what_is_known(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Step:
    seen = "\n".join(message.text for message in prompt)
    known = ("gardener", "roses", "rose is red", "like tea")
    return say(", ".join(each for each in known if each in seen))


def test_an_agent_of_ones_own_is_evaluated_on_copies_and_stays_as_it_is(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = str(rows.lines(tmp_path / "mine.jsonl", [ROSE, rows.own()]))
    asked = ("own", "--data", data, "--agent", "context_window=4096")
    file = tmp_path / "sam.zip"
    with endpoints(say_what_is_known, monkeypatch, tmp_path):
        with (
            own_servers(Settings(), ["memserver"], None, database.superuser) as there,
            Client(there.memserver) as client,
        ):
            sam = make_gardener(client)
            client.agents.export("sam", file)
            before = (client.agents.get("sam"), list(client.messages.all("sam")))
            with monkeypatch.context() as without_model:
                without_model.delenv("MEMSERVER_LLM_BASE_URL")
                without_model.setenv("MEMSERVER_URL", there.memserver)
                named = evaluate(*asked, "--agent", "sam", "--out", str(tmp_path / "named"))
                nobody = evaluate(*asked, "--agent", "nobody")
                alone = evaluate(*asked, "--agent", "sam", "--system", "copying")
                assert [each.name for each in client.agents.all()] == ["sam"]
                assert (client.agents.get("sam"), list(client.messages.all("sam"))) == before
                shared = client.sections.create("team", text="Ada leads it.")
                client.agents.create("mia")
                for name in ("sam", "mia"):
                    client.working_context.attach(name, "team", shared.id)
                refused = evaluate(*asked, "--agent", str(sam.id))
        of_file = ("--agent", str(file), "--out", str(tmp_path / "of-file"))
        in_file = evaluate(*asked, *of_file, database=database)
    for done, out in ((named, tmp_path / "named"), (in_file, tmp_path / "of-file")):
        assert done.error is None, done.output
        assert set(results(out)["systems"]) == {"memserver"}
        replies = [row["played"]["turns"][0]["reply"] for row in lines(out / "played.jsonl")]
        assert [each["text"] for each in replies] == [
            "gardener, roses, rose is red",
            "gardener, roses, like tea",
        ]
    assert all(each["exchanges"] for each in replies), "what is started here keeps the prompts"
    assert results(tmp_path / "named")["run"]["agent"]["name"] == "sam"
    assert results(tmp_path / "of-file")["run"]["agent"]["file"] == "sam.zip"
    assert isinstance(nobody.error, NotFound)
    assert "no system is one" in str(alone.error)
    assert "sam shares the section team with other agents" in str(refused.error)


def make_gardener(client: Client) -> Agent:
    persona = {"name": "persona", "text": "You are a gardener."}
    sam = client.agents.create("sam", sections=[persona], options={"max_output_tokens": 200})
    client.messages.send("sam", "I grow roses.")
    return sam
