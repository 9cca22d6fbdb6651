"""The README's first conversation, with names and dates drawn at random: `python -m benchmarks.first_conversation`.

Somebody tells their name, what their cello is called and their birthday, talks about other things for
twelve messages in a window so small that what was said is evicted, and asks. A conversation is right when
every question is. The local model answers, and beside it the untrained one that it was made of.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from memserver.local.engine.paths import BASE_NAME, MODEL_NAME
from memserver.memory.queue import COMPACT_AT
from memserver.settings import Settings
from sweet_rl.warm_start.facts import MONTHS, draw
from tests.support.servers import memserver, temporary_folder

WINDOW = 1280
OUTPUT_TOKENS = 256
SMALL_TALK_MESSAGES = 12
READY_SECONDS = 300
COMPACTION_SECONDS = 2.0
"""What a compaction may take that is due when the questions begin."""
THINGS = ("cello", "scooter", "flute", "bike", "boat", "cat", "dog")
SMALL_TALK = (
    "How are you doing today?",
    "I slept badly last night.",
    "The neighbours are having a party again.",
    "Do you think it will rain tomorrow?",
    "I just had a big bowl of soup.",
    "My train was late this morning.",
    "What is your favourite time of the year?",
    "I should really clean my desk.",
    "Can you recommend something to read?",
    "The coffee machine at work is broken.",
    "Have you heard any good jokes lately?",
    "I went jogging before breakfast.",
    "There was a rainbow over the town.",
    "I can't decide what to have for dinner.",
    "What is the tallest mountain on earth?",
    "It is getting dark so early now.",
    "I spilled tea on my shirt.",
    "Do you prefer the sea or the mountains?",
    "I watched the sunset from the roof.",
    "My phone battery is always empty.",
    "Why do cats like boxes?",
    "I found an old photo album.",
    "The supermarket was so crowded.",
    "Tell me something interesting.",
    "I have a lot of work this week.",
    "Somebody is playing the piano upstairs.",
    "I think I am getting a cold.",
    "What would you do with a free day?",
    "The museum was closed, sadly.",
    "I planted some herbs on the balcony.",
)
"""None of it is in the training data."""


@dataclass(frozen=True)
class Told:
    """What is said in one conversation."""

    name: str
    thing: str
    thing_name: str
    month: str
    day: int

    @classmethod
    def at_random(cls, chance: random.Random) -> "Told":
        """Values that no training has seen."""
        return cls(
            draw("person", "", "test", chance),
            chance.choice(THINGS),
            draw("pet", "", "test", chance),
            chance.choice(MONTHS),
            chance.randint(1, 28),
        )

    @property
    def sayings(self) -> list[str]:
        """How it is said."""
        return [
            f"Hi! I am {self.name}, and my {self.thing} is called {self.thing_name}.",
            f"My birthday is {self.month} {self.day}.",
        ]

    @property
    def questions(self) -> dict[str, tuple[str, list[str]]]:
        """What is asked, with the words that a right answer has."""
        return {
            "name": ("What is my name?", [self.name]),
            "thing": (f"What is my {self.thing} called?", [self.thing_name]),
            "birthday": ("When is my birthday?", [self.month, str(self.day)]),
        }


@dataclass
class Tally:
    """What was seen of all conversations with one model."""

    rights: list[dict[str, bool]] = field(default_factory=list)
    evicted: list[bool] = field(default_factory=list)
    stop_reasons: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    malformed: int = 0
    seconds: list[float] = field(default_factory=list)
    transcripts: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """The figures as one JSON object."""
        ordered = sorted(self.seconds)
        runs = len(self.rights)
        return {
            "right": round(sum(all(right.values()) for right in self.rights) / runs, 3),
            "right_by_question": {
                name: round(sum(right[name] for right in self.rights) / runs, 3)
                for name in self.rights[0]
            },
            "runs": runs,
            "evicted": sum(self.evicted),
            "turns": len(ordered),
            "stop_reasons": dict(self.stop_reasons),
            "malformed_replies": self.malformed,
            "calls": dict(self.calls),
            "p50_s": round(ordered[len(ordered) // 2], 2),
            "max_s": round(ordered[-1], 2),
        }


async def converse(
    http: httpx2.AsyncClient, reported: Told, chance: random.Random, into: Tally
) -> None:
    """One conversation with a fresh agent."""
    options = {"context_window": WINDOW, "max_output_tokens": OUTPUT_TOKENS}
    agent = (await http.post("/agents", json={"options": options})).json()["id"]
    transcript = [f"--- {reported}"]
    talk = chance.sample(SMALL_TALK, SMALL_TALK_MESSAGES)
    for text in [*reported.sayings, *talk]:
        await say(http, agent, text, into, transcript)
    into.evicted.append(await was_evicted(http, agent))
    right = {}
    for name, (question, words) in reported.questions.items():
        answer = await say(http, agent, question, into, transcript)
        right[name] = all(word.lower() in answer.lower() for word in words)
        transcript.append("right" if right[name] else "WRONG")
    into.rights.append(right)
    into.transcripts.append("\n".join(transcript))


async def was_evicted(http: httpx2.AsyncClient, agent: str) -> bool:
    """Whether something has left the queue; what is due in the background gets a moment."""
    give_up = asyncio.get_running_loop().time() + COMPACTION_SECONDS
    while True:
        context = (await http.get(f"/agents/{agent}/context")).json()
        if any(part["name"] == "summary" and part["tokens"] for part in context["parts"]):
            return True
        due = context["used"] >= COMPACT_AT.of_prompt * (context["window"] - context["reserved"])
        if not due or asyncio.get_running_loop().time() > give_up:
            return False
        await asyncio.sleep(0.1)


async def say(
    http: httpx2.AsyncClient, agent: str, text: str, into: Tally, transcript: list[str]
) -> str:
    """Say something; the agent's answer, empty where there is none."""
    start = time.monotonic()
    answer = await http.post(f"/agents/{agent}/messages", json={"text": text})
    into.seconds.append(time.monotonic() - start)
    transcript.append(f"user: {text}")
    body = answer.json()
    if answer.status_code != httpx2.codes.OK:
        into.stop_reasons[body["error"]["code"]] += 1
        transcript.append(f"error: {body}")
        return ""
    into.stop_reasons[body["stop_reason"]] += 1
    for message in body["messages"]:
        call = message["tool_call"]
        if call is None:
            into.malformed += "not a valid tool call" in message["text"]
            transcript.append(f"system: {message['text']}")
            continue
        into.calls[call["name"]] += 1
        shown = json.dumps(call["arguments"], ensure_ascii=False)
        transcript.append(f"agent: {call['name']} {shown} -> {call['state']}: {call['result']}")
    return str(body["text"] or "")


