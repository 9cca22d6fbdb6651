"""One cluster on disk: where it lies, creating it, and bringing its server up or down.

Owns initdb, the settings that a server starts with, and recovery from a crash. Who may call it when is
the business of `embedded_postgres`: everything here runs under its exclusive lock.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from memserver.errors import SetupError
from memserver.local.postgres import process as postgres_process
from memserver.local.postgres.account import (
    Account,
    choose_account,
    choose_place,
    make_private,
    named_account,
    recorded_place,
    run_as,
    socket_directory,
)
from memserver.local.postgres.binaries import (
    SHIPPED,
    PostgresBinaries,
    PostgresPackage,
    usable_binaries,
)
from memserver.local.postgres.memory_limit import memory_limit

START_TIMEOUT = 600.0  # crash recovery replays all that was written since the last checkpoint
STOP_PATIENCE = 120.0
LOG_BYTES = 10_000_000
SMALL_SHARED_MEMORY = 512 * 1024 * 1024
OLD_BACKENDS_RUN = "pre-existing shared memory block"

INITIAL_SETTINGS = {"shared_buffers": "128MB", "max_connections": "100", "fsync": "on"}
"""Written into a new cluster's postgresql.conf, so that ALTER SYSTEM and an editor can change them."""

MEGABYTE = 1024 * 1024
CACHE = (128 * MEGABYTE, 4096 * MEGABYTE)
CACHE_SHARE = 4

OWN_SETTINGS = frozenset({"listen_addresses", "unix_socket_directories", "port", "data_directory"})
"""Decided by the launcher alone."""


@dataclass(frozen=True)
class Cluster:
    """Where a cluster lies and who runs it; its files need not exist yet."""

    place: Path
    account: Account | None
    socket_directory: Path
    package: PostgresPackage = SHIPPED

    @property
    def data(self) -> Path:
        return self.place / "data"

    def serve(self, settings: Mapping[str, str], log: Path) -> None:
        """See that the server runs and takes connections, whatever state it was left in.

        Raises:
            SetupError: it can't; the message ends with the tail of the server's log.
        """
        server = postgres_process.find_postmaster(self.data)
        if server and server.status == "stopping":  # by someone who was killed while waiting for it
            postgres_process.wait_until_gone(server.pid, STOP_PATIENCE)
            server = postgres_process.find_postmaster(self.data)
        if server is None:
            self._start(settings, log)
        elif not postgres_process.wait_until_ready(self.data, server.pid, START_TIMEOUT):
            raise _failed_start(log)

    def stop(self) -> bool:
        """Stop the server; false if it won't end."""
        server = postgres_process.find_postmaster(self.data)
        return server is None or postgres_process.stop(server, STOP_PATIENCE)

    def _start(self, settings: Mapping[str, str], log: Path) -> None:
        binaries = usable_binaries(self.place, self.account, self.package)
        if self.data.exists():
            _check_version(self.data, binaries)
        else:
            _create(self, binaries, settings)
        make_private(self.socket_directory, self.account)
        _rotate(log)
        command = [str(binaries.program("postgres")), "-D", str(self.data)]
        for name, value in _server_settings(self.socket_directory, settings).items():
            command += ["-c", f"{name}={value}"]
        end = time.monotonic() + START_TIMEOUT
        for pause in postgres_process.pauses():
            postgres_process.clear_leftovers(self.data, self.socket_directory)
            before = log.stat().st_size if log.exists() else 0
            pid = postgres_process.launch(command, log, self.account)
            if postgres_process.wait_until_ready(self.data, pid, end - time.monotonic()):
                return
            # A backend that is deep in a query outlives its killed postmaster until the query ends.
            waiting = OLD_BACKENDS_RUN in _text_since(log, before)
            if not waiting or time.monotonic() > end:
                raise _failed_start(log)
            time.sleep(10 * pause)


def locate_cluster(root: Path, system_home: Path, package: PostgresPackage = SHIPPED) -> Cluster:
    """The cluster of a root: found where it was put, or with the account and the place that it should get."""
    place = recorded_place(root)
    account = choose_account((place or root) / "data", root)
    place = place or choose_place(root, account, system_home)
    return Cluster(place, account, socket_directory(place), package)


