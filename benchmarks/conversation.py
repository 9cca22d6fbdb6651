"""Conversations with the local model, over HTTP, as they come: `python -m benchmarks.conversation`.

Starts `memserver serve` with the embedded Postgres and the local engine, has conversations of ordinary
messages, and counts how their turns end. `--transcripts FILE` writes every conversation down.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2
from rich.console import Console
from rich.progress import track
from rich.table import Table

from memserver.settings import Settings
from tests.support.conversation import MESSAGES, READY_SECONDS, Tally
from tests.support.servers import memserver, temporary_folder


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
