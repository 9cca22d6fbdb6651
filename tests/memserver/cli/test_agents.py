"""`memserver agents`, and how every command that speaks to a server finds it."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.main import get_command

from memserver.cli.main import Commands, main
from memserver.cli.options import server_url
from memserver.client import Client
from memserver.testing.scripted import ScriptedModel
from memserver.testing.scripted_rules import echo
from memserver_evals.cli.commands import make_commands
from sweet_rl.cli.commands import commands as train
from tests.support.client import served
from tests.support.server import OneDatabase
from tests.support.terminal import piped, plain, terminal


@dataclass
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def at(url: str, folder: Path, *arguments: str) -> Done:
    """A command that knows by the environment alone where the server is; run in this process, which has its modules."""
    printed = [TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    status, environment = 0, {**plain(folder), "MEMSERVER_URL": url}
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        for name in os.environ:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["memserver", *arguments])
        patch.setattr(sys, "stdin", StringIO())
        patch.setattr(sys, "stdout", printed[0])
        patch.setattr(sys, "stderr", printed[1])
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    out, err = (each.buffer.getvalue().decode() for each in printed)
    return Done(status, out, err)


def test_agents_are_listed_shown_and_deleted(tmp_path: Path, database: OneDatabase) -> None:
    with served(database, ScriptedModel(echo)) as server, Client(server.url) as client:
        none = at(server.url, tmp_path, "agents", "list")
        assert (none.returncode, none.stdout) == (0, "")
        assert "no agents yet. `memserver chat sam` makes one" in none.stderr
        assert json.loads(at(server.url, tmp_path, "agents", "list", "--json").stdout) == []

        sam = client.agents.create("sam", model="an-adapter")
        mia = client.agents.create("mia")
        client.messages.send("mia", "hello")
        client.archival.insert("mia", ["Bees dance."])
        listed = at(server.url, tmp_path, "agents", "list").stdout
        rows = [line.split() for line in listed.splitlines()]
        assert next(row for row in rows if str(sam.id) in row)[1] == "sam"
        [line] = [line for line in listed.splitlines() if str(mia.id) in line]
        cells = [cell.strip() for cell in line.strip("│┃").split("│")]
        assert cells[:4] == ["mia", str(mia.id), "the server's", "2"]
        as_json = json.loads(at(server.url, tmp_path, "agents", "list", "--json").stdout)
        assert [(each["name"], each["message_count"]) for each in as_json] == [
            ("sam", 0),
            ("mia", 2),
        ]

        shown = at(server.url, tmp_path, "agents", "show", "mia").stdout
        for part in (str(mia.id), "messages  2", "passages  1 in mia", "human", "(empty)"):
            assert part in shown
        assert "working_context" in shown

        forked = at(
            server.url, tmp_path, "agents", "fork", "mia", "--name", "leo", "--position", "1000"
        )
        assert "Made leo (" in forked.stdout
        assert [each.text for each in client.messages.all("leo")] == ["hello"]
        client.agents.delete("leo")
        details = json.loads(at(server.url, tmp_path, "agents", "show", "mia", "--json").stdout)
        assert details["agent"]["id"] == str(mia.id)
        assert [each["name"] for each in details["sections"]] == ["persona", "human"]
        assert details["context"]["window"] > 0
        assert "send_message" in details["tools"]

        refused = at(server.url, tmp_path, "agents", "delete", "mia")
        assert (refused.returncode, client.agents.get("mia").id) == (1, mia.id)
        assert "--yes deletes without asking" in refused.stderr
        deleted = at(server.url, tmp_path, "agents", "delete", str(mia.id), "--yes")
        assert deleted.stdout == f"Deleted mia ({mia.id}).\n"
        assert client.agents.find("mia") is None
        unknown = at(server.url, tmp_path, "agents", "show", "mia")
        assert unknown.stderr == (
            "memserver: There is no agent 'mia'.\n  memserver agents list shows them.\n"
        )


def test_deleting_asks_in_a_terminal(tmp_path: Path, database: OneDatabase) -> None:
    with served(database, ScriptedModel(echo)) as server, Client(server.url) as client:
        client.agents.create("sam")
        for answer, left in (("n", 1), ("y", 0)):
            with terminal(tmp_path, "agents", "delete", "sam", MEMSERVER_URL=server.url) as shown:
                shown.wait_for("Delete sam with 0 messages and all that it remembers? [y/N]: ")
                shown.type(f"{answer}\n")
                assert shown.end() == left
            assert len(client.agents.list()) == left


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_a_list_is_whole_in_a_terminal_of_any_width(
    tmp_path: Path, database: OneDatabase, columns: int
) -> None:
    with served(database, ScriptedModel(echo)) as server, Client(server.url) as client:
        sam = client.agents.create("sam", model="support-adapter@0123456789abcdef")
        with terminal(
            tmp_path, "agents", "list", MEMSERVER_URL=server.url, COLUMNS=str(columns)
        ) as shown:
            assert shown.end() == 0
    lines = shown.text.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in shown.text
    for value in ("sam", str(sam.id), "support-adapter@0123456789abcdef"):
        assert value in shown.text


def test_every_command_that_speaks_to_a_server_honours_memserver_url(
    tmp_path: Path, database: OneDatabase
) -> None:
    (tmp_path / "bees.txt").write_bytes(b"")
    with served(database, ScriptedModel(echo)) as server:
        assert at(server.url, tmp_path, "chat", "sam", "-m", "hi").stdout == "echo: hi\n"
        sent = at(server.url, tmp_path, "ingest", "bees.txt", "--agent", "sam")
        assert (sent.returncode, "The file is empty" in sent.stdout) == (1, True), sent.stdout
        assert "bytes" in at(server.url, tmp_path, "export", "sam", "sam.zip").stdout
        assert "tom (" in at(server.url, tmp_path, "import", "sam.zip", "--name", "tom").stdout
        listed = json.loads(at(server.url, tmp_path, "agents", "list", "--json").stdout)
        assert [each["name"] for each in listed] == ["sam", "tom"]


def commands_within(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if inner := getattr(command, "commands", None):
        for each in inner.values():
            yield from commands_within(each, f"{name} {each.name}")
    else:
        yield name, command


def test_every_command_takes_the_servers_address_and_key_alike() -> None:
    whole = [(name, listed.load(name)) for name, listed in Commands.own.items()]
    whole += [("eval", get_command(make_commands())), ("train", get_command(train))]
    found = {}
    for name, command in whole:
        for path, each in commands_within(command, name):
            variables = {option: one.envvar for one in each.params for option in one.opts}
            found[path] = [variables.get("--url", ""), variables.get("--api-key", "")]
    speaking = {path for path, variables in found.items() if any(variables)}
    assert speaking > {"chat", "ingest", "export", "import", "agents fork", "eval msc"}
    for path in speaking:
        assert found[path] == ["MEMSERVER_URL", "MEMSERVER_API_KEY"], path


def test_where_nothing_listens_a_command_says_how_to_start_it(tmp_path: Path) -> None:
    for command in (("agents", "list"), ("chat", "sam"), ("export", "sam", "x.zip")):
        done = at("http://127.0.0.1:9", tmp_path, *command)
        assert done.returncode == 1
        assert "127.0.0.1:9" in done.stderr
        assert "memserver serve" in done.stderr


def test_a_server_that_listens_everywhere_is_found_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {}
    for host in ("127.0.0.1", "0.0.0.0", "::", "10.0.0.5"):
        monkeypatch.setenv("MEMSERVER_HOST", host)
        found[host] = server_url(None)
    assert found == {
        "127.0.0.1": "http://127.0.0.1:8283",
        "0.0.0.0": "http://127.0.0.1:8283",
        "::": "http://[::1]:8283",
        "10.0.0.5": "http://10.0.0.5:8283",
    }
    assert server_url("https://elsewhere") == "https://elsewhere"


def test_chat_makes_an_agent_of_an_unknown_name_but_not_of_an_unknown_id(
    tmp_path: Path, database: OneDatabase
) -> None:
    with served(database, ScriptedModel(echo)) as server, Client(server.url) as client:
        made = piped(tmp_path, "", "chat", "sam", "--url", server.url, "-m", "one")
        again = piped(tmp_path, "", "chat", "sam", "--url", server.url, "-m", "two")
        id_ = str(UUID(int=7))
        refused = piped(tmp_path, "", "chat", id_, "--url", server.url, "-m", "three")
        names = [each.name for each in client.agents.list().items]
    assert (made.stdout, made.stderr) == (
        "echo: one\n",
        "There was no agent sam: it is made now.\n",
    )
    assert (again.stdout, again.stderr) == ("echo: two\n", "")
    assert (refused.returncode, names) == (1, ["sam"])
    assert f"There is no agent '{id_}'." in refused.stderr


def test_a_tool_is_listed_and_tried(tmp_path: Path, database: OneDatabase) -> None:
    with served(database, ScriptedModel(echo)) as server, Client(server.url) as client:
        client.tools.create_webhook("weather", "The weather.\nToday.", "https://nobody.invalid/")
        listed = at(server.url, tmp_path, "tools", "list").stdout
        failed = at(server.url, tmp_path, "tools", "try", "weather", "--args", '{"city": "Oslo"}')
        wrong = at(server.url, tmp_path, "tools", "try", "weather", "--args", "city=Oslo")
    [line] = [line for line in listed.splitlines() if "weather" in line]
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        "weather",
        "webhook",
        "The weather.",
    ]
    assert (failed.returncode, failed.stdout.splitlines()[1:]) == (
        1,
        ["weather has no argument city; it takes inner_thought, request_heartbeat."],
    )
    assert (wrong.returncode, "--args is no JSON" in wrong.stderr) == (1, True)
