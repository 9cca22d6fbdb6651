"""A database is brought back to a moment, by the commands of the documentation, and memserver serves it from there."""

import asyncio
import json
from collections import defaultdict
from datetime import datetime
from pathlib import Path

import psycopg
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memserver.storage.checks import APP_ROLE
from memserver.storage.migrate import OWNER_ROLE, prepare_embedded
from tests.support.doc_blocks import REPOSITORY, blocks
from tests.support.http_app import serving
from tests.support.nightly import NIGHTLY
from tests.support.postgres_pair import DATABASE, SETTINGS, Installation, installed
from tests.support.processes import Client, client, eventually, holding_model, server
from tests.support.servers import Settings, free_port, settings_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not NIGHTLY, reason="nightly: three starts of Postgres, two of memserver"),
]

MARK = "not-run: tests/processes/test_point_in_time.py runs it"
EXAMPLE_MOMENT = "2026-11-30 12:00:00+00"
ARCHIVE, BASE_BACKUP, LAST_WAL, RESTORE = range(4)


class Administrator:
    """Runs the documented commands on servers below a folder."""

    def __init__(self, installation: Installation) -> None:
        self.port = free_port()
        self._installation = installation
        self._servers = installation.make_folder("postgres")
        self._backup = installation.make_folder("backup")
        self._blocks = [
            block.text
            for block in blocks(REPOSITORY / "docs" / "operations.md")
            if block.marks == MARK
        ]

    def create(self) -> None:
        data = self._servers / "data"
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8"]
        self._installation.run("initdb", "--no-sync", *options, "--pgdata", data)
        settings = {**SETTINGS, "port": str(self.port)}
        with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self._installation.run(
            "pg_ctl", "start", "--pgdata", data, "--log", self._servers / "data.log"
        )

    def run(self, place: int, moment: datetime | None = None) -> None:
        """Run a block of the documentation, with our paths and our moment."""
        script = self._blocks[place].replace("/srv/postgres", str(self._servers))
        script = script.replace("/backup", str(self._backup))
        if moment is not None:
            assert EXAMPLE_MOMENT in script
            script = script.replace(EXAMPLE_MOMENT, moment.isoformat(sep=" "))
        self._installation.shell(
            script, PGHOST="127.0.0.1", PGPORT=str(self.port), PGUSER="postgres"
        )

    def stop(self) -> None:
        for data in (self._servers / "data", self._servers / "restored"):
            if (data / "postmaster.pid").exists():
                self._installation.run("pg_ctl", "stop", "--mode=immediate", "--pgdata", data)

    def url(self, role: str, database: str = DATABASE) -> str:
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def value(self, query: str) -> object:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            [(value,)] = connection.execute(query.encode()).fetchall()
            return value


class Receiver:
    """Event webhooks' deliveries: the ids of each turn's end."""

    def __init__(self) -> None:
        self.ended: defaultdict[tuple[str, int], list[str]] = defaultdict(list)

    async def receive(self, request: Request) -> Response:
        data = json.loads(await request.body())["data"]
        self.ended[data["agent_id"], data["turn"]].append(request.headers["webhook-id"])
        return Response(status_code=204)


def texts(history: list[dict[str, object]], role: str) -> list[object]:
    return [each["text"] for each in history if each["role"] == role]


async def test_the_state_is_of_that_moment_and_what_was_due_then_is_done_from_there(
    folder: Path,
) -> None:
    administrator, receiver = Administrator(installed(folder)), Receiver()
    app = Starlette(routes=[Route("/", receiver.receive, methods=["POST"])])
    try:
        administrator.create()
        prepare_embedded(administrator.url("postgres", "postgres"), DATABASE)
        administrator.run(ARCHIVE)
        with holding_model() as model, serving(app) as hook:
            settings = settings_for(
                model.url,
                database_url=administrator.url(OWNER_ROLE),
                database_app_url=administrator.url(APP_ROLE),
                lease_seconds=2,
                tool_networks="127.0.0.0/8",
            )
            with server(folder, settings) as process:
                administrator.run(BASE_BACKUP)
                async with client(process) as user:
                    webhook = {"url": hook, "events": ["turn.ended"]}
                    assert (await user.http.post("/v1/webhooks", json=webhook)).status_code == 201
                    keeper, erased, asker = [await user.create_agent() for _ in range(3)]
                    asking = asyncio.create_task(user.say(asker, "a question"))
                    await eventually(lambda: model.asked)
                    await user.say(keeper, "before")
                    await user.say(erased, "a secret")
                    await eventually(lambda: len(receiver.ended) == 2)
                    await eventually(
                        lambda: (
                            administrator.value(
                                "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'deliver_event'"
                            )
                            == 0
                        )
                    )
                    timer = {"text": "It is time.", "in_seconds": 3}
                    made = await user.http.post(f"/v1/agents/{keeper}/timers", json=timer)
                    assert made.status_code == 201
                    moment = administrator.value("SELECT clock_timestamp()")
                    assert isinstance(moment, datetime)

                    model.close()
                    assert await asking == "too late"
                    await user.say(keeper, "after")
                    assert (await user.http.delete(f"/v1/agents/{erased}")).status_code == 204
                    await eventually(lambda: (keeper, 3) in receiver.ended)  # the timer's turn
                    await eventually(lambda: (asker, 1) in receiver.ended)
            administrator.run(LAST_WAL)
            administrator.run(RESTORE, moment)
            await _check_restored(folder, settings, receiver, (keeper, erased, asker))
    finally:
        administrator.stop()


async def _check_restored(
    folder: Path, settings: Settings, receiver: Receiver, agents: tuple[str, str, str]
) -> None:
    keeper, erased, asker = agents
    with server(folder, settings) as process:
        async with client(process) as user:
            await eventually(lambda: len(receiver.ended[asker, 1]) == 2)
            await eventually(lambda: len(receiver.ended[keeper, 2]) == 2)
            await _check_histories(user, agents)
            assert await user.say(keeper, "from here") == "8: from here"
    first, second = receiver.ended[asker, 1]
    assert first != second
    assert len(receiver.ended[keeper, 1]) == len(receiver.ended[erased, 1]) == 1


async def _check_histories(user: Client, agents: tuple[str, str, str]) -> None:
    keeper, erased, asker = [await user.history(agent) for agent in agents]
    assert texts(keeper, "user") == ["before"]
    assert "It is time." in str(keeper)
    assert texts(erased, "user") == ["a secret"]
    assert texts(asker, "user") == ["a question"]
    [answer] = texts(asker, "assistant")
    assert str(answer).endswith("a question")
