"""What dies comes back by itself: Postgres, a worker, the main process, each while the others are away or not."""

import asyncio
import http.client
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest

from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.local.postgres.process import find_postmaster, stop
from memserver.storage.checks import APP_ROLE
from memserver.storage.migrate import OWNER_ROLE, prepare_embedded
from tests.support.nightly import NIGHTLY
from tests.support.processes import Client, Endpoint, client, eventually, holding_model, server
from tests.support.servers import ServerProcess, Settings, running_processes, settings_for

pytestmark = pytest.mark.slow

FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


@pytest.fixture
def external(folder: Path) -> Iterator[EmbeddedPostgres]:
    """A Postgres of the user's own, which a test stops and starts."""
    with EmbeddedPostgres(folder / "external", settings=FAST) as postgres:
        prepare_embedded(postgres.url())
        yield postgres


def settings_on(postgres: EmbeddedPostgres, model_url: str, **more: object) -> Settings:
    urls = {
        "database_url": postgres.url("memserver", OWNER_ROLE),
        "database_app_url": postgres.url("memserver", APP_ROLE),
    }
    return settings_for(model_url, **urls, lease_seconds=2, **more)


def kill_postmaster(data: Path) -> None:
    found = find_postmaster(data)
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)


def readiness(process: ServerProcess) -> tuple[int, str]:
    """The status of /v1/ready, and what it says of the database."""
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=30)
    try:
        connection.request("GET", "/v1/ready")
        answer = connection.getresponse()
        [database] = [
            each for each in json.loads(answer.read())["components"] if each["name"] == "database"
        ]
        return answer.status, database["detail"]
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()


def database_answers(process: ServerProcess) -> bool:
    return readiness(process)[1] == "answers"


async def say_when_ready(user: Client, agent: str, text: str) -> str:
    """As a client does that is asked to try again: another worker may be starting still."""
    path, key = f"/v1/agents/{agent}/messages", {"Idempotency-Key": text}
    while True:
        answer = await user.http.post(path, json={"text": text}, headers=key)
        if answer.status_code == 200:
            return str(answer.json()["text"])
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] == "server_starting"


async def test_a_worker_that_starts_while_the_database_is_away_waits_for_it(
    folder: Path, external: EmbeddedPostgres, echo: Endpoint
) -> None:
    data = folder / "external" / "data"
    with server(folder, settings_on(external, echo.url), "--workers", "2") as process:
        async with client(process) as user:
            agent = await user.create_agent()
            assert await user.say(agent, "hello") == "echo: hello"
            before = set(process.pids())
            found = find_postmaster(data)
            assert found is not None
            assert await asyncio.to_thread(stop, found, 30)
            # All of them, so that a new one answers what is asked.
            for victim in sorted(before - {process.pid})[-2:]:
                os.kill(victim, signal.SIGKILL)
            await eventually(lambda: "can't be reached" in readiness(process)[1])
            status, detail = await asyncio.to_thread(readiness, process)
            assert process.healthy("/v1/health")
            refused = await user.post(agent, "too early")
            assert not process.ended
            await asyncio.to_thread(external.acquire)
            # The two find out at different times that it is back, and either may be asked.
            again = f"{process.url}/v1/agents/{agent}/messages"
            await eventually(lambda: httpx2.post(again, json={"text": "again"}).status_code == 200)
        assert not process.ended
    assert (status, detail) == (503, "The database can't be reached.")
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "server_starting"
    assert refused.headers["Retry-After"] == "1"


@pytest.mark.parametrize("workers", ["1", "2"] if NIGHTLY else ["2"])
async def test_the_embedded_postgres_is_started_again_when_it_dies(
    folder: Path, echo: Endpoint, workers: str
) -> None:
    data = folder / "postgres" / "data"
    settings = settings_for(echo.url, home=folder, lease_seconds=2)
    with server(folder, settings, "--workers", workers) as process:
        async with client(process) as user:
            agent = await user.create_agent()
            for number in range(2):
                assert await say_when_ready(user, agent, f"m{number}") == f"echo: m{number}"
                dead = find_postmaster(data)
                kill_postmaster(data)
                await eventually(lambda: find_postmaster(data) not in (None, dead))  # noqa: B023
                await eventually(lambda: database_answers(process))
            history = await user.history(agent)
        assert await asyncio.to_thread(process.terminate) == 0
    assert [each["text"] for each in history] == ["m0", "echo: m0", "m1", "echo: m1"]
    assert find_postmaster(data) is None


