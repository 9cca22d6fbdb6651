"""Under which account the embedded Postgres runs, and who may use it: real accounts, real rights."""

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from memserver.errors import SetupError
from memserver.local.postgres.account import Account, run_as
from memserver.local.postgres.binaries import usable_binaries
from memserver.local.postgres.embedded import EmbeddedPostgres
from tests.memserver.local.postgres.embedded import (
    HOLDER,
    UNSAFE,
    as_root,
    copy_launcher,
    holder,
    postmaster_of,
    rows,
    run,
)


@as_root
def test_root_runs_the_server_under_an_unprivileged_account_of_its_own(root: Path) -> None:
    with EmbeddedPostgres(root, settings=UNSAFE):
        owner = (root / "data").stat().st_uid
        assert owner not in {entry.pw_uid for entry in pwd.getpwall()}
        assert Path(f"/proc/{postmaster_of(root)}").stat().st_uid == owner


@as_root
def test_a_home_closed_to_others_stays_closed_and_keeps_its_cluster_elsewhere(home: Path) -> None:
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    root, elsewhere = closed / "share" / "postgres", home / "system"

    def server() -> EmbeddedPostgres:
        return EmbeddedPostgres(root, settings=UNSAFE, system_home=elsewhere)

    with server() as first:
        run(first.url(), "CREATE TABLE kept AS SELECT 1 AS value")
    with server() as second:
        assert rows(second.url(), "SELECT value FROM kept") == [(1,)]
    assert closed.stat().st_mode & 0o777 == 0o700

    place = Path((root / "location").read_text().strip())
    assert place.parent == elsewhere
    place.rename(home / "away")
    with pytest.raises(SetupError, match="that directory is gone"):
        server().acquire()

    shutil.rmtree(root)  # who deletes the home begins again
    (home / "away").rename(place)
    with server() as fresh, pytest.raises(psycopg.errors.UndefinedTable):
        rows(fresh.url(), "SELECT value FROM kept")


@as_root
@pytest.mark.slow
def test_binaries_that_the_account_cannot_read_are_copied_once(home: Path, root: Path) -> None:
    closed = home / "closed"
    _copy_package(closed)
    closed.chmod(0o700)
    copies = []
    for _ in range(2):
        with holder(root, environment={"PYTHONPATH": str(closed)}) as user:
            assert rows(user.url, "SELECT 1") == [(1,)]
            copies += [(path, path.stat().st_mtime_ns) for path in root.glob("binaries-*")]
            assert user.end() == "stopped"
    assert len(copies) == 2
    assert copies[0] == copies[1]


@as_root
@pytest.mark.slow
def test_an_ordinary_user_has_a_server_too_and_root_may_join_it(home: Path) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    python = _python_for(Account(nobody, nobody))
    _copy_package(home / "package")
    root = home / "users" / "postgres"
    root.parent.mkdir()
    os.chown(root.parent, nobody, nobody)
    with holder(
        root, python=python, user=nobody, environment={"PYTHONPATH": str(home / "package")}
    ) as user:
        assert rows(user.url, "SELECT current_user") == [("postgres",)]
        assert (root / "data").stat().st_uid == nobody
        with EmbeddedPostgres(root, settings=UNSAFE) as mine:
            assert rows(mine.url(), "SELECT 1") == [(1,)]
        assert user.end() == "stopped"


@as_root
@pytest.mark.slow
def test_an_ordinary_user_learns_that_a_database_is_not_theirs(home: Path) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    python = _python_for(Account(nobody, nobody))
    _copy_package(home / "package")
    with EmbeddedPostgres(home / "postgres", settings=UNSAFE):
        pass
    refused = subprocess.run(
        [str(python), "-c", HOLDER, str(home / "postgres")],
        env={"PYTHONPATH": str(home / "package")},
        user=nobody,
        group=nobody,
        extra_groups=[],
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert "SetupError" in refused.stderr


def _copy_package(target: Path) -> None:
    """The launcher and the binaries."""
    copy_launcher(target)
    ignored = shutil.ignore_patterns("__pycache__")
    package = usable_binaries(target, None).tree.parent
    shutil.copytree(package, target / package.name, ignore=ignored)
    (target / package.name / "__init__.py").write_text("raise ImportError('never import it')")
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)


def _python_for(account: Account) -> Path:
    """An interpreter that the account can run; that of the tests often lies under /root."""
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    for candidate in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        try:
            if run_as(account, candidate, "-c", check).returncode == 0:
                return Path(candidate)
        except OSError:
            continue
    pytest.skip("no Python 3.11 that an ordinary user can run")
