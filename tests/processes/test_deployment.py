"""What docker-compose.yml starts, as processes: two servers, Postgres behind PgBouncer, and nginx with TLS by that file's configuration."""

import asyncio
import os
import ssl
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx2
import psycopg
import pytest

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Held, Step, say
from memserver.testing.scripted_rules import last_user_text
from memserver.testing.scripted_server import create_scripted_app
from tests.support.http_app import serving
from tests.support.nginx import needs_nginx, nginx_before
from tests.support.nightly import NIGHTLY
from tests.support.pgbouncer import needs_pgbouncer, pgbouncer
from tests.support.processes import command, eventually, lease_holder, rows, server
from tests.support.server import OneDatabase
from tests.support.servers import (
    Settings,
    memserver_command,
    plain_environment,
    settings_for,
)

REPOSITORY = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    needs_pgbouncer,
    needs_nginx,
    pytest.mark.skipif(os.geteuid() != 0, reason="nginx is started as root"),
    pytest.mark.skipif(not NIGHTLY, reason="three starts of memserver: make nightly"),
]


@dataclass
class Model:
    """Echoes, but for the message `wait`, whose first answer never comes."""

    asked: list[str] = field(default_factory=list)

    def __call__(self, prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        self.asked.append(last_user_text(prompt))
        step = say(f"echo: {self.asked[-1]}")
        if self.asked.count("wait") == 1 and self.asked[-1] == "wait":
            return Held(step, asyncio.Event())
        return step


@dataclass(frozen=True)
class Deployed:
    """The secrets of the deployment, by the script that makes them for Docker Compose."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, database: OneDatabase) -> "Deployed":
        environment = plain_environment(folder, {})
        generate = f"{memserver_command()} keys generate"
        subprocess.run(
            [REPOSITORY / "docker/make-secrets.sh", folder / "secrets"],
            check=True,
            env={**environment, "GENERATE_KEY": generate},
        )
        made = cls(folder / "secrets")
        for name, url in (("database_url", database.owner), ("database_app_url", database.app)):
            (made.folder / name).write_text(url, encoding="utf-8")
        return made

    def settings(self, model_url: str) -> Settings:
        files = {
            f"{name}_file": self.folder / name for name in ("database_url", "database_app_url")
        }
        return settings_for(
            model_url,
            **files,
            trusted_proxies="127.0.0.1",
            lease_seconds=2,
            log_requests="true",
            console="false",
        )

    @property
    def key(self) -> str:
        return (self.folder / "admin_key").read_text(encoding="utf-8").strip()


def said(database: OneDatabase) -> list[tuple[str, str]]:
    with psycopg.connect(database.superuser) as connection:
        query = "SELECT role, content FROM messages WHERE role = 'user' ORDER BY position"
        return [(str(role), str(text)) for role, text in connection.execute(query).fetchall()]


async def post(http: httpx2.AsyncClient, agent: str, text: str, key: str) -> httpx2.Response:
    path, body = f"/v1/agents/{agent}/messages", {"text": text}
    return await http.post(path, json=body, headers={"Idempotency-Key": key})


async def streamed(
    http: httpx2.AsyncClient,
    path: str,
    body: dict[str, object],
    key: str = "",
    heard: asyncio.Event | None = None,
) -> str:
    """The stream, as far as it comes; `heard` is set by its first piece."""
    text = ""
    headers = {"Idempotency-Key": key} if key else {}
    with suppress(httpx2.RemoteProtocolError):
        async with http.stream(
            "POST", path, json={**body, "stream": True}, headers=headers
        ) as answer:
            assert answer.status_code == 200
            async for piece in answer.aiter_text():
                text += piece
                if heard is not None:
                    heard.set()
    return text


async def test_a_server_that_is_stopped_in_the_middle_of_a_conversation_loses_nothing(
    folder: Path, database: OneDatabase
) -> None:
    model = Model()
    with (
        serving(create_scripted_app(model, context_window=100_000)) as model_url,
        pgbouncer(folder, database, "transaction") as pooled,
    ):
        deployed = Deployed.make(folder, pooled)
        settings = deployed.settings(model_url)
        first = {**settings, "admin_key_file": deployed.folder / "admin_key"}
        assert command(folder, first, "migrate").returncode == 0
        trusted = ssl.create_default_context(cafile=str(deployed.folder / "tls.crt"))
        with (
            server(folder, settings) as one,
            server(folder, settings) as other,
            nginx_before(folder, [one.port, other.port], deployed.folder) as url,
        ):
            async with httpx2.AsyncClient(
                base_url=url,
                verify=trusted,
                timeout=60,
                headers={"Authorization": f"Bearer {deployed.key}"},
            ) as http:
                page = await http.get("/", headers={"Accept": "text/html"})
                assert f"curl -s {url}/v1/" in page.text  # the proxy is trusted
                agent = (await http.post("/v1/agents", json={})).json()["id"]
                chat = {"model": agent, "messages": [{"role": "user", "content": "openai"}]}
                assert (await post(http, agent, "rest", "1")).json()["text"] == "echo: rest"
                events = await streamed(http, f"/v1/agents/{agent}/messages", {"text": "stream"})
                assert "event: turn_ended" in events
                assert (await streamed(http, "/v1/chat/completions", chat)).endswith("[DONE]\n\n")
                assert all("POST '/v1/" in each.log_text() for each in (one, other))

                heard = asyncio.Event()
                messages = f"/v1/agents/{agent}/messages"
                waiting = asyncio.create_task(
                    streamed(http, messages, {"text": "wait"}, "2", heard)
                )
                await heard.wait()  # while the model keeps its answer: nothing on the way collects
                await eventually(lambda: "wait" in model.asked)
                stopped = one if one.pid == lease_holder(database) else other
                assert await asyncio.to_thread(partial(stopped.terminate, within=60)) == 0
                assert "event: turn_ended" not in await waiting
                again = await streamed(http, messages, {"text": "wait"}, "2")
                assert "event: turn_ended" in again
                assert "echo: wait" in again

                assert (await post(http, agent, "next", "3")).json()["text"] == "echo: next"
                chat["messages"] = [{"role": "user", "content": "after"}]
                answer = (await http.post("/v1/chat/completions", json=chat)).json()
                assert answer["choices"][0]["message"]["content"] == "echo: after"
                assert [text for _, text in said(database)] == [
                    *("rest", "stream", "openai", "wait", "next", "after")
                ]
    assert rows(database, "SELECT DISTINCT state FROM turns") == [("done",)]
