"""What an ordinary conversation says, and what is counted of its turns."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx2

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
