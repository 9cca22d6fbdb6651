"""What commands print to: people, in a terminal or through a pipe."""

import sys

from rich.console import Console

from memserver.errors import MemserverError

console = Console(highlight=False, soft_wrap=True, markup=False)


def say_error(error: MemserverError) -> None:
    """An error as a person reads it."""
    print(f"memserver: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"  {error.hint}", file=sys.stderr)