async def test_workers_end_with_the_main_process_and_a_new_server_takes_the_port(
    folder: Path, echo: Endpoint
) -> None:
    settings = settings_for(echo.url, home=folder, lease_seconds=2)
    with server(folder, settings, "--workers", "2") as killed:
        async with client(killed) as user:
            agent = await user.create_agent()
        workers = set(killed.pids()) - {killed.pid}
        os.kill(killed.pid, signal.SIGKILL)
        killed.process.wait()
        await eventually(lambda: not workers & set(killed.pids()))
        with server(folder, settings, "--workers", "2", port=killed.port) as second:
            async with client(second) as user:
                assert await user.say(agent, "hello") == "echo: hello"


async def test_a_stream_whose_postgres_dies_ends_with_an_error_event_and_no_traceback(
    folder: Path, external: EmbeddedPostgres
) -> None:
    data = folder / "external" / "data"
    with (
        holding_model() as model,
        server(folder, settings_on(external, model.url, stream_ping_seconds=0.1)) as process,
    ):
        async with client(process) as user:
            agent = await user.create_agent()
            bodies = {
                f"/v1/agents/{agent}/messages": {"text": "hello", "stream": True},
                "/v1/chat/completions": {
                    "model": agent,
                    "stream": True,
                    "messages": [{"role": "user", "content": "hello again"}],
                },
                "/v1/responses": {"model": agent, "stream": True, "input": "hello once more"},
            }
            heard = dict.fromkeys(bodies, "")

            async def read(path: str) -> None:
                async with user.http.stream("POST", path, json=bodies[path]) as answer:
                    async for piece in answer.aiter_text():
                        heard[path] += piece

            streams = [asyncio.create_task(read(path)) for path in bodies]
            await eventually(lambda: model.asked and all(heard.values()))
            kill_postmaster(data)
            await eventually(lambda: "can't be reached" in process.log_text())
            model.close()
            await asyncio.gather(*streams)
            await asyncio.to_thread(external.acquire)
            await eventually(lambda: database_answers(process))
        log = process.log_text()
    ours, chat, response = (text.strip().split("\n\n")[-1] for text in heard.values())
    assert ours.startswith("event: error\n")
    assert chat.startswith('data: {"error": ')
    assert response.startswith("event: response.failed\n")
    assert '"code": "database_error"' in ours
    assert '"code": "database_error"' in chat
    assert "Traceback" not in log


@contextmanager
def standing_still(data: Path) -> Iterator[None]:
    """Postgres with all its processes is stopped, not dead: nobody gets an answer or an error."""
    found = find_postmaster(data)
    assert found is not None
    stopped: set[int] = set()
    while more := postgres_processes(found.pid) - stopped:
        for pid in more:
            os.kill(pid, signal.SIGSTOP)
        stopped |= more
    try:
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def postgres_processes(postmaster: int) -> set[int]:
    children = {pid for pid, fields in running_processes() if int(fields[1]) == postmaster}
    return {postmaster, *children}


async def test_requests_and_turns_outlive_a_postgres_that_stands_still(
    folder: Path, external: EmbeddedPostgres
) -> None:
    data = folder / "external" / "data"
    with holding_model() as model, server(folder, settings_on(external, model.url)) as process:
        async with client(process) as user:
            agents = [await user.create_agent() for _ in range(2)]
            turn = asyncio.create_task(user.post(agents[0], "first"))
            await eventually(lambda: model.asked)
            keyed = {"json": {"text": "second"}, "headers": {"Idempotency-Key": "one"}}
            path = f"/v1/agents/{agents[1]}/messages"
            with standing_still(data):
                model.close()
                refused = await user.http.post(path, **keyed)
            assert refused.status_code == 503, refused.text
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "database_error"
            await eventually(lambda: database_answers(process))
            answered = await user.http.post(path, **keyed)
            assert answered.status_code == 200, answered.text
            await turn
            await eventually(lambda: turn_states(external) == {"done"})
            for agent, text in zip(agents, ("first", "second"), strict=True):
                said = [each["text"] for each in await user.history(agent)]
                assert said.count(text) == 1
                assert len(said) == 2


def turn_states(postgres: EmbeddedPostgres) -> set[str]:
    with psycopg.connect(postgres.url("memserver")) as connection:
        return {state for (state,) in connection.execute("SELECT state FROM turns")}