def cache_size(memory: int) -> int:
    """Bytes of shared_buffers: a quarter of the memory, as Postgres' manual advises, within bounds.

    A page takes real memory only once it is used. An index over a million vectors has more than a
    gigabyte, and a search reads some thousand pages of it: each that is not in this cache costs a system call.
    """
    smallest, largest = CACHE
    return max(smallest, min(largest, memory // CACHE_SHARE))


def log_tail(log: Path, lines: int) -> str:
    """The last lines of a log; empty if there is none."""
    size = log.stat().st_size if log.exists() else 0
    return "\n".join(_text_since(log, max(0, size - 200 * lines)).splitlines()[-lines:])


def _create(cluster: Cluster, binaries: PostgresBinaries, settings: Mapping[str, str]) -> None:
    """Make a new cluster beside its final place and move it there: a killed initdb leaves no half one."""
    for unfinished in cluster.place.glob("initdb-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix="initdb-", dir=cluster.place))
    maker = named_account(cluster.account)
    _give(work, maker)
    options = [f"--set={name}={value}" for name, value in INITIAL_SETTINGS.items()]
    if settings.get("fsync") == "off":  # on a busy disk most of initdb's time is waiting for it
        options.append("--no-sync")
    outcome = run_as(
        maker,
        binaries.program("initdb"),
        f"--pgdata={work}",
        "--username=postgres",
        "--auth=trust",  # the socket's directory is what keeps others out
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",  # the same order and case rules under every libc
        "--builtin-locale=C.UTF-8",
        # The full-text parser asks libc what a letter is; under C an em dash and « would be letters.
        f"--lc-ctype={'UTF-8' if sys.platform == 'darwin' else 'C.UTF-8'}",
        "--text-search-config=english",
        "--no-instructions",
        *options,
    )
    if outcome.returncode:
        shutil.rmtree(work, ignore_errors=True)
        raise SetupError(
            f"The database could not be created in {cluster.place}:\n{outcome.stdout[-2000:].strip()}",
            hint="Fix what initdb names (often a full or a read-only disk) and start again.",
        )
    _set_cache(work / "postgresql.conf")
    if maker != cluster.account:
        _give(work, cluster.account)
    work.rename(cluster.data)


def _set_cache(settings: Path) -> None:
    """Only now: initdb starts Postgres some times, each slower with a larger cache."""
    with settings.open("a", encoding="utf-8") as file:
        file.write(f"shared_buffers = {cache_size(memory_limit()) // MEGABYTE}MB\n")


def _give(tree: Path, account: Account | None) -> None:
    if account is None:
        return
    for _, _, files, descriptor in os.fwalk(tree):
        for name in [".", *files]:
            os.chown(name, account.uid, account.gid, dir_fd=descriptor, follow_symlinks=False)


def _check_version(data: Path, binaries: PostgresBinaries) -> None:
    try:
        found = (data / "PG_VERSION").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise SetupError(
            f"{data} is not a Postgres data directory.",
            hint="Move it away, and memserver begins with an empty database.",
        ) from None
    if found != binaries.major:
        raise SetupError(
            f"The database in {data} was made by Postgres {found}; the installed binaries are {binaries.major}.",
            hint=f"Install the memserver it was made with and dump it (pg_dumpall), or serve it with a Postgres {found} "
            f"and MEMSERVER_DATABASE_URL; or move {data} away to begin with an empty database.",
        )


def _server_settings(socket_directory: Path, settings: Mapping[str, str]) -> dict[str, str]:
    quoted = str(socket_directory).replace('"', '""')
    return {
        **_shared_memory_settings(),
        **settings,
        "listen_addresses": "",
        "unix_socket_directories": f'"{quoted}"',
        "unix_socket_permissions": "0700",
        "port": postgres_process.PORT,
    }


def _shared_memory_settings() -> dict[str, str]:
    """A container's /dev/shm is often 64 MB, too little to build an HNSW index in parallel."""
    try:
        free = os.statvfs("/dev/shm")
    except OSError:
        return {}
    small = free.f_blocks * free.f_frsize < SMALL_SHARED_MEMORY
    return {"dynamic_shared_memory_type": "mmap"} if small else {}


def _failed_start(log: Path) -> SetupError:
    return SetupError(
        f"The embedded Postgres did not start. The end of {log}:\n{log_tail(log, 20)}",
        hint="Fix what the log names and start again; or set MEMSERVER_DATABASE_URL to a Postgres of yours.",
    )


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))


def _text_since(log: Path, position: int) -> str:
    try:
        with log.open("rb") as file:
            file.seek(position)
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
