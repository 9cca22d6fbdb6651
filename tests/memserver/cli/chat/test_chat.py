"""`memserver chat` in a real terminal, and through pipes."""

import asyncio
import re
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from memserver.client import Client
from memserver.client.models import Agent
from memserver.errors import ModelUnavailable, NotFound, ProtocolViolation
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Broken, Call, Held, ScriptedModel, Step, say
from memserver.testing.scripted_rules import echo, last_user_text
from tests.support.client import once, served
from tests.support.server import OneDatabase
from tests.support.servers import wait_for
from tests.support.terminal import piped, piping, terminal

ASK = "you > "
NOTE = Call(
    "working_context_append",
    {
        "section": "human",
        "content": "Name: Ada.",
        "request_heartbeat": True,
        "inner_thought": "Worth keeping.",
    },
)


def test_a_person_talks_with_an_agent_that_is_made_for_it(tmp_path: Path, database: OneDatabase):
    model = ScriptedModel([NOTE, say("Hello, Ada!", thought="A guest."), say("Bye.")])
    with (
        served(database, model) as server,
        terminal(tmp_path, "chat", "sam", "--url", server.url) as shown,
    ):
        shown.wait_for("There was no agent sam: it is made now.")
        shown.wait_for(ASK)
        shown.type("I am Ada.\n")
        answer = shown.wait_for("2 steps")
        order = ["Worth keeping.", 'working_context_append(section="human"', "sam > Hello, Ada!"]
        places = [answer.index(part) for part in [*order, "A guest."]]
        assert places == sorted(places)
        assert re.search(r"context \d+ % of [\d,]+ tokens", answer)
        assert "send_message" not in answer
        assert b"\x1b[2;3m" in shown.raw, "thoughts are dimmed"
        shown.wait_for(ASK)
        shown.type("/thoughts off\n")
        shown.wait_for(ASK)
        shown.type("Bye\n")
        assert "None" not in shown.wait_for("1 step")
        shown.wait_for(ASK)
        shown.type("\x04")
        assert shown.end() == 0


def test_commands_show_and_change_the_memory(tmp_path: Path, database: OneDatabase):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "Name: Ben" > "$1"\n', encoding="utf-8")
    editor.chmod(0o755)
    with served(database, ScriptedModel(echo)) as server, Client(server.url) as client:
        agent = client.agents.create("sam")
        with terminal(tmp_path, "chat", "sam", "--url", server.url, EDITOR=str(editor)) as shown:

            def answer_to(line: str) -> str:
                shown.wait_for(ASK)
                shown.type(line + "\n")
                shown.wait_for("\n")
                start = shown.seen
                shown.wait_for(ASK)
                shown.seen -= len(ASK)
                return shown.text[start : shown.seen]

            assert "Nothing was said yet." in answer_to("/history")
            assert "no message has these words" in answer_to("/search otters")
            assert "echo: Otters float." in answer_to("Otters float.")
            assert str(agent.id) in answer_to("/agents")
            assert "(empty)" in answer_to("/memory")
            answer_to("/edit human Name: Ada")
            assert client.working_context.get(agent.id)["human"].text == "Name: Ada"
            answer_to("/edit human")
            assert "Name: Ben" in answer_to("/memory")
            answer_to("/archive Bees dance.")
            found = answer_to("/search otters")
            assert "2 messages" in found
            assert "Otters float." in found
            assert "Bees dance." in found
            assert "working_context" in answer_to("/context")
            assert "sam: echo: Otters float." in answer_to("/history 1")
            assert "/archive TEXT" in answer_to("/help")
            assert "There is no command /nope." in answer_to("/nope")
            assert "the sections are: persona, human" in answer_to("/edit dog x")
            assert "echo: /etc" in answer_to("//etc")
            shown.wait_for(ASK)
            shown.type("/quit\n")
            assert shown.end() == 0


