"""What chaos is made in: two servers over one Postgres, one of them through PgBouncer, a model and a webhook.

Postgres is on a small disk of its own where we may mount one. A server whose main process was killed is
started again on its port, and so is PgBouncer, as a service manager does; nothing else is helped.
"""

import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from memserver.messages import PromptMessage, ToolSpec
from memserver.storage.checks import APP_ROLE
from memserver.storage.migrate import OWNER_ROLE
from memserver.testing.scripted import Call, Step, say
from memserver.testing.scripted_rules import last_user_text
from memserver.testing.scripted_server import create_scripted_app
from memserver.wiring.database import EMBEDDED_DATABASE
from tests.chaos.databases import Database, Embedded, Replicated
from tests.support.http_app import serving
from tests.support.pgbouncer import PROGRAM
from tests.support.servers import (
    PROC,
    ServerProcess,
    Settings,
    free_port,
    running_processes,
    settings_for,
    starting_memserver,
    wait_for,
)

LEASE_SECONDS = 2
WORKERS = 2
DISK_MEGABYTES = 600
DIMENSION = 384
COUNTED = "counted"
"""What a message says whose turn calls the webhook first."""
START_SECONDS = 60


@dataclass
class Webhook:
    """Counts how often each message's call was delivered."""

    delivered: Counter[str] = field(default_factory=Counter)

    async def count(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.delivered[body["arguments"]["text"]] += 1
        return JSONResponse({"ok": True})


async def embeddings(request: Request) -> JSONResponse:
    """An embedder to whom all texts mean the same."""
    body = await request.json()
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    vector = [1.0] + [0.0] * (DIMENSION - 1)
    data = [{"index": place, "embedding": vector} for place, _ in enumerate(texts)]
    return JSONResponse({"model": body["model"], "data": data})


def answer(prompt: Sequence[PromptMessage], _tools: Sequence[ToolSpec]) -> Step:
    """The model: echoes, after one call of the webhook where the message asks for it."""
    text = last_user_text(prompt)
    since = []
    for message in reversed(prompt):
        if message.role == "user" and message.text.endswith(text):
            break
        since.append(message.role)
    if COUNTED in text and "tool" not in since:
        return Call("count", {"inner_thought": "Count it.", "text": text})
    return say(f"echo: {text}")


@dataclass(eq=False)
class Service:
    """A server that is started again whenever its main process has ended."""

    name: str
    folder: Path
    settings: Settings
    port: int
    process: ServerProcess | None = None
    _running: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        """Its address, the same after each start."""
        return f"http://127.0.0.1:{self.port}"

    def keep(self) -> bool:
        """Start it if it isn't running; whether it was."""
        if self.process is not None and not self.process.ended:
            return True
        # What the last one left behind must end by itself: only a process that was never started is let go.
        self._running.pop_all()
        self.process = self._running.enter_context(
            starting_memserver(
                self.folder, self.settings, "--workers", str(WORKERS), port=self.port
            )
        )
        return False

    def main(self) -> int:
        """The pid of the main process."""
        if self.process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self.process.pid

    def workers(self) -> list[int]:
        """The pids of the worker processes."""
        main = self.main()
        children = [pid for pid, fields in running_processes() if int(fields[1]) == main]
        return [pid for pid in children if b"spawn_main" in _command_line(pid)]

    def close(self) -> None:
        """End it."""
        self._running.close()


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes()
    return b""


@dataclass
class Bouncer:
    """PgBouncer in transaction mode before Postgres, the one that takes writes when it is started."""

    folder: Path
    database: Database
    port: int
    wanted: bool = True
    process: subprocess.Popen[bytes] | None = None

    def url(self, role: str) -> str:
        """How a role reaches the database through it."""
        return f"postgresql://{role}@127.0.0.1:{self.port}/{EMBEDDED_DATABASE}"

    def keep(self) -> None:
        """Start it if it should run and doesn't."""
        if not self.wanted or (self.process is not None and self.process.poll() is None):
            return
        owner, is_root = self.database.account, os.geteuid() == 0
        self.process = subprocess.Popen(
            [str(PROGRAM), "-q", str(self._configured())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            user=owner.st_uid if is_root else None,  # who alone may use the socket
            group=owner.st_gid if is_root else None,
        )

    def stop(self) -> None:
        """Kill it, and leave it away."""
        self.wanted = False
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _configured(self) -> Path:
        users = self.folder / "pgbouncer-users.txt"
        users.write_text("".join(f'"{role}" ""\n' for role in (OWNER_ROLE, APP_ROLE)))
        host, port = self.database.address
        config = self.folder / "pgbouncer.ini"
        config.write_text(
            f"""[databases]
{EMBEDDED_DATABASE} = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
max_client_conn = 300
default_pool_size = 20
server_login_retry = 1
"""
        )
        for file in (users, config):
            file.chmod(0o644)
        return config


@dataclass
class World:
    """All that runs, and what the webhook was called for."""

    services: tuple[Service, ...]
    webhook: Webhook
    webhook_url: str
    database: Database
    disk: Path | None
    """Where a file can be put that fills the cluster's disk; None where nothing could be mounted."""
    bouncer: Bouncer | None
    _ended: threading.Event = field(default_factory=threading.Event)

    def postmaster(self) -> int:
        """Its pid. Raises OSError while there is none."""
        return self.database.postmaster()

    def backends(self) -> list[int]:
        """Pids of the processes that serve connections."""
        return [
            pid
            for pid, fields in running_processes()
            if int(fields[1]) == self.postmaster() and b"memserver" in _command_line(pid)
        ]

    def postgres_processes(self) -> set[int]:
        """Pids of all that Postgres runs."""
        postmaster = self.postmaster()
        return {
            postmaster,
            *(pid for pid, fields in running_processes() if int(fields[1]) == postmaster),
        }

    def keep(self) -> None:
        """What a service manager does, once a while, until the end."""
        while not self._ended.wait(0.5):
            self.database.keep()
            for service in self.services:
                service.keep()
            if self.bouncer is not None:
                self.bouncer.keep()

    def end(self) -> None:
        """Stop starting things again."""
        self._ended.set()


@contextmanager
def world(folder: Path, *, embedded: bool) -> Iterator[World]:
    """Everything, answering; Postgres is the embedded one of the first server, or has a standby."""
    with ExitStack() as stack:
        webhook = Webhook()
        routes = [
            Route("/count", webhook.count, methods=["POST"]),
            Route("/v1/embeddings", embeddings, methods=["POST"]),
        ]
        hook = stack.enter_context(serving(Starlette(routes=routes)))
        model = stack.enter_context(serving(create_scripted_app(answer, context_window=1_000_000)))
        home = folder / "home"
        disk_place = home / "postgres"
        disk = stack.enter_context(_small_disk(disk_place))
        common = settings_for(
            model,
            lease_seconds=LEASE_SECONDS,
            tool_networks="127.0.0.0/8",
            embedding_base_url=f"{hook}/v1",
        )
        replicated = None if embedded else Replicated.create(disk_place)
        direct: Settings = {"home": home}
        if replicated is not None:
            stack.callback(replicated.close)
            direct |= replicated.url_of.urls()
        first = Service("direct", folder, {**common, **direct}, free_port())
        stack.callback(first.close)
        first.keep()
        _wait_until_ready(first)
        database = replicated or Embedded(next(home.glob("**/PG_VERSION")).parent)
        services, bouncer = [first], None
        if PROGRAM:
            bouncer = Bouncer(folder, database, free_port())
            stack.callback(bouncer.stop)
            bouncer.keep()
            urls = {
                "database_url": bouncer.url(OWNER_ROLE),
                "database_app_url": bouncer.url(APP_ROLE),
            }
            second = Service("pooled", folder, {**common, **urls}, free_port())
            stack.callback(second.close)
            second.keep()
            _wait_until_ready(second)
            services.append(second)
        made = World(tuple(services), webhook, f"{hook}/count", database, disk, bouncer)
        keeper = threading.Thread(target=made.keep, name="keeper")
        keeper.start()
        try:
            yield made
        finally:
            made.end()
            keeper.join()


def _wait_until_ready(service: Service) -> None:
    process = service.process
    if process is None:
        raise RuntimeError(f"{service.name} was not started")
    process.wait_until_healthy("/v1/ready", START_SECONDS)


@contextmanager
def _small_disk(place: Path) -> Iterator[Path | None]:
    """A disk that can be filled, where this account may mount one."""
    place.mkdir(parents=True)
    for part in (place.parent, place):
        part.chmod(0o711)
    options = f"size={DISK_MEGABYTES}m,mode=0711"
    mount = ["mount", "-t", "tmpfs", "-o", options, "memserver-chaos", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield place
    finally:
        # The server's own processes may still be ending.
        unmount = ["umount", str(place)]
        wait_for(
            lambda: not subprocess.run(unmount, check=False, capture_output=True).returncode, 30
        )
