"""The embedded Postgres: one server for a home directory, shared by every process that wants it.

Owns the life of the cluster (create, start, join, stop, recover). Leaves databases, roles, extensions
and tables to the migrations.

How it is shared: each process holds a shared flock on `users`; starting and stopping happen under an
exclusive flock on `lock`. Who ends last can take `users` exclusively and stops the server. The kernel
drops a lock with its process, even on SIGKILL; the server of killed users runs on until the next user
joins and ends.

    root/            lock, users, server.log; as root also `location`, if the cluster lies elsewhere
    place/           root, or a directory that Postgres's account can reach (see postgres_account)
      data/ run/     the cluster and its socket, 0700, owned by that account
      binaries-…/    a copy of the binaries, only where the account can't read the originals
"""

import fcntl
import logging
import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Self

from memserver.errors import SetupError
from memserver.local.postgres.account import make_traversable
from memserver.local.postgres.binaries import (
    SHIPPED,
    PostgresBinaries,
    PostgresPackage,
    usable_binaries,
)
from memserver.local.postgres.cluster import OWN_SETTINGS, Cluster, locate_cluster, log_tail
from memserver.local.postgres.process import PORT, find_postmaster

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
LONGEST_PAUSE = 10.0


class EmbeddedPostgres:
    """A Postgres server under a directory, started when needed and stopped by its last user.

    Args:
        root: the directory for it, `Settings.home / "postgres"`; made if missing.
        settings: Postgres settings that win over the cluster's own; they count when this process is the
            one that starts the server.
        system_home: as root, where a cluster goes whose root is closed to other accounts.
        package: whose binaries run; a cluster stays with the one it was made by.
    """

    def __init__(
        self,
        root: Path,
        *,
        settings: Mapping[str, str] | None = None,
        system_home: Path = Path("/var/lib/memserver"),
        package: PostgresPackage = SHIPPED,
    ) -> None:
        self._root = root.expanduser().resolve()
        self._settings = dict(settings or {})
        for name in self._settings:
            if name in OWN_SETTINGS or not re.fullmatch(r"[a-z_][a-z0-9_.]*", name):
                raise ValueError(f"{name!r} can't be set on the embedded Postgres")
        self._system_home = system_home
        self._package = package
        self._log = self._root / "server.log"
        self._cluster: Cluster | None = None
        self._users: int | None = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Start the server or join it; on one that this object already holds, revive it if it died.

        Blocks while the server starts, which after a crash can take minutes.

        Raises:
            SetupError: the server can't run here; the hint says how to fix it.
        """
        newly = self._users is None
        with ExitStack() as undo:
            undo.callback(self._unshare, newly)
            try:
                make_traversable(self._root)
                with self._starting_and_stopping():
                    self._share()
                    self._cluster = locate_cluster(self._root, self._system_home, self._package)
                    self._cluster.serve(self._settings, self._log)
            except OSError as error:
                raise SetupError(
                    f"The embedded Postgres can't be set up in {self._root}: {error}",
                    hint="Set MEMSERVER_HOME to a directory on a local disk where this account may write.",
                ) from error
            undo.pop_all()

    @contextmanager
    def keep_running(self) -> Iterator[None]:
        """Start the server again whenever it dies while the block runs; whichever process sees it first does."""
        ending = Event()
        keeper = Thread(target=self._keep_running, args=[ending], daemon=True)
        keeper.start()
        try:
            yield
        finally:
            ending.set()
            keeper.join()

    def _keep_running(self, ending: Event) -> None:
        assert self._cluster is not None
        pause = LOOK_SECONDS
        while not ending.wait(pause):
            if find_postmaster(self._cluster.data) is not None:
                pause = LOOK_SECONDS
                continue
            logger.warning(
                "The embedded Postgres has died and is started again. Its log: %s", self._log
            )
            try:
                self.acquire()
                pause = LOOK_SECONDS
            except SetupError as error:
                pause = min(2 * pause, LONGEST_PAUSE)
                logger.warning("%s Trying again in %.1f s.", error.message, pause)

    def release(self) -> bool:
        """Stop using the server; returns true when this was its last user and stopped it."""
        if self._users is None:
            return False
        with self._starting_and_stopping():
            self._unshare(True)
            descriptor = self._open("users")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            finally:
                os.close(descriptor)
            return self._cluster is None or self._cluster.stop()

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """The libpq URL of a database, once acquired.

        It names the port too: the variable PGPORT would otherwise decide which socket a client looks for.
        """
        if self._cluster is None:
            raise RuntimeError("acquire() first: only then is the socket's place known")
        host = urllib.parse.quote(str(self._cluster.socket_directory), safe="")
        name, role = urllib.parse.quote(database, safe=""), urllib.parse.quote(user, safe="")
        return f"postgresql://{role}@/{name}?host={host}&port={PORT}"

    def binaries(self) -> PostgresBinaries:
        """The programs of its package, once acquired."""
        if self._cluster is None:
            raise RuntimeError("acquire() first: only then is it known where they run")
        return usable_binaries(self._cluster.place, self._cluster.account, self._package)

    def log_tail(self, lines: int = 20) -> str:
        return log_tail(self._log, lines)

    # --- the locks

    def _open(self, name: str) -> int:
        return os.open(self._root / name, os.O_RDWR | os.O_CREAT, 0o600)

    @contextmanager
    def _starting_and_stopping(self) -> Iterator[None]:
        descriptor = self._open("lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _share(self) -> None:
        if self._users is None:
            self._users = self._open("users")
            fcntl.flock(self._users, fcntl.LOCK_SH)

    def _unshare(self, really: bool) -> None:
        # Closing, not unlocking: a forked child that ends must not take its parent's lock away.
        if really and self._users is not None:
            os.close(self._users)
            self._users = None
