"""What the servers share: the embedded Postgres, which they start again themselves, or one with a standby.

The latter has what a service manager and a watcher such as Patroni do: what died is started again, or the
standby is promoted and the old primary made its standby.
"""

import os
import shutil
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
from typing_extensions import override

from memserver.storage.migrate import prepare_embedded
from memserver.wiring.database import EMBEDDED_DATABASE
from tests.support.postgres_pair import DATABASE, Node, Pair, end, installed


class Database(ABC):
    """One Postgres, as those see it who damage it."""

    @property
    @abstractmethod
    def address(self) -> tuple[str, int]:
        """Host, or directory of the socket, and port of the server that takes writes. Raises OSError."""

    @property
    @abstractmethod
    def account(self) -> os.stat_result:
        """Whose uid and gid may connect."""

    @abstractmethod
    def postmaster(self) -> int:
        """Its pid. Raises OSError while there is none."""

    def superuser(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection that sees everything."""
        host, port = self.address
        return psycopg.connect(
            host=host, port=port, user="postgres", dbname=EMBEDDED_DATABASE, autocommit=True
        )

    @abstractmethod
    def keep(self) -> None:
        """Start again what has died, unless somebody else does."""


@dataclass
class Embedded(Database):
    """That of the first server, which starts it."""

    data: Path

    @property
    @override
    def address(self) -> tuple[str, int]:
        return str(self.data.parent / "run"), int(self._file()[3])

    @property
    @override
    def account(self) -> os.stat_result:
        return self.data.stat()

    @override
    def postmaster(self) -> int:
        return int(self._file()[0])

    @override
    def keep(self) -> None:
        """The servers do."""

    def _file(self) -> list[str]:
        return (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()


@dataclass
class Replicated(Database):
    """A server and its standby, without which nothing is committed."""

    primary: Node
    standby: Node
    url_of: Pair
    _changing: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def create(cls, folder: Path) -> "Replicated":
        """Both running."""
        quick = {"wal_retrieve_retry_interval": "200ms", "wal_keep_size": "64MB"}
        installation = replace(installed(folder.parent), folder=folder)
        primary = Node.create(installation, "one", max_wal_size="64MB", **quick)
        primary.start()
        prepare_embedded(primary.conninfo("postgres"), DATABASE)
        standby = primary.follower("two")
        standby.start()
        primary.wait_for_follower()
        return cls(primary, standby, Pair(primary, standby))

    @property
    @override
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.primary.port

    @property
    @override
    def account(self) -> os.stat_result:
        return self.primary.data.stat()

    @override
    def postmaster(self) -> int:
        return self.primary.pid

    @override
    def keep(self) -> None:
        if self._changing.acquire(blocking=False):
            try:
                for node in (self.primary, self.standby):
                    if not node.runs:
                        node.launch()
            finally:
                self._changing.release()

    def fail_over(self) -> None:
        """Kill the primary and promote the standby; then the old primary follows."""
        with self._changing:
            old, new = self.primary, self.standby
            old.kill()
            if not new.runs:
                new.start()
            new.promote()
            self.primary = new
            end(old)
            shutil.rmtree(old.data)
            self.standby = new.follower(old.data.name, old.port)
            self.standby.start()
            new.wait_for_follower()

    def close(self) -> None:
        """End both."""
        for node in (self.primary, self.standby):
            end(node)
