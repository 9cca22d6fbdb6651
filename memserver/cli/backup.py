"""The commands `backup` and `restore`: the embedded Postgres, with all that there is in it, to a file and back."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from memserver.cli.console import console
from memserver.cli.options import read_settings
from memserver.errors import InvalidInput, SetupError
from memserver.local.postgres import dump
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.storage.inspect import inspect
from memserver.storage.migrate import NEWER, newest_revision, prepare_embedded
from memserver.wiring.database import EMBEDDED_DATABASE


def backup(
    file: Annotated[
        Path | None, typer.Argument(help="To be written; left out: named after the time.")
    ] = None,
) -> None:
    """Write the embedded database to a file: all tenants and agents.

    The server may run meanwhile; the file is of one moment.
    """
    file = file or Path(f"memserver-{datetime.now(UTC):%Y%m%d-%H%M%S}.dump")
    if file.exists():
        raise InvalidInput(f"{file} is there already.", hint="Name another file, or move it away.")
    with _embedded() as server, _reported(file, "backing up", None) as progress:
        if inspect(server.url(EMBEDDED_DATABASE)).revision is None:
            raise SetupError(
                "There is nothing to back up.", hint="Is MEMSERVER_HOME that of the server?"
            )
        dump.dump(server.binaries(), server.url(EMBEDDED_DATABASE), file, progress)
    print(f"{file}: {file.stat().st_size} bytes")


def restore(
    file: Annotated[Path, typer.Argument(help="Of `memserver backup`.", exists=True)],
) -> None:
    """Fill the empty database of a new home with a backup.

    A backup of an older memserver is migrated when this one serves it.
    """
    with _embedded() as server, _reported(file, "restoring", file.stat().st_size) as progress:
        url, binaries = server.url(EMBEDDED_DATABASE), server.binaries()
        revision, newest = dump.revision_of(binaries, file), newest_revision()
        if revision > newest:
            raise SetupError(
                f"{file} has the schema {revision}, newer than this memserver's, which is {newest}.",
                hint=NEWER.partition(",")[0] + ".",
            )
        if inspect(url).revision is not None:
            raise SetupError(
                "There is a database in this home already.",
                hint="Set MEMSERVER_HOME to an empty directory, or move this one's `postgres` away.",
            )
        dump.restore(binaries, url, file, progress)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ANALYZE")
    print(f"Restored {file}, schema {revision}. `memserver serve` serves it.")


@contextmanager
def _embedded() -> Iterator[EmbeddedPostgres]:
    settings = read_settings()
    if settings.database_url is not None:
        raise SetupError(
            "MEMSERVER_DATABASE_URL names a database that is not the embedded one.",
            hint="Back it up by pg_dump --format=custom, or as its server is backed up.",
        )
    with EmbeddedPostgres(settings.home / "postgres") as server:
        prepare_embedded(server.url(), EMBEDDED_DATABASE)
        yield server


@contextmanager
def _reported(file: Path, doing: str, total: int | None) -> Iterator[dump.Progress]:
    """A bar in a terminal; what can't be read or written is an error of the command's input."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    try:
        with Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        ) as bar:
            task = bar.add_task(doing, total=total)
            yield lambda so_far: bar.update(task, completed=so_far)
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}.") from error
