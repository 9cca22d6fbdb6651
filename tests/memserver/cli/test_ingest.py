"""`memserver ingest`: files and folders, each with its result."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from memserver.cli.main import main
from memserver.client import Client
from memserver.testing.scripted import ScriptedModel
from memserver.testing.scripted_rules import echo
from tests.support.client import Served, served
from tests.support.server import OneDatabase
from tests.support.terminal import terminal

FILES = Path(__file__).parents[2] / "data" / "documents"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server(database: OneDatabase) -> Iterator[Served]:
    with served(database, ScriptedModel(echo), jobs_at_once=2) as server:
        with Client(server.url) as client:
            client.agents.create("sam")
        yield server


@pytest.fixture
def run(
    server: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """A command in this process, in the folder of the test's files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMSERVER_URL", server.url)
    monkeypatch.setattr("memserver.cli.ingest.LOOK_SECONDS", 0.05)

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["memserver", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return command


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        file = folder / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def test_a_folder_is_sent_with_all_that_is_in_it_but_hidden_files(
    run: Run, server: Served, tmp_path: Path
) -> None:
    write(
        tmp_path,
        notes__bees_dot_md="# Bees\n\nThey dance.",
        notes__deep__er__owls_dot_txt="Owls hoot.",
        notes___dot_hidden="secret",
        notes___dot_git__config_dot_txt="secret",
    )
    os.mkfifo(tmp_path / "notes" / "pipe.txt")
    first = run("ingest", "notes", "--agent", "sam", "--json")
    only = run("ingest", "notes", "--agent", "sam", "--glob", "*.md", "--json")
    none = run("ingest", "notes", "--agent", "sam", "--glob", "*.pdf")
    with Client(server.url) as client:
        names = [each.name for each in client.documents.all_of_agent("sam")]
    assert (first[0], json.loads(first[1])) == (
        0,
        [
            {"file": "notes/bees.md", "result": "stored", "passages": 1, "remarks": ""},
            {"file": "notes/deep/er/owls.txt", "result": "stored", "passages": 1, "remarks": ""},
        ],
    )
    assert [each["file"] for each in json.loads(only[1])] == ["notes/bees.md"]
    assert names == ["bees.md", "deep/er/owls.txt", "bees.md"]
    assert (none[0], "There is no such file in these folders." in none[2]) == (1, True)


def test_a_bad_file_stops_no_other_and_every_file_has_its_result(
    run: Run, server: Served, tmp_path: Path
) -> None:
    write(tmp_path, good_dot_md="# Title\n\nSome words.", later_dot_txt="Later words.")
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe name.txt")
    Path(odd).write_bytes(b"Strange words.")
    for name in ("scanned.pdf", "half_scanned.pdf"):
        (tmp_path / name).write_bytes((FILES / name).read_bytes())
    names = ["absent.md", "good.md", odd, "scanned.pdf", "half_scanned.pdf", "later.txt"]
    code, out, err = run("ingest", *names, "--agent", "sam")
    cells = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in out.splitlines()
        if line.startswith("│")
    ]
    found = {Path(file).name: rest for file, *rest in cells}
    assert (code, err) == (1, "")
    assert found["absent.md"] == ["failed", "0", "No such file or directory."]
    assert found["good.md"] == ["stored", "1", ""]
    assert found["\\xff\\xfe name.txt"] == ["stored", "1", ""]
    assert found["later.txt"][0] == "stored"
    assert found["scanned.pdf"][0] == "failed"
    assert "images without text" in found["scanned.pdf"][2]
    assert found["half_scanned.pdf"] == ["stored", "1", "No text on 1 of 2 pages: 2."]
    assert out.splitlines()[-1] == "2 failed, 4 stored."
    with Client(server.url) as client:
        assert "\\xff\\xfe name.txt" in [each.name for each in client.documents.all_of_agent("sam")]


def test_content_that_is_there_is_reported_as_what_it_is_and_gets_the_tags(
    run: Run, server: Served, tmp_path: Path
) -> None:
    write(tmp_path, one_dot_txt="Same words.", two_dot_txt="Same words.")
    run("ingest", "one.txt", "--agent", "sam", "--tag", "old")
    code, out, _ = run(
        "ingest", "two.txt", "--agent", "sam", "--unique", "--tag", "new", "--tag", "old", "--json"
    )
    assert (code, json.loads(out)) == (
        0,
        [{"file": "two.txt", "result": "already there", "passages": 1, "remarks": "As one.txt."}],
    )
    with Client(server.url) as client:
        [document] = client.documents.all_of_agent("sam")
        [passage] = client.archival.list("sam", tag=["new"]).items
    assert document.tags == passage.tags == ["old", "new"]


def test_a_server_that_goes_away_leaves_a_report_of_what_was_sent(
    run: Run, server: Served, tmp_path: Path
) -> None:
    write(tmp_path, a_dot_txt="First words.", b_dot_txt="Second words.", c_dot_txt="Third words.")
    uploads = iter((None, 0, 0, 0))
    server.line.cut = lambda method, path: (
        next(uploads) if (method, path[-10:]) == ("POST", "/documents") else None
    )
    code, out, err = run("ingest", "a.txt", "b.txt", "c.txt", "--agent", "sam", "--json")
    assert [each["result"] for each in json.loads(out)] == ["waiting", "not sent", "not sent"]
    assert (code, "No memserver answers at" in err) == (1, True)


def test_what_is_asked_of_ingest_wrongly_is_said(run: Run, tmp_path: Path) -> None:
    write(tmp_path, a_dot_txt="Words.")
    assert "There is no agent 'who'" in run("ingest", "a.txt", "--agent", "who")[2]
    assert "Name an agent or a collection." in run("ingest", "a.txt")[2]


def test_a_terminal_shows_how_far_the_files_are(server: Served, tmp_path: Path) -> None:
    write(tmp_path, a_dot_txt="First words.", b_dot_txt="Second words.")
    with terminal(
        tmp_path, "ingest", "a.txt", "b.txt", "--agent", "sam", MEMSERVER_URL=server.url
    ) as shown:
        shown.wait_for("sending")
        shown.wait_for("2 stored.")
        assert shown.end() == 0


def test_tags_and_metadata_of_the_same_content_are_kept_beside_its_own(server: Served) -> None:
    def post(**query: str | list[str]) -> "httpx2.Response":
        url = f"{server.url}/v1/agents/sam/documents"
        return httpx2.post(url, content=b"Same words.", params={"unique": "true", **query})

    made = post(name="a.txt", tags=["x"], metadata='{"from": "me"}')
    same = post(name="b.txt", tags=["y"], metadata='{"from": "you", "of": "him"}')
    full = post(tags=[f"t{number}" for number in range(99)])
    assert (made.status_code, made.json()["is_new"]) == (202, True)
    assert (same.status_code, same.json()["is_new"], same.json()["name"]) == (200, False, "a.txt")
    assert same.json()["tags"] == ["x", "y"]
    assert same.json()["metadata"] == {"from": "me", "of": "him"}
    assert (full.status_code, full.json()["error"]["code"]) == (422, "invalid_input")
