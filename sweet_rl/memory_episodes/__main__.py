"""`python -m sweet_rl.memory_episodes`."""

import sys

import typer

from memserver.errors import MemserverError
from sweet_rl.memory_episodes.commands import app
from sweet_rl.resumable import EXIT_STATUS, OutOfTime


def main() -> None:
    """Run a command; what is wrong is said in a line."""
    try:
        app()
    except MemserverError as error:
        typer.echo(f"{error.message} {error.hint or ''}".strip(), err=True)
        sys.exit(EXIT_STATUS if isinstance(error, OutOfTime) else 1)


if __name__ == "__main__":
    main()
