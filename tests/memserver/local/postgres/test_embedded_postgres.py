"""The embedded Postgres as processes see it: real binaries, real signals."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from memserver.errors import SetupError
from memserver.local.postgres.account import socket_directory
from memserver.local.postgres.cluster import MEGABYTE, cache_size
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.local.postgres.memory_limit import memory_limit
from memserver.local.postgres.process import wait_until_gone
from tests.memserver.local.postgres.embedded import (
    HOLDER,
    UNSAFE,
    copy_launcher,
    holder,
    postmaster_of,
    rows,
    run,
)

# --- starting


def test_a_fresh_server_answers_and_can_create_the_vector_extension(root: Path) -> None:
    with EmbeddedPostgres(root, settings=UNSAFE) as server:
        run(server.url(), "CREATE EXTENSION vector", "CREATE DATABASE other")
        assert rows(server.url(), "SELECT '[1,2]'::vector <-> '[1,2]'") == [(0.0,)]
        assert rows(server.url("other"), "SELECT current_database(), current_user") == [
            ("other", "postgres")
        ]


def test_it_listens_on_a_private_socket_only(root: Path) -> None:
    with EmbeddedPostgres(root, settings=UNSAFE) as server:
        assert rows(server.url(), "SHOW listen_addresses") == [("",)]
        assert (root / "run").stat().st_mode & 0o077 == 0
        assert (root / "data").stat().st_mode & 0o077 == 0


def test_its_cache_is_a_quarter_of_the_memory_and_an_editor_of_its_settings_wins(
    root: Path,
) -> None:
    with EmbeddedPostgres(root, settings=UNSAFE) as server:
        (cache,) = rows(server.url(), "SELECT pg_size_bytes(current_setting('shared_buffers'))")
        expected = cache_size(memory_limit())
        assert expected - MEGABYTE < cache[0] <= expected
        run(server.url(), "ALTER SYSTEM SET shared_buffers = '77MB'")
    with EmbeddedPostgres(root, settings=UNSAFE) as server:
        assert rows(server.url(), "SHOW shared_buffers") == [("77MB",)]


@pytest.mark.parametrize(
    ("memory", "cache"), [(256, 128), (2048, 512), (16_384, 4096), (262_144, 4096)]
)
def test_the_cache_has_bounds(memory: int, cache: int) -> None:
    assert cache_size(memory * MEGABYTE) == cache * MEGABYTE


def test_text_search_takes_foreign_letters_for_letters_and_dashes_for_dashes(root: Path) -> None:
    with EmbeddedPostgres(root, settings=UNSAFE) as server:
        (found,) = rows(server.url(), "SELECT to_tsvector('simple', '«Éa» ПРИВЕТ—мир')::text")
        assert found == ("'éa':1 'мир':3 'привет':2",)
        assert rows(server.url(), "SELECT 'ПРИВЕТ' ILIKE 'привет'") == [(True,)]


def test_extra_settings_reach_the_server_and_its_own_cannot_be_set(root: Path) -> None:
    with EmbeddedPostgres(root, settings={**UNSAFE, "log_statement": "all"}) as server:
        assert rows(server.url(), "SHOW log_statement") == [("all",)]
        assert rows(server.url(), "SELECT 'find me'") == [("find me",)]
        assert "find me" in server.log_tail()
    with pytest.raises(ValueError, match="listen_addresses"):
        EmbeddedPostgres(root, settings={"listen_addresses": "*"})


def test_the_url_does_not_depend_on_the_clients_environment(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGUSER", "somebody")
    with EmbeddedPostgres(root, settings=UNSAFE) as server:
        assert rows(server.url(), "SELECT current_user") == [("postgres",)]


def test_a_server_that_does_not_start_says_why_and_holds_nothing(root: Path) -> None:
    broken = EmbeddedPostgres(root, settings={"shared_buffers": "plenty"})
    with pytest.raises(SetupError, match='invalid value for parameter "shared_buffers"'):
        broken.acquire()
    server = EmbeddedPostgres(root, settings=UNSAFE)
    server.acquire()
    assert server.release()


def test_a_creation_that_was_killed_is_begun_again(root: Path) -> None:
    unfinished = root / "initdb-killed"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    root.chmod(0o711)
    with EmbeddedPostgres(root, settings=UNSAFE) as server:
        assert rows(server.url(), "SELECT 1") == [(1,)]
    assert not unfinished.exists()


def test_a_long_root_gets_its_socket_in_a_short_private_directory(home: Path) -> None:
    root = home / ("a long, 'quoted' \"name\" $HOME " * 4) / ("x" * 100) / "postgres"
    server = EmbeddedPostgres(root, settings=UNSAFE)
    with server:
        assert rows(server.url(), "SELECT 1") == [(1,)]
        short = socket_directory(root)
        assert short.parent == Path("/tmp")
        assert short.stat().st_mode & 0o077 == 0
    with server:  # and finds it again
        assert rows(server.url(), "SELECT 1") == [(1,)]
    short.rmdir()


@pytest.mark.parametrize("trap", ["open directory", "link"])
def test_a_socket_directory_that_someone_laid_in_wait_is_refused(home: Path, trap: str) -> None:
    root = home / ("x" * 120)
    root.mkdir(mode=0o711)
    short = socket_directory(root)
    if trap == "link":
        short.symlink_to(home)
    else:
        short.mkdir()
        short.chmod(0o777)
    try:
        with pytest.raises(SetupError, match="isn't a private directory"):
            EmbeddedPostgres(root, settings=UNSAFE).acquire()
    finally:
        short.unlink() if trap == "link" else short.rmdir()


# --- what can be missing


def test_missing_binaries_are_named_with_the_way_to_install_them(home: Path) -> None:
    copy_launcher(home / "package")
    program = HOLDER.replace(
        "server.acquire()",
        "try: server.acquire()\nexcept Exception as e: sys.exit(e.code + e.hint)",
    )
    bare = subprocess.run(
        [sys.executable, "-S", "-c", program, str(home / "postgres")],
        env={"PYTHONPATH": str(home / "package")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert bare.stderr.startswith("setup_errorIn a checkout: pip install '.[local]'")


def test_a_cluster_of_another_major_version_is_refused_and_left_as_it_is(root: Path) -> None:
    with EmbeddedPostgres(root, settings=UNSAFE):
        pass
    (root / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(SetupError, match=r"made by Postgres 17; the installed binaries are 18"):
        EmbeddedPostgres(root, settings=UNSAFE).acquire()
    assert (root / "data" / "PG_VERSION").read_text() == "17\n"


def test_a_directory_that_is_no_cluster_is_refused(root: Path) -> None:
    (root / "data").mkdir(parents=True)
    root.chmod(0o711)
    with pytest.raises(SetupError, match="not a Postgres data directory"):
        EmbeddedPostgres(root, settings=UNSAFE).acquire()


def test_a_root_that_cannot_be_made_is_a_setup_error(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(SetupError, match="can't be set up"):
        EmbeddedPostgres(home / "file" / "postgres").acquire()


# --- sharing


def test_the_server_stops_when_the_last_process_ends_and_not_before(root: Path) -> None:
    mine = EmbeddedPostgres(root, settings=UNSAFE)
    with holder(root) as first, holder(root) as second:
        mine.acquire()
        url = first.url
        assert url == second.url == mine.url()
        server = postmaster_of(root)
        assert first.end() == "left running"
        assert not mine.release()
        assert rows(url, "SELECT 1") == [(1,)]
        assert second.end() == "stopped"
    assert wait_until_gone(server, timeout=0)
    assert not mine.release()


@pytest.mark.slow
def test_four_processes_that_start_at_once_share_one_server(root: Path) -> None:
    with holder(root) as a, holder(root) as b, holder(root) as c, holder(root) as d:
        holders = [a, b, c, d]
        assert len({each.url for each in holders}) == 1
        server = postmaster_of(root)
        assert [each.end() for each in holders] == ["left running"] * 3 + ["stopped"]
    assert wait_until_gone(server, timeout=0)


def test_the_server_of_a_killed_process_is_joined_and_then_stopped(root: Path) -> None:
    with holder(root) as killed:
        url = killed.url
        run(url, "CREATE TABLE kept AS SELECT 1 AS value")
        server = postmaster_of(root)
        killed.kill()
    assert rows(url, "SELECT value FROM kept") == [(1,)]
    mine = EmbeddedPostgres(root, settings=UNSAFE)
    mine.acquire()
    assert postmaster_of(root) == server
    assert mine.release()
    assert wait_until_gone(server, timeout=0)


# --- recovering


def test_a_killed_server_comes_back_with_every_committed_row(root: Path) -> None:
    with EmbeddedPostgres(root, settings=UNSAFE) as server:
        run(server.url(), "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS value")
        killed = postmaster_of(root)
        os.kill(killed, signal.SIGKILL)
        server.acquire()
        assert postmaster_of(root) != killed
        assert rows(server.url(), "SELECT sum(value) FROM kept") == [(500500,)]
        assert server.release()


@pytest.mark.slow
def test_a_killed_server_comes_back_although_a_backend_outlives_it(root: Path) -> None:
    busy = "SELECT count(*) FROM generate_series(1, 5000000) a WHERE md5(a::text) = ''"
    with EmbeddedPostgres(root, settings=UNSAFE) as server:
        connection = psycopg.connect(server.url(), autocommit=True)
        backend = connection.info.backend_pid
        thread = threading.Thread(target=_to_its_end, args=(connection, busy))
        thread.start()
        state = f"SELECT state FROM pg_stat_activity WHERE pid = {backend}"
        while rows(server.url(), state) != [("active",)]:
            pass
        os.kill(postmaster_of(root), signal.SIGKILL)
        server.acquire()
        assert wait_until_gone(backend, timeout=0)
        assert rows(server.url(), "SELECT 1") == [(1,)]
        thread.join()
        connection.close()


def _to_its_end(connection: psycopg.Connection, query: str) -> None:
    with suppress(psycopg.OperationalError):
        connection.execute(query)


@pytest.mark.parametrize("state", ["zombie", "stranger", "nonsense"])
def test_lock_files_that_name_no_postmaster_do_not_hinder_a_start(root: Path, state: str) -> None:
    with EmbeddedPostgres(root, settings=UNSAFE):
        pid_file = (root / "data" / "postmaster.pid").read_text().splitlines()
    with subprocess.Popen(["/bin/sh", "-c", "exit 0"]) as child:
        if state == "zombie":
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, unreaped
        pid = {"zombie": child.pid, "stranger": os.getpid(), "nonsense": "x"}[state]
        text = "\n".join([str(pid), *pid_file[1:]])
        (root / "data" / "postmaster.pid").write_text(text)
        (root / "run" / ".s.PGSQL.5432.lock").write_text(text)
        with EmbeddedPostgres(root, settings=UNSAFE) as server:
            assert rows(server.url(), "SELECT 1") == [(1,)]
