"""PgBouncer between a server and a test's database, where it is installed (Debian: apt-get install pgbouncer)."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from memserver.storage.checks import APP_ROLE
from memserver.storage.migrate import OWNER_ROLE
from tests.support.server import OneDatabase
from tests.support.servers import free_port, wait_for

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")


@contextmanager
def pgbouncer(
    folder: Path, database: OneDatabase, mode: str, size: int = 4
) -> Iterator[OneDatabase]:
    """PgBouncer in a pool mode, with as many connections to Postgres."""
    assert PROGRAM is not None
    direct = conninfo_to_dict(database.app)
    port = free_port()
    settings = folder / f"pgbouncer-{port}.ini"
    settings.write_text(
        f"""[databases]
* = host={direct["host"]} port={direct["port"]}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder / "users.txt"}
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
server_round_robin = 1
"""
    )
    users = folder / "users.txt"
    users.write_text("".join(f'"{name}" ""\n' for name in (APP_ROLE, OWNER_ROLE)))
    for file in (settings, users):
        file.chmod(0o644)
    owner = Path(str(direct["host"])).stat()  # of Postgres' socket, who alone may use it
    process = subprocess.Popen(
        [PROGRAM, "-q", str(settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=owner.st_uid if os.geteuid() == 0 else None,
        group=owner.st_gid if os.geteuid() == 0 else None,
    )

    def url(direct: str) -> str:
        found = conninfo_to_dict(direct)
        return f"postgresql://{found['user']}@127.0.0.1:{port}/{found['dbname']}"

    try:
        assert wait_for(lambda: process.poll() is not None or _listens(port), 10)
        assert process.poll() is None
        yield OneDatabase(url(database.app), url(database.owner), database.superuser)
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
