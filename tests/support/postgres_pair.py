"""Postgres servers on ports of their own: one that writes, and one that follows it by streaming replication.

The binaries are those of the embedded Postgres; what is run is what an administrator runs.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from memserver.local.postgres.account import (
    PLAIN_ENVIRONMENT,
    Account,
    choose_account,
    named_account,
)
from memserver.local.postgres.binaries import PostgresBinaries, usable_binaries
from memserver.local.postgres.process import find_postmaster, wait_until_gone
from memserver.storage.checks import APP_ROLE
from memserver.storage.migrate import OWNER_ROLE, prepare_embedded
from tests.support.servers import free_port, wait_for

DATABASE = "memserver"
START_SECONDS = 60
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "shared_buffers": "64MB",
    "wal_level": "replica",
    "max_connections": "100",
}


@dataclass(frozen=True)
class Installation:
    """Where the programs are, and who runs them."""

    folder: Path
    binaries: PostgresBinaries
    account: Account | None

    def run(self, program: str, *arguments: str | Path) -> None:
        """Run one of Postgres' programs to its end. Raises RuntimeError with what it printed."""
        command = [str(self.binaries.program(program)), *map(str, arguments)]
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            cwd=self.folder,
            env=self.environment,
            **self.as_account,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{done.stdout}")

    def shell(self, script: str, **environment: str) -> None:
        """Run a script as an administrator of the servers does. Raises CalledProcessError."""
        subprocess.run(
            ["/bin/bash", "-euc", script],
            check=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
            env={**self.environment, **environment},
            **self.as_account,
        )

    @property
    def environment(self) -> dict[str, str]:
        """What the programs find each other by."""
        path = f"{self.binaries.program('postgres').parent}:{PLAIN_ENVIRONMENT['PATH']}"
        return {**PLAIN_ENVIRONMENT, "PATH": path}

    @property
    def as_account(self) -> dict[str, Any]:
        """The account as arguments of `subprocess`."""
        if self.account is None:
            return {}
        return {"user": self.account.uid, "group": self.account.gid, "extra_groups": []}

    def make_folder(self, name: str) -> Path:
        """A folder that only the account can read, as Postgres wants it."""
        made = self.folder / name
        made.mkdir(mode=0o700)
        if self.account is not None:
            os.chown(made, self.account.uid, self.account.gid)
        return made


def installed(folder: Path) -> Installation:
    """The binaries of the embedded Postgres for servers below a folder, which other accounts may pass through."""
    account = named_account(choose_account(folder / "data", folder))
    return Installation(folder, usable_binaries(folder, account), account)


@dataclass
class Node:
    """One server: its files and its port stay, whatever becomes of its processes."""

    installation: Installation
    data: Path
    port: int = field(default_factory=free_port)
    settings: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    @classmethod
    def create(cls, installation: Installation, name: str, **settings: str) -> "Node":
        """A new, empty one. Not started."""
        data = installation.make_folder(name)
        installation.run(
            *("initdb", "--no-sync", "--auth=trust", "--username=postgres"),
            *("--encoding=UTF8", "--locale=C.UTF-8", "-D", data),
        )
        return cls(installation, data, settings=settings)

    def follower(self, name: str, port: int | None = None) -> "Node":
        """A standby of this one, copied from it. Not started."""
        data = self.installation.make_folder(name)
        self.installation.run(
            *("pg_basebackup", "--write-recovery-conf", "--checkpoint=fast", "--no-sync"),
            *("--pgdata", data, "--dbname", self.conninfo("postgres")),
        )
        return Node(self.installation, data, port or free_port(), dict(self.settings))

    def conninfo(self, user: str, database: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = DATABASE) -> psycopg.Connection:
        """As the superuser."""
        return psycopg.connect(
            self.conninfo("postgres", database), autocommit=True, connect_timeout=5
        )

    def start(self) -> None:
        """Start it, and wait until it answers, also only reads."""
        self.launch()
        if not wait_for(self.answers, START_SECONDS):
            raise RuntimeError(
                (self.data.parent / f"{self.data.name}.log").read_text(encoding="utf-8")
            )

    def launch(self) -> None:
        """Start it; a child of ours, so that nothing is left of it once it has been killed."""
        with suppress(FileNotFoundError):
            (self.data / "postmaster.pid").unlink()
        options = [
            f"--{name}={value}"
            for name, value in {**SETTINGS, **self.settings, "port": str(self.port)}.items()
        ]
        with (self.data.parent / f"{self.data.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.installation.binaries.program("postgres"), "-D", self.data, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=self.installation.environment,
                **self.installation.as_account,
            )

    @property
    def runs(self) -> bool:
        """Whether its postmaster does."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The postmaster's."""
        if self._process is None:
            raise RuntimeError(f"{self.data.name} was not started")
        return self._process.pid

    def answers(self) -> bool:
        with suppress(psycopg.Error), self.connect("postgres"):
            return True
        return False

    def writes(self) -> bool:
        """Whether it is no standby."""
        with suppress(psycopg.Error), self.connect("postgres") as connection:
            return connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
        return False

    def kill(self) -> None:
        """Kill its postmaster, whose children end with it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it to every process of the server, the postmaster first."""
        children = self._children()
        for pid in (self.pid, *children, *(self._children() - children)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _children(self) -> set[int]:
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return {int(pid) for pid in found.read_text(encoding="utf-8").split()}

    def set(self, name: str, value: str) -> None:
        """`ALTER SYSTEM`, in force at once."""
        with self.connect("postgres") as connection:
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            connection.execute("SELECT pg_reload_conf()")

    def wait_for_follower(self) -> None:
        """Until a standby streams; from then on no commit is acknowledged that it hasn't on disk."""
        streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"

        def follows() -> bool:
            with self.connect("postgres") as connection:
                return connection.execute(streaming.encode()).fetchone() == (1,)

        if not wait_for(follows, START_SECONDS):
            raise RuntimeError("no standby streams")
        self.set("synchronous_standby_names", "*")

    def promote(self) -> None:
        """Make a standby the one that writes, and alone."""
        self.set("synchronous_standby_names", "")
        with self.connect("postgres") as connection:
            connection.execute("SELECT pg_promote()")


@dataclass(frozen=True)
class Pair:
    """A server that writes, and its standby."""

    primary: Node
    standby: Node

    def url(self, role: str) -> str:
        """One URL that names both."""
        ports = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://{role}@{ports}/{DATABASE}"

    def urls(self) -> dict[str, object]:
        """memserver's settings."""
        return {"database_url": self.url(OWNER_ROLE), "database_app_url": self.url(APP_ROLE)}


@contextmanager
def postgres_pair(folder: Path) -> Iterator[Pair]:
    """Both running, with memserver's roles and an empty database."""
    installation = installed(folder)
    primary = Node.create(installation, "primary")
    nodes = [primary]
    try:
        primary.start()
        prepare_embedded(primary.conninfo("postgres"), DATABASE)
        standby = primary.follower("standby")
        nodes.append(standby)
        standby.start()
        primary.wait_for_follower()
        yield Pair(primary, standby)
    finally:
        for node in nodes:
            end(node)


def end(node: Node) -> None:
    """Kill a server, stopped or not, and wait for the last of its processes."""
    if node.runs:
        node.kill()
    while (left := find_postmaster(node.data)) is not None:
        wait_until_gone(left.pid, 1)