@dataclass
class Waiting:
    """Keeps its first answer until it is let go."""

    first: Step | None = None
    let_go: Callable[[], object] = lambda: None
    asked: list[str] = field(default_factory=list)

    def __call__(self, prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Step:
        text = last_user_text(prompt)
        self.asked.append(text)
        if len(self.asked) > 1:
            return say(f"re {text}")
        held = asyncio.Event()
        self.let_go = partial(asyncio.get_running_loop().call_soon_threadsafe, held.set)
        return Held(self.first or say(f"late {text}"), held)


def test_ctrl_c_cancels_the_turn_and_keeps_the_chat_and_twice_leaves(
    tmp_path: Path, database: OneDatabase
):
    model = Waiting()
    with (
        served(database, ScriptedModel(model)) as server,
        terminal(tmp_path, "chat", "sam", "--url", server.url) as shown,
    ):
        shown.wait_for(ASK)
        shown.type("one\n")
        shown.wait_for("sam is thinking")
        while not model.asked:
            shown.read(0)
        shown.interrupt("Cancelled.")
        shown.wait_for(ASK)
        shown.type("two\n")
        shown.wait_for("sam > re two")
        shown.wait_for(ASK)
        shown.interrupt("Once more")
        shown.wait_for(ASK)
        assert shown.end("\x03") == 0
        assert model.asked == ["one", "two"]
        with Client(server.url) as client:
            agent = client.agents.find("sam")
            assert agent is not None
            assert client.turns.get(agent.id, 1).stop_reason == "cancelled"


def test_ctrl_c_cancels_the_turn_of_a_single_message_and_ends_the_command(
    tmp_path: Path, database: OneDatabase
):
    model = Waiting()
    with served(database, ScriptedModel(model)) as server, Client(server.url) as client:
        agent = client.agents.create("sam")
        with piping(tmp_path, "chat", "sam", "--url", server.url, "-m", "one") as command:
            assert wait_for(lambda: model.asked, 60)
            command.send_signal(signal.SIGINT)
            said, _ = command.communicate(timeout=60)
        assert (command.returncode, said) == (130, "")
        assert client.turns.get(agent.id, 1).stop_reason == "cancelled"


def test_an_error_is_reported_and_the_conversation_continues(tmp_path: Path, database: OneDatabase):
    steps = [
        ModelUnavailable("The model is down.", hint="Start it."),
        Broken(say("Hello, B"), ProtocolViolation("It broke off.")),
        say("Hello, Ada."),
    ]
    with (
        served(database, ScriptedModel(steps)) as server,
        terminal(tmp_path, "chat", "sam", "--url", server.url) as shown,
    ):
        shown.wait_for(ASK)
        shown.type("one\n")
        assert "Start it." in shown.wait_for(ASK)
        shown.type("two\n")
        answer = shown.wait_for("steps")
        assert answer.index("(taken back)") < answer.index("sam > Hello, Ada.")


def test_a_connection_that_breaks_is_made_again(tmp_path: Path, database: OneDatabase):
    with (
        served(database, ScriptedModel([NOTE, say("Hello, Ada.")])) as server,
        terminal(tmp_path, "chat", "sam", "--url", server.url) as shown,
    ):
        shown.wait_for(ASK)
        server.line.cut = once("POST", "/messages", 3)
        shown.type("one\n")
        answer = shown.wait_for("2 steps")
        assert "the connection was lost" in answer
        assert answer.count("Hello, Ada.") == 1


def asking(client: Client, *, tool: str = "working_context_append") -> Agent:
    """An agent whose calls of a tool wait."""
    agent = client.agents.create("sam")
    if tool == "open_file":
        client.tools.create_client_tool(tool, "Open a file.")
    client.tools.attach(agent.id, tool, approval=tool != "open_file")
    return agent


def test_a_call_that_waits_is_shown_and_approved_or_refused_with_a_reason(
    tmp_path: Path, database: OneDatabase
):
    model = ScriptedModel([NOTE, NOTE, say("I did it once.")])
    with served(database, model) as server, Client(server.url) as client:
        agent = asking(client)
        with terminal(tmp_path, "chat", "sam", "--url", server.url) as shown:
            shown.wait_for(ASK)
            shown.type("I am Ada.\n")
            question = shown.wait_for("Approve? [y/n] ")
            assert "working_context_append waits for your approval" in question
            assert '"content": "Name: Ada."' in question
            shown.type("perhaps\n")
            shown.wait_for("Approve? [y/n] ")
            shown.type("y\n")
            between = shown.wait_for("Approve? [y/n] ")
            assert between.count("Worth keeping.") == 1, "the second call's thought alone"
            shown.type("no\n")
            shown.wait_for("Why not? ")
            shown.type("Once is enough.\n")
            assert "A person refused this: Once is enough." in shown.wait_for("I did it once.")
            shown.wait_for("3 steps")
        assert client.working_context.get(agent.id)["human"].text == "Name: Ada."


def test_a_call_nobody_decided_waits_on_and_is_requested_before_anything_else_is_sent(
    tmp_path: Path, database: OneDatabase
):
    model = ScriptedModel([NOTE, say("Noted."), say("Hello again.")])
    with served(database, model) as server, Client(server.url) as client:
        agent = asking(client)
        arguments = ("chat", "sam", "--url", server.url)
        with terminal(tmp_path, *arguments) as shown:
            shown.wait_for(ASK)
            shown.type("I am Ada.\n")
            shown.wait_for("Approve? [y/n] ")
            shown.interrupt("The call waits on.")
            shown.wait_for(ASK)
            shown.type("Hello?\n")
            shown.wait_for("Approve? [y/n] ")
            shown.type("\x04")
            shown.wait_for("your message was not sent")
            shown.wait_for(ASK)
        refused = piped(tmp_path, "Hello?\n", *arguments)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "working_context_append waits for an approval" in refused.stderr
        with terminal(tmp_path, *arguments) as shown:
            shown.wait_for("Approve? [y/n] ")
            shown.type("yes\n")
            shown.wait_for("sam > Noted.")
            shown.wait_for(ASK)
            shown.type("Hello?\n")
            shown.wait_for("sam > Hello again.")
        said = [each.text for each in client.messages.all(agent.id) if each.role == "user"]
        assert said == ["Hello?", "I am Ada."]


def test_a_call_that_somebody_else_approved_first_is_no_hindrance(
    tmp_path: Path, database: OneDatabase
):
    model = ScriptedModel([NOTE, say("Noted."), say("Hello again.")])
    with served(database, model) as server, Client(server.url) as client:
        agent = asking(client)
        with terminal(tmp_path, "chat", "sam", "--url", server.url) as shown:
            shown.wait_for(ASK)
            shown.type("I am Ada.\n")
            shown.wait_for("Approve? [y/n] ")
            [call] = client.calls.all(agent.id)
            assert client.calls.approve(agent.id, call.call_id).text == "Noted."
            shown.type("y\n")
            shown.wait_for("waits for no answer")
            shown.wait_for(ASK)
            shown.type("Hello?\n")
            shown.wait_for("sam > Hello again.")


def test_a_message_that_came_after_a_call_that_waits_is_answered_once_that_is_decided(
    tmp_path: Path, database: OneDatabase
):
    model = Waiting(first=NOTE)
    with (
        served(database, ScriptedModel(model)) as server,
        Client(server.url) as client,
        ThreadPoolExecutor() as others,
    ):
        agent = asking(client)
        first = others.submit(client.messages.send, agent.id, "I am Ada.")
        with terminal(tmp_path, "chat", "sam", "--url", server.url) as shown:
            shown.wait_for(ASK)
            while not model.asked:
                shown.read(0)
            shown.type("Hello?\n")
            while not has_turn(client, agent, 2):
                shown.read(0)
            model.let_go()
            shown.wait_for("Stored. It is answered after a call that waits.")
            shown.wait_for("Approve? [y/n] ")
            shown.interrupt("The call waits on.")
            shown.wait_for(ASK)
            shown.type("Again?\n")
            shown.wait_for("Approve? [y/n] ")
            shown.type("y\n")
            shown.wait_for("sam > re I am Ada.")
            shown.wait_for("sam > re Hello?")
            shown.wait_for("sam > re Again?")
        assert first.result().stop_reason == "requires_action"


def has_turn(client: Client, agent: Agent, turn: int) -> bool:
    try:
        client.turns.get(agent.id, turn)
    except NotFound:
        return False
    return True


def test_a_turn_whose_tool_can_not_be_run_here_is_cancelled(tmp_path: Path, database: OneDatabase):
    model = ScriptedModel([Call("open_file"), say("Hello."), Call("open_file")])
    with served(database, model) as server, Client(server.url) as client:
        agent = asking(client, tool="open_file")
        arguments = ("chat", "sam", "--url", server.url)
        with terminal(tmp_path, *arguments) as shown:
            shown.wait_for(ASK)
            shown.type("Open it!\n")
            shown.wait_for("The turn was cancelled.")
            shown.wait_for(ASK)
            shown.type("Hello?\n")
            shown.wait_for("sam > Hello.")
        assert client.turns.get(agent.id, 1).stop_reason == "cancelled"
        done = piped(tmp_path, "Open it!\n", *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert "open_file is run by the program that asks" in done.stderr
        assert client.turns.get(agent.id, 3).stop_reason == "cancelled"


def test_lines_through_a_pipe_are_messages_and_commands(tmp_path: Path, database: OneDatabase):
    with served(database, ScriptedModel(echo)) as server:
        arguments = ("chat", "sam", "--url", server.url)
        done = piped(tmp_path, "one\n\n/edit human Ada\n/quit\nnever\n", *arguments)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0] == "echo: one"
        assert "\x1b" not in done.stdout
        alone = piped(tmp_path, "", *arguments, "-m", "two")
        assert (alone.returncode, alone.stdout) == (0, "echo: two\n")
        with Client(server.url) as client:
            agent = client.agents.find("sam")
            assert agent is not None
            assert client.working_context.get(agent.id)["human"].text == "Ada"
            said = [each.text for each in client.messages.all(agent.id) if each.role == "user"]
            assert said == ["two", "one"]


def test_an_error_through_a_pipe_ends_it_with_a_status(tmp_path: Path, database: OneDatabase):
    steps = [say("Hi."), ModelUnavailable("The model is down.")]
    with served(database, ScriptedModel(steps)) as server:
        done = piped(tmp_path, "a\nb\nc\n", "chat", "sam", "--url", server.url)
        assert (done.returncode, done.stdout) == (1, "Hi.\n")
        assert "The model is down." in done.stderr


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://127.0.0.1:9/v1/"])
def test_a_server_that_is_not_there_is_two_lines(tmp_path: Path, url: str):
    done = piped(tmp_path, "", "chat", "sam", "--url", url)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 2
    assert "memserver serve" in done.stderr
