import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, ScriptedModel, Step, say
from memserver.testing.scripted_rules import last_user_text
from tests.support.client import served
from tests.support.server import OneDatabase
from tests.support.terminal import plain

EXAMPLE = Path(__file__).parents[2] / "examples" / "openai_memory.py"


def remembering(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Step:
    """Writes a name down, and reads it from the working context alone."""
    reported = re.search(r"My name is (\w+)", last_user_text(prompt))
    known = re.search(r"Name: (\w+)", prompt[0].text)
    if reported and not known:
        note = {"section": "human", "content": f"Name: {reported[1]}", "request_heartbeat": True}
        return Call("working_context_append", note)
    return say(f"You are {known[1]}." if known else "I don't know you.")


def test_a_second_process_is_known_to_the_agent(tmp_path: Path, database: OneDatabase):
    with served(database, ScriptedModel(remembering)) as server:

        def run(text: str) -> str:
            return subprocess.run(
                [sys.executable, str(EXAMPLE), text, "--url", server.url],
                cwd=tmp_path,
                env=plain(tmp_path),
                check=True,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                timeout=60,
            ).stdout

        assert run("Hi! My name is Ada.") == "You are Ada.\n"
        assert run("What is my name?") == "You are Ada.\n"
