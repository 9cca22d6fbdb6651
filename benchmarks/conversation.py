"""Conversations with the local model, over HTTP, as they come: `python -m benchmarks.conversation`.

Starts `memserver serve` with the embedded Postgres and the local engine, has conversations of ordinary
messages, and counts how their turns end. `--transcripts FILE` writes every conversation down.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from rich.console import Console
from rich.progress import track
from rich.table import Table

from memserver.settings import Settings
from tests.support.servers import memserver, temporary_folder

MESSAGES = (
    "Hi, my name is Ada.",
    "I have a dog called Rex.",
    "How are you today?",
    "I live in Oslo, near the harbour.",
    "What is my name?",
    "Tell me a joke.",
    "My birthday is February 7.",
    "What did I tell you about my dog?",
    "I work as a nurse.",
    "It rained all morning.",
    "What is the capital of France?",
    "My boyfriend James baked me a cake.",
    "Where do I live?",
    "I am allergic to peanuts.",
    "Can you recommend a book?",
    "I watched a movie yesterday.",
    "When is my birthday?",
    "I am tired of the traffic.",
    "What do I do for work?",
    "My sister is visiting next week.",
    "Say something nice.",
    "What should I cook tonight?",
    "I don't like mushrooms.",
    "Who baked me a cake?",
    "I play the cello. It is called Hugo.",
    "How old are you?",
    "Do you remember what I am allergic to?",
    "Thank you, that helps.",
    "What is two plus three?",
    "Good night!",
)
READY_SECONDS = 300


@dataclass
class Tally:
    """What was seen of all turns."""

    statuses: Counter[int] = field(default_factory=Counter)
    stop_reasons: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    malformed: int = 0
    seconds: list[float] = field(default_factory=list)
    transcript: list[str] = field(default_factory=list)

    def add(self, text: str, answer: httpx2.Response, seconds: float) -> None:
        """Count one turn."""
        self.statuses[answer.status_code] += 1
        self.seconds.append(seconds)
        self.transcript.append(f"user: {text}")
        if answer.status_code != httpx2.codes.OK:
            self.stop_reasons["error"] += 1
            self.transcript.append(f"error {answer.status_code}: {answer.text}")
            return
        body: dict[str, Any] = answer.json()
        self.stop_reasons[body["stop_reason"]] += 1
        for message in body["messages"]:
            call = message["tool_call"]
            if call is None:
                self.malformed += message["role"] == "system"
                self.transcript.append(f"system: {message['text']}")
                continue
            self.calls[call["name"]] += 1
            shown = json.dumps(call["arguments"], ensure_ascii=False)
            self.transcript.append(f"agent: {call['name']} {shown} -> {call['state']}")

    @property
    def turns(self) -> int:
        """How many messages were sent."""
        return len(self.seconds)

    def figures(self) -> dict[str, Any]:
        """The figures as one JSON object."""
        ordered = sorted(self.seconds)
        return {
            "turns": self.turns,
            "answered_200": self.statuses[200],
            "message_sent": self.stop_reasons["message_sent"],
            "stop_reasons": dict(self.stop_reasons),
            "calls": dict(self.calls),
            "malformed_replies": self.malformed,
            "p50_s": round(ordered[len(ordered) // 2], 2),
            "max_s": round(ordered[-1], 2),
        }


def converse(url: str, messages: Sequence[str], tally: Tally) -> None:
    """One conversation with a fresh agent."""
    with httpx2.Client(base_url=f"{url}/v1", timeout=600) as http:
        agent = http.post("/agents", json={}).json()["id"]
        for text in track(messages, "talking", console=Console(stderr=True)):
            start = time.monotonic()
            answer = http.post(f"/agents/{agent}/messages", json={"text": text})
            tally.add(text, answer, time.monotonic() - start)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=1)
    parser.add_argument("--messages", type=int, default=len(MESSAGES))
    parser.add_argument("--transcripts", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    tally = Tally()
    with temporary_folder() as home:
        for part in ("engine", "models"):
            (home / part).symlink_to(Settings().home / part)
        with memserver(home, {"home": home}) as server:
            server.wait_until_healthy("/v1/ready", READY_SECONDS)
            for number in range(options.conversations):
                turned = MESSAGES[number:] + MESSAGES[:number]
                tally.transcript.append(f"\n--- conversation {number + 1}")
                converse(server.url, turned[: options.messages], tally)
    figures = tally.figures()
    table = Table("figure", "measured", title="Conversations with the local model")
    for name, value in figures.items():
        table.add_row(name, str(value))
    Console().print(table)
    if options.transcripts:
        options.transcripts.write_text("\n".join(tally.transcript) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
