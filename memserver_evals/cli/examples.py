"""Examples of a task as `eval show` prints them: what is said, what is right, and the prompt of the system full."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from memserver.cli.console import console
from memserver.messages import JsonObject
from memserver.prompts import Prompts
from memserver.testing.scripted import ScriptedModel
from memserver_evals.report.page import gold_answers
from memserver_evals.systems.chat import ChatSystem
from memserver_evals.systems.choosing import Everything
from memserver_evals.systems.speaking import Speaker
from memserver_evals.task import Task

SHOWN = 2_000
"""Characters of a message."""


async def show_examples(task: Task[Any], count: int) -> None:
    """Play the first examples with no model: each is asked, and the answer is "…". Raises MemserverError: bad data."""
    if isinstance(task, AbstractAsyncContextManager):
        console.print(
            "Its examples are conversations with a simulated person, made while they are played."
        )
        return
    model = ScriptedModel(summary="…", context_window=10**9)
    system = ChatSystem("full", Speaker(model), Prompts(), Everything())
    examples = task.examples()
    for example in examples[:count]:
        played = await task.play(example, system)
        groups = ", ".join(
            f"{name} {value}" for name, value in task.groups(example).items() if name != "cluster"
        )
        console.print(f"Example {example.id} of {len(examples)}{f' ({groups})' if groups else ''}")
        turn = played.turns[0]
        for exchange in turn.reply.exchanges[:1]:
            for message in exchange.prompt:
                _show(message)
        console.print(
            f"--- right\n{gold_answers([example])[example.id] or 'a judge or the scorer says'}\n"
        )


def _show(message: JsonObject) -> None:
    text = str(message.get("content", ""))
    if len(text) > SHOWN:
        half = SHOWN // 2
        text = f"{text[:half]}\n… [{len(text) - SHOWN} characters left out] …\n{text[-half:]}"
    console.print(f"--- {message['role']} (of the system full)\n{text.strip()}")
