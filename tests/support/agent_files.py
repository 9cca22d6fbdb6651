"""Agent files for tests: taken apart, changed, and put together again."""

import io
import json
import zipfile
from typing import Any

TIME = "2026-01-02T03:04:05Z"


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def packed(parts: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            # With no time of its own, so that the same parts are the same file.
            archive.writestr(zipfile.ZipInfo(name), part, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def opened(content: bytes) -> dict[str, Any]:
    """A file's members as values: lists of records, and single ones."""
    found: dict[str, Any] = {}
    for name, part in members(content).items():
        lines = part.decode().splitlines()
        found[name] = (
            [json.loads(line) for line in lines] if name.endswith("l") else json.loads(part)
        )
    return found


def closed(values: dict[str, Any]) -> bytes:
    """The file of such values; its end says how many there are."""
    lists = {name: value for name, value in values.items() if name.endswith(".jsonl")}
    counts = {name.removesuffix(".jsonl"): len(value) for name, value in lists.items()}
    parts: dict[str, bytes] = {}
    for name, value in {**values, "end.json": {"lines": counts}}.items():
        lines = value if name in lists else [value]
        parts[name] = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return packed(parts)


def smallest(name: str = "moved") -> dict[str, Any]:
    """A file's values: an agent that has nothing."""
    lists = ("sections", "edits", "tools", "summaries", "turns", "messages", "passages")
    return {
        "manifest.json": {"format": "memserver-agent", "version": 1},
        "agent.json": {"name": name, "state": {"done_turn": 0}},
        **{f"{each}.jsonl": [] for each in lists},
    }


def with_messages(count: int, passages: int = 0) -> dict[str, Any]:
    """An agent of so many messages, ten a turn, and so many passages."""
    values = smallest()
    turns = -(-count // 10)
    values["agent.json"]["state"] = {"done_turn": turns, "queue_start": turns * 1000}
    values["messages.jsonl"] = [
        {
            "position": (n // 10 + 1) * 1000 + n % 10,
            "role": "assistant" if n % 2 else "user",
            "text": f"message {n}",
            "tokens": 5,
            "created_at": TIME,
        }
        for n in range(count)
    ]
    values["turns.jsonl"] = [
        {"turn": n, "kind": "import", "state": "done", "created_at": TIME}
        for n in range(1, turns + 1)
    ]
    values["passages.jsonl"] = [
        {"text": f"passage {n}", "created_at": TIME} for n in range(passages)
    ]
    return values
