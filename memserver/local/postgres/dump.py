"""Dumps of the embedded Postgres, in pg_dump's custom format, by the programs of the package that serves it."""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from memserver.errors import SetupError
from memserver.local.postgres.account import PLAIN_ENVIRONMENT
from memserver.local.postgres.binaries import PostgresBinaries

MAGIC = b"PGDMP"
LOOK_SECONDS = 0.2
_SERVER = re.compile(r"^; +Dumped from database version: (\d+)", re.MULTILINE)
_REVISION = re.compile(r"^COPY \S*memserver_migrations .*\n(\S+)$", re.MULTILINE)
Command = Sequence[str | Path]
Progress = Callable[[int], None]
"""Gets the bytes of the file that are written or read so far, again and again."""


def dump(binaries: PostgresBinaries, url: str, file: Path, progress: Progress) -> None:
    """Write a database, as it is at this moment, to a file, which has its name only when it is whole.

    Raises:
        SetupError: pg_dump failed.
        OSError: the file can't be written.
    """
    part = file.with_name(f"{file.name}.part")
    command: Command = [binaries.program("pg_dump"), "--format=custom", "--dbname", url]
    with part.open("xb") as out:
        try:
            _run(command, "backed up", out, progress, stdout=out)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)


def restore(binaries: PostgresBinaries, url: str, file: Path, progress: Progress) -> None:
    """Fill an empty database with what a dump has: all of it, or nothing.

    Raises:
        SetupError: pg_restore failed.
        OSError: the file can't be read.
    """
    options = ["--single-transaction", "--exit-on-error", "--dbname", url]
    with file.open("rb") as source:
        _run([binaries.program("pg_restore"), *options], "restored", source, progress, stdin=source)


def revision_of(binaries: PostgresBinaries, file: Path) -> str:
    """The revision of memserver's schema that a dump has.

    Raises:
        SetupError: it is no dump of memserver's, or of a newer Postgres.
        OSError: it can't be read.
    """
    with file.open("rb") as source:
        is_dump = source.read(len(MAGIC)) == MAGIC
    program: Command = [binaries.program("pg_restore"), "--file=-"]
    head = _read([*program, "--list", file]) if is_dump else ""
    made_by = _SERVER.search(head)
    if made_by and int(made_by[1]) > int(binaries.major):
        raise SetupError(
            f"{file} was made by Postgres {made_by[1]}; the one here is {binaries.major}.",
            hint="Restore it with the memserver that made it, or a newer one.",
        )
    migrations: Command = [*program, "--data-only", "--table=memserver_migrations", file]
    found = _REVISION.search(_read(migrations)) if made_by else None
    if found is None:
        raise SetupError(
            f"{file} is no backup of memserver's, or a part of it is missing.",
            hint="`memserver backup` makes one, and so does pg_dump with --format=custom.",
        )
    return found[1]


def _read(command: Command) -> str:
    return subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=PLAIN_ENVIRONMENT,
    ).stdout


def _run(
    command: Command,
    done: str,
    file: IO[bytes],
    progress: Progress,
    *,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    stdout: IO[bytes] | int = subprocess.DEVNULL,
) -> None:
    """Run it to its end. How far it is shows where it stands in the file, which it shares with us."""
    with tempfile.TemporaryFile() as errors:
        run = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=errors, env=PLAIN_ENVIRONMENT
        )
        try:
            while run.poll() is None:
                progress(os.lseek(file.fileno(), 0, os.SEEK_CUR))
                try:
                    run.wait(LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            run.kill()
            run.wait()
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace").strip()[-2000:]
    if run.returncode:
        raise SetupError(
            f"The database can't be {done}: {said}", hint="Fix what it names, and try again."
        )
