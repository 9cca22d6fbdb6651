"""What a turn is measured on: Postgres, the scripted model and memserver, all freshly started, and a client.

Everything is what a user runs: `memserver serve` on the embedded Postgres as the application role, the
model behind the OpenAI adapter in a process of its own, an API key and an Idempotency-Key on every post.
"""

import http.client
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.statements import LOG_SETTINGS
from memserver.local.postgres.embedded import EmbeddedPostgres
from tests.support.servers import (
    ServerProcess,
    create_key,
    memserver,
    scripted_model,
    settings_for,
    temporary_folder,
)

CONTEXT_WINDOW = 1_000_000
"""So large that no turn has to evict."""
WARM_UP_TURNS = 10
WORDS = "a map of seven rivers shows where old bridges once stood near my quiet town".split()  # noqa: SIM905 - reads better


@dataclass
class Talker:
    """A client that talks to agents, one message after the other, over one connection."""

    connection: http.client.HTTPConnection
    api_key: str
    random: random.Random
    agent: str = ""
    said: int = 0

    def meet_agent(self) -> None:
        """Create an agent and talk with it until it and everything else is warm."""
        self.connection.close()  # the server may have closed it while we idled; this opens it again
        self.create_agent()
        for _ in range(WARM_UP_TURNS):
            self.turn()

    def create_agent(self) -> str:
        """Create an agent and talk with it from now on; its id."""
        self.agent = self._post("/v1/agents", {"name": f"agent after {self.said}"})["id"]
        return self.agent

    def turn(self) -> float:
        """Say something and take the answer; the seconds that it took."""
        text = " ".join(self.random.choices(WORDS, k=12))
        self.said += 1
        start = time.perf_counter()
        answer = self._post(
            f"/v1/agents/{self.agent}/messages", {"text": text}, key=f"turn-{self.said}"
        )
        took = time.perf_counter() - start
        if answer["text"] != f"echo: {text}":
            raise RuntimeError(f"Not the answer of a plain turn: {answer}")
        return took

    def _post(
        self, path: str, content: dict[str, str], *, key: str | None = None
    ) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self.api_key}",
        }
        if key is not None:
            headers["Idempotency-Key"] = key
        self.connection.request("POST", path, json.dumps(content).encode(), headers)
        response = self.connection.getresponse()
        body = response.read()
        if response.status not in {200, 201}:
            raise RuntimeError(f"{response.status} from {path}: {body!r}")
        answer: dict[str, str] = json.loads(body)
        return answer


@dataclass(frozen=True)
class Stage:
    """All that runs while turns are measured."""

    server: ServerProcess
    postgres: EmbeddedPostgres
    log: Path
    talker: Talker


@contextmanager
def stage(seed: int, checkout: Path | None = None) -> Iterator[Stage]:
    """Postgres, the model and memserver, all freshly started; statements are logged on demand.

    Args:
        seed: of the messages' words.
        checkout: another checkout with its own `.venv`, whose memserver is served instead of ours.
    """
    with temporary_folder() as home:
        postgres = EmbeddedPostgres(home / "postgres", settings=LOG_SETTINGS)
        with (
            postgres,
            scripted_model(home, context_window=CONTEXT_WINDOW) as model,
        ):
            settings = settings_for(model.url, home=home, index_after_seconds=5)
            api_key = create_key(home, settings, checkout)
            with memserver(home, settings, checkout=checkout) as server:
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                talker = Talker(connection, api_key, random.Random(seed))
                yield Stage(server, postgres, home / "postgres" / "server.log", talker)
                connection.close()
