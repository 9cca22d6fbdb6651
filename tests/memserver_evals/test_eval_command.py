"""`memserver eval` from the command line to the report, over a real database with a scripted model."""

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from memserver.errors import Conflict, InvalidInput, ModelUnavailable
from memserver.messages import PromptMessage
from memserver.settings import Settings
from memserver.testing.scripted_rules import echo, search_then_echo
from memserver_evals.wiring import own_servers
from tests.memserver_evals.support import endpoints, evaluate, lines, means, results
from tests.support.server import OneDatabase
from tests.support.terminal import terminal

SMALL = ("--set", "each=2", "--set", "pairs=8")
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SAME = ("played.jsonl", "examples.jsonl", "results.json", "manifest.json")


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in SAME}


def test_every_system_is_run_and_the_script_that_searches_ends_at_every_value(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with endpoints(echo, monkeypatch, tmp_path, context_window=4096):
        done = evaluate(
            "nested-kv", "--system", "all", *SMALL, "--out", str(out), database=database
        )
    assert done.error is None, done.output
    found = means(out, "accuracy")
    assert set(found) == {
        "memserver",
        "memserver-auto",
        "full",
        "window",
        "retrieval",
        "copying",
        "ten-searches-pasted",
    }
    assert found["ten-searches-pasted"] == 1.0
    assert found["copying"] == 0.2, "what needs one look-up"
    assert found["memserver"] == 0.0
    searches = {name: one["searches"] for name, one in results(out)["systems"].items()}
    pasted = searches.pop("ten-searches-pasted")
    assert pasted["own"] > 1
    assert 0 < pasted["own_right"] <= 1
    assert searches.pop("memserver") == {"own": 0, "own_right": None, "auto": 0, "auto_right": None}
    assert searches.pop("memserver-auto")["own"] == 0
    assert set(searches.values()) == {None}
    assert results(out)["systems"]["copying"]["answer_words"] == 10
    assert results(out)["run"]["windows"] == {
        "memserver": 2048,
        "memserver-auto": 2048,
        "full": 4096,
        "window": 2048,
        "retrieval": 2048,
        "copying": None,
        "ten-searches-pasted": None,
    }, "the model has 4,096, less than full may use"
    pages = {name: one["page_characters"] for name, one in results(out)["systems"].items()}
    assert 100 < pages.pop("ten-searches-pasted") < 2_000
    assert set(pages.values()) == {None}
    assert re.search(r"ten-searches-pasted .* \d+ chars ", done.output)
    by_level = results(out)["groups"]["level"]
    assert [each["value"] for each in by_level] == [0, 1, 2, 3, 4]
    assert {
        each["systems"]["ten-searches-pasted"]["scores"]["accuracy"]["mean"] for each in by_level
    } == {1.0}
    rows = lines(out / "played.jsonl")
    assert len(rows) == 7 * 10
    for row in rows:
        if row["system"] == "copying":
            continue
        [turn] = row["played"]["turns"]
        assert turn["reply"]["exchanges"], row["system"]
        assert turn["reply"]["tokens_in"] > 0
        assert "What is the value at the end of the key" in str(
            turn["reply"]["exchanges"][0]["prompt"]
        )
    page = (out / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    for picture in ("scores.png", "by-level.png"):
        assert (out / picture).read_bytes().startswith(b"\x89PNG")
    assert "ten-searches-pasted" in page


def test_the_tables_of_a_run_are_printed_as_markdown_and_several_runs_drawn_in_one_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with endpoints(echo, monkeypatch, tmp_path):
        asked = ("nested-kv", "--system", "full", "--system", "window", *SMALL)
        assert evaluate(*asked, "--out", str(out)).error is None
    shown = evaluate("tables", str(out))
    assert shown.error is None
    found = shown.output.splitlines()
    assert found[2].startswith(
        "| system | window | examples | accuracy | contained | answer words |"
    )
    assert found[4].startswith("| full | 8,192 | 10 | 0.000 [0.00, 0.31] | ")
    assert found[5].startswith("| window | 2,048 | 10 | 0.000 [0.00, 0.31] | ")
    assert "| level | full | window |" in found
    missing = evaluate("tables", str(tmp_path))
    assert isinstance(missing.error, InvalidInput)
    picture = tmp_path / "all.png"
    drawn = evaluate("picture", f"{out}:full", f"{out}:window", "--out", str(picture))
    assert drawn.error is None, drawn.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert drawn.output.splitlines()[:-1] == [
        "| system | nested-kv, accuracy |",
        "| --- | --- |",
        "| `full` | .000 [.00, .31] |",
        "| `window` | .000 [.00, .31] |",
        "",
        "- nested-kv, accuracy: n 10, each=2, pairs=8, window 2,048, `full` 8,192, model scripted, temperature 0",
        "",
    ]
    assert isinstance(evaluate("picture", str(tmp_path)).error, InvalidInput)
    missing = evaluate("picture", f"{out}:copying", "--out", str(picture))
    assert isinstance(missing.error, InvalidInput)
    assert "It has full, window." in missing.error.hint


def test_a_run_is_gone_on_with_and_another_one_refused_its_folder(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    asked = ("nested-kv", "--system", "full", *SMALL, "--out", str(out))
    with endpoints(echo, monkeypatch, tmp_path):
        assert evaluate(*asked).error is None
        before = files(out)
        played = out / "played.jsonl"
        kept = played.read_bytes().splitlines(keepends=True)
        played.write_bytes(b"".join(kept[5:]) + kept[0][:40])
        again = evaluate(*asked)
        assert again.error is None
        assert "10 to play, 5 of them done" in again.output
        assert files(out) == before
        other = evaluate(*asked, "--max-tokens", "64")
        assert isinstance(other.error, Conflict)
        assert "max_tokens" in other.error.message
        assert files(out) == before


def test_a_run_grows_with_its_limit_over_all_groups_and_the_report_says_how_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    asked = ("nested-kv", "--system", "full", *SMALL, "--out", str(out), "--judge-key", "s3cret")
    with endpoints(echo, monkeypatch, tmp_path):
        assert evaluate(*asked, "--limit", "5").error is None
        three = lines(out / "examples.jsonl")
        grown = evaluate(*asked, "--limit", "7")
        assert grown.error is None, grown.output
        assert "7 to play, 5 of them done" in grown.output
        before = (files(out), (out / "timings.jsonl").read_bytes())
        smaller = evaluate(*asked, "--limit", "6")
        other = evaluate(*asked, "--limit", "9", "--seed", "1")
    assert [row["groups"]["level"] for row in three] == [0, 1, 2, 3, 4]
    assert {row["example"] for row in three} < {
        row["example"] for row in lines(out / "examples.jsonl")
    }
    assert isinstance(smaller.error, Conflict)
    assert smaller.error.message == (
        f"{out} has 7 examples, 1 of which are not among the 6 of this command: a run only grows."
    )
    assert isinstance(other.error, Conflict)
    assert (files(out), (out / "timings.jsonl").read_bytes()) == before
    page = (out / "report.html").read_text(encoding="utf-8")
    for limit in (5, 7):
        assert f"memserver eval nested-kv --system=full --limit={limit} --set=each=2" in page
    assert re.search(r"<dt>played</dt><dd>\d+ \w+ 20\d\d, \d\d:\d\d .*UTC, in \d:\d\d:\d\d", page)
    assert "<dt>model</dt><dd>name scripted, window" in page
    assert " CPUs</dd>" in page
    assert "s3cret" not in page


def test_two_systems_are_compared_on_the_same_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads_the_prompt(prompt: Sequence[PromptMessage]) -> str:
        """Right for what needs one look-up, if the pair is in sight."""
        key = UUID.findall(prompt[-1].text)[-1]
        pairs = dict(re.findall(rf'"({UUID.pattern})": "({UUID.pattern})"', prompt[0].text))
        return pairs.get(key, "I don't know.")

    out = tmp_path / "run"
    asked = ("nested-kv", "--set", "each=6", "--set", "pairs=40", "--context-window", "700")
    with endpoints(echo, monkeypatch, tmp_path, summary=reads_the_prompt):
        done = evaluate(*asked, "--system", "full", "--system", "window", "--out", str(out))
        assert done.error is None
    compared = evaluate("compare", f"{out}:window", f"{out}:full", "--json")
    assert compared.error is None
    found = json.loads(compared.output)
    every = found["differences"]["all"]
    assert found["shared"] == every["estimate"]["count"] == 30
    assert every["a"] <= every["b"] == pytest.approx(0.2)
    assert found["differences"]["level=0"]["b"] == 1.0
    assert found["differences"]["level=3"]["equal"] == 6
    shown = evaluate("compare", f"{out}:window", f"{out}:full")
    assert "level=0" in shown.output
    assert isinstance(evaluate("compare", str(out), str(out)).error, InvalidInput)
    missing = evaluate("compare", f"{out}:nobody", f"{out}:full")
    assert isinstance(missing.error, InvalidInput)
    assert "window" in missing.error.message


def test_what_a_model_says_can_not_break_out_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    evil = "</pre><script>alert(1)</script>\u2028<img src=x>"
    with endpoints(echo, monkeypatch, tmp_path, summary=evil):
        asked = ("nested-kv", "--system", "full", *SMALL, "--out", str(out))
        assert evaluate(*asked).error is None
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_report_is_made_again_without_asking_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with endpoints(echo, monkeypatch, tmp_path):
        asked = ("nested-kv", "--system", "full", *SMALL, "--out", str(out))
        assert evaluate(*asked).error is None
    before = files(out)
    for name in ("report.html", "results.json", "examples.jsonl"):
        (out / name).unlink()
    assert evaluate("report", str(out)).error is None
    assert files(out) == before


def test_bad_options_are_errors_before_anything_is_asked(tmp_path: Path) -> None:
    for asked, reported in (
        (("--system", "nobody"), "no system 'nobody'"),
        (("--system", "summary"), "can't do nested-kv"),
        (("--set", "each"), "key=value"),
        (("--agent", "a", "--agent", "b"), "--agent names two agents: a and b."),
        (("--set", "source=file"), "no data folder"),
        (("--set", "levels=3"), "no option"),
        (("--data", str(tmp_path)), "nested_kv_base"),
    ):
        done = evaluate("nested-kv", *asked, "--out", str(tmp_path / "run"))
        assert isinstance(done.error, InvalidInput), asked
        assert reported in done.error.message
    assert not (tmp_path / "run").exists()


def test_an_endpoint_that_goes_down_ends_the_run_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memserver_evals.runs.player.PAUSES", ())
    up = [True]

    def after_three(prompt: Sequence[PromptMessage]) -> str | Exception:
        asked.append(prompt[-1].text)
        return "yes" if len(asked) <= 3 or up[0] is not True else ModelUnavailable("down")

    asked: list[str] = []
    out = tmp_path / "run"
    wanted = ("nested-kv", "--system", "full", *SMALL, "--out", str(out), "--at-once", "1")
    with endpoints(echo, monkeypatch, tmp_path, summary=after_three):
        ended = evaluate(*wanted)
        assert isinstance(ended.error, ModelUnavailable)
        assert len(lines(out / "played.jsonl")) == 3
        up[0] = False
        assert evaluate(*wanted).error is None
    assert len(lines(out / "played.jsonl")) == 10


def test_the_list_names_tasks_and_systems_and_show_says_what_a_task_needs() -> None:
    done = evaluate("list")
    assert done.error is None
    for reported in ("nested-kv", "longmemeval", "ten-searches-pasted", "eval show TASK"):
        assert reported in done.output
    shown = evaluate("show", "nested-kv").output
    for reported in ("nested_kv.jsonl", "--data", "pairs in each look-up", "ten-searches-pasted"):
        assert reported in shown
    as_json = json.loads(evaluate("list", "--json").output)
    [nested] = [each for each in as_json["tasks"] if each["name"] == "nested-kv"]
    assert nested == json.loads(evaluate("show", "nested-kv", "--json").output)
    assert {each["name"] for each in as_json["systems"]} >= set(nested["systems"])
    unknown = evaluate("show", "nope")
    assert isinstance(unknown.error, InvalidInput)
    assert "nested-kv" in unknown.error.hint


def test_a_memserver_that_runs_elsewhere_is_evaluated_without_a_model_here(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with endpoints(search_then_echo, monkeypatch, tmp_path), ExitStack() as stack:
        there = stack.enter_context(
            own_servers(Settings(), ["memserver"], None, database.superuser)
        )
        monkeypatch.delenv("MEMSERVER_LLM_BASE_URL")
        asked = ("nested-kv", "--system", "memserver", *SMALL, "--out", str(out))
        done = evaluate(*asked, "--url", there.memserver, "--agent", "max_output_tokens=256")
    assert done.error is None, done.output
    replies = [row["played"]["turns"][0]["reply"] for row in lines(out / "played.jsonl")]
    assert len(replies) == 10
    assert all(reply["text"].startswith("echo: What is the value") for reply in replies)
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["options"]["agent"] == {"max_output_tokens": 256}
    assert manifest["model"] == {"name": "scripted"}
    assert all(reply["tokens_in"] > 0 and not reply["exchanges"] for reply in replies)


def test_the_list_is_whole_in_a_terminal_of_80_columns(tmp_path: Path) -> None:
    with terminal(tmp_path, "eval", "list") as shown:
        assert shown.end() == 0
    listed = json.loads(evaluate("list", "--json").output)
    assert "…" not in shown.text
    assert max(map(len, shown.text.splitlines())) <= 80
    words = " ".join(re.sub("[│┃]", " ", shown.text).split())
    for task in listed["tasks"]:
        assert task["name"] in words
    for word in " ".join(each["is"] for each in listed["systems"]).split():
        assert word in words