async def run_all(url: str, asked: argparse.Namespace) -> Tally:
    """Every conversation, some of them at the same time."""
    tally, turn = Tally(), asyncio.Semaphore(asked.at_once)
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("conversations", total=asked.runs)

        async def one(number: int) -> None:
            chance = random.Random(f"{asked.seed} {number}")
            async with turn:
                await converse(http, Told.at_random(chance), chance, tally)
            progress.advance(task)

        async with httpx2.AsyncClient(base_url=f"{url}/v1", timeout=600) as http:
            await asyncio.gather(*map(one, range(asked.runs)))
    return tally


def measure(model: str, asked: argparse.Namespace) -> Tally:
    """Have the conversations, with a memserver that runs or one with this local model."""
    if asked.url:
        return asyncio.run(run_all(asked.url, asked))
    with temporary_folder() as home:
        for part in ("engine", "models"):
            (home / part).symlink_to(Settings().home / part)
        settings: dict[str, object] = {"home": home, "local_model": model}
        if asked.order:
            settings["prompt_order"] = asked.order
        with memserver(home, settings) as server:
            server.wait_until_healthy("/v1/ready", READY_SECONDS)
            return asyncio.run(run_all(server.url, asked))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--order", choices=("working_context_first", "working_context_last"))
    parser.add_argument("--models", nargs="+", default=[MODEL_NAME, BASE_NAME])
    parser.add_argument(
        "--transcripts", type=Path, help="folder for the conversations as they came"
    )
    parser.add_argument("--url", help="a memserver that runs, instead of one with each local model")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    measured: dict[str, dict[str, Any]] = {}
    if asked.url:
        asked.models = ["running"]
    for model in asked.models:
        tally = measure(model, asked)
        measured[model] = tally.figures()
        if asked.transcripts:
            asked.transcripts.mkdir(parents=True, exist_ok=True)
            file = asked.transcripts / f"{model}.txt"
            file.write_text("\n\n".join(tally.transcripts) + "\n", encoding="utf-8")
    table = Table("figure", *measured, title="The first conversation")
    for name in next(iter(measured.values())):
        table.add_row(name, *(str(figures[name]) for figures in measured.values()))
    Console().print(table)
    if asked.json:
        first, *others = asked.models
        print(json.dumps({**measured[first], "beside": {name: measured[name] for name in others}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
