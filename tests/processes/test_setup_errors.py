"""What a user reads when something isn't set up: what is wrong and what to do, and no traceback."""

import socket
import subprocess
from pathlib import Path

import psycopg
import pytest

from memserver.cli.doctor import examine_database
from memserver.storage.migrate import NEWER
from tests.support.embedding_endpoint import EmbeddingEndpoint
from tests.support.http_app import serving
from tests.support.processes import command
from tests.support.server import OneDatabase
from tests.support.servers import settings_for

pytestmark = pytest.mark.slow

NOBODY = "http://127.0.0.1:9"


def assert_reported(done: subprocess.CompletedProcess[str], problem: str, hint: str) -> None:
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    first, *_, last = done.stderr.strip().splitlines()
    assert first.startswith("memserver: ")
    assert problem in first
    assert last.startswith("  ")
    assert hint in last


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_is_taken(folder: Path, workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = settings_for(NOBODY, home=folder, port=port)
        done = command(folder, settings, "serve", "--workers", workers)
    assert_reported(done, f"port {port}: Address already in use", "--port")
    assert not (folder / "postgres").exists()


def test_an_address_that_is_not_ours(folder: Path) -> None:
    done = command(folder, settings_for(NOBODY, home=folder), "serve", "--host", "192.0.2.1")
    assert_reported(done, "Can't listen on 192.0.2.1", "choose another")


def test_a_bad_tool_is_named_with_file_and_line(folder: Path) -> None:
    bad = 'from memserver.tools.function import tool\n\n@tool\ndef f(x):\n    """Do it."""\n'
    (folder / "mine.py").write_text(bad, encoding="utf-8")
    settings = settings_for(NOBODY, home=folder, port=0)
    done = command(folder, settings, "serve", "--tools", "mine")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"no type for its parameter x. ({folder / 'mine.py'}:3)" in done.stderr
    done = command(folder, settings, "serve", "--tools", "nobodys")
    assert_reported(done, "There is no module nobodys", "Install its package")


@pytest.mark.parametrize("arguments", ["serve", "migrate"])
def test_a_database_that_does_not_answer(folder: Path, arguments: str) -> None:
    settings = settings_for(NOBODY, database_url="postgresql://me:secret@127.0.0.1:9/mine", port=0)
    done = command(folder, settings, arguments)
    assert_reported(done, "The database can't be reached", "MEMSERVER_DATABASE_URL")
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    "url",
    [
        "nonsense:secret",
        "postgresql://me:secret@host:port/mine",
        "mysql://me:secret@host/mine",
        "postgresql://me:secret@one:5432,two:0/mine",
    ],
)
def test_a_database_url_that_is_none(folder: Path, url: str) -> None:
    done = command(folder, settings_for(NOBODY, database_url=url, port=0), "serve")
    assert_reported(done, "MEMSERVER_DATABASE_URL", "postgresql://user:password@host")
    assert "secret" not in done.stderr


def test_a_setting_of_the_wrong_kind(folder: Path) -> None:
    done = command(folder, settings_for(NOBODY, port="abc", workers="many"), "serve")
    assert_reported(done, "MEMSERVER_PORT: Input should be a valid integer", "Fix it")
    assert "MEMSERVER_WORKERS: Input should be a valid integer" in done.stderr


def test_an_option_of_the_wrong_kind(folder: Path) -> None:
    done = command(folder, settings_for(NOBODY), "serve", "--port", "abc")
    assert done.returncode == 2
    assert "'--port'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_engine_that_is_not_installed(folder: Path) -> None:
    settings = settings_for(NOBODY, home=folder, port=0)
    del settings["llm_base_url"]
    done = command(folder, settings, "serve")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    *_, problem, hint = done.stderr.strip().splitlines()
    assert problem == "memserver: The local engine isn't installed."
    assert "memserver engine install" in hint


def test_an_embedding_endpoint_without_a_model(folder: Path) -> None:
    settings = settings_for(NOBODY, home=folder, port=0)
    del settings["embedding_model"]
    done = command(folder, settings, "serve")
    assert_reported(done, "MEMSERVER_EMBEDDING_BASE_URL is set", "MEMSERVER_EMBEDDING_MODEL")


def test_an_embedding_endpoint_whose_vectors_can_not_be_stored(folder: Path) -> None:
    endpoint = EmbeddingEndpoint(4096)
    with serving(endpoint.app) as url:
        settings = settings_for(NOBODY, home=folder, port=0, embedding_base_url=f"{url}/v1")
        del settings["embedding_dimension"]
        done = command(folder, settings, "serve")
    assert_reported(done, "at most 4000 can be stored", "MEMSERVER_EMBEDDING_DIMENSION")
    assert not (folder / "postgres").exists()


@pytest.mark.parametrize("name", ["prompts_dir", "llm_tokenizer"])
def test_a_path_that_names_nothing(folder: Path, name: str) -> None:
    settings = settings_for(NOBODY, home=folder, port=0, **{name: folder / "missing"})
    done = command(folder, settings, "serve")
    assert_reported(done, f"MEMSERVER_{name.upper()} names {folder / 'missing'}", "Fix the path")


def test_an_owner_who_may_not_become_the_application_role(
    folder: Path, database: OneDatabase
) -> None:
    with psycopg.connect(database.owner) as connection:
        assert connection.execute("SHOW is_superuser").fetchone() == ("off",)
    done = command(folder, settings_for(NOBODY, database_url=database.owner), "migrate")
    assert_reported(done, "memserver_app", "GRANT memserver_app TO")


@pytest.mark.parametrize("arguments", ["serve", "migrate"])
def test_a_database_that_a_newer_version_has_migrated(
    folder: Path, database: OneDatabase, arguments: str
) -> None:
    with psycopg.connect(database.owner) as connection:
        connection.execute("UPDATE memserver_migrations SET version_num = '9999'")
        connection.execute("UPDATE memserver_compatibility SET oldest = '9999'")
    settings = settings_for(NOBODY, database_url=database.owner, port=0)
    done = command(folder, settings, arguments)
    assert_reported(done, "schema is 9999, newer than this memserver's", "restore the backup")


def test_the_doctor_does_not_advise_to_migrate_a_database_that_is_newer(
    database: OneDatabase,
) -> None:
    with psycopg.connect(database.owner) as connection:
        connection.execute("UPDATE memserver_migrations SET version_num = '9999'")
        connection.execute("UPDATE memserver_compatibility SET oldest = '9999'")
    *_, migrations = examine_database(database.owner, database.app)
    assert (migrations.well, migrations.remedy) == (False, NEWER)
