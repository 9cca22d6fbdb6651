"""The tour of examples/README.md, as its reader takes it: the programs, against one server process."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, Step, say
from memserver.testing.scripted_rules import last_user_text
from memserver.testing.scripted_server import create_scripted_app
from tests.support.doc_blocks import REPOSITORY
from tests.support.http_app import serving
from tests.support.server import OneDatabase
from tests.support.servers import memserver, settings_for, temporary_folder
from tests.support.terminal import plain

Run = Callable[..., list[str]]
NOTES = {"notes": {"command": sys.executable, "args": ["mcp_notes.py"]}}
THREE = (
    Call("weather", {"city": "Oslo", "unit": "F"}),
    Call("order", {"what": "a fern"}),
    Call("notes__read_note", {"title": "ferns"}),
)


def guide(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Step:
    """Calls what is asked for, one after the other, and says what came of it, from the prompt alone."""
    results: list[str] = []
    for message in reversed(prompt):
        if message.role == "user":
            break
        if message.role == "tool":
            results.insert(0, message.text)
    calls = THREE if "fern" in last_user_text(prompt) else THREE[:1]
    return say(" | ".join(results)) if len(results) == len(calls) else calls[len(results)]


@pytest.fixture(scope="module")
def run(shared_database: OneDatabase) -> Iterator[Run]:
    """Runs a program of the tour in a copy of its folder; gives the lines that it prints."""
    with temporary_folder() as folder, serving(create_scripted_app(guide)) as model:
        shutil.copytree(REPOSITORY / "examples", folder / "examples")
        shutil.copytree(REPOSITORY / "prompts", folder / "examples" / "prompts")
        settings = settings_for(
            model,
            llm_model="scripted",
            home=folder / "home",
            database_url=shared_database.owner,
            database_app_url=shared_database.app,
            mcp_servers=json.dumps(NOTES),
            tool_networks="127.0.0.0/8",
        )
        with memserver(folder / "examples", settings, "--tools", "weather_tools") as server:

            def program(name: str, *arguments: str, typed: str = "") -> list[str]:
                done = subprocess.run(
                    [sys.executable, name, *arguments, "--url", server.url],
                    check=False,
                    cwd=folder / "examples",
                    env=plain(folder),
                    input=typed,
                    capture_output=True,
                    encoding="utf-8",
                    timeout=100,
                )
                assert done.returncode == 0, done.stderr
                return done.stdout.splitlines()

            yield program


def test_a_function_a_webhook_and_an_mcp_server_are_used_in_one_turn(run: Run):
    for _ in range(2):  # a reader may run it again
        *calls, said = run("three_tools.py")
        assert calls == [
            'weather({"city": "Oslo", "unit": "F"}) -> '
            '{"city": "Oslo", "sky": "clear", "degrees": 57.2, "unit": "F"}',
            'order({"what": "a fern"}) -> {"ordered": "a fern", "again": false}',
            'notes__read_note({"title": "ferns"}) -> Ferns want shade and a wet soil.',
        ]
        parts = [each.removeprefix("OK. ") for each in said.split(" | ")]
        assert parts == [each.partition(" -> ")[2] for each in calls]


def test_a_person_approves_and_denies(run: Run):
    question = 'weather({"city": "Oslo", "unit": "F"})'
    paused, asked, answered = run("approve.py", "The weather in Oslo?", typed="y\n")
    assert (paused, asked) == ("requires_action", question)
    assert '"sky": "clear"' in answered
    _, asked, denied = run("approve.py", "And now?", typed="n\nIt costs too much.\n")
    assert asked == f"{question}"
    assert denied.endswith("Failed: A person refused this: It costs too much.")
    assert run("approve.py") == []


def test_an_agent_is_imported_with_a_report_of_what_was_not_carried(run: Run):
    made, *rest = run("import_agent.py", "letta_librarian.af")
    assert made == "librarian: 2 messages, 0 passages"
    at = rest.index("not carried:")
    assert rest[:at] == [
        "  persona: Quiet, exact, fond of maps.",
        "  human: Name: Ada. Reads about ferns.",
    ]
    reported = [line.split(":")[0].strip() for line in rest[at + 1 :]]
    assert "tool find_shelf" in reported
