"""The commands `export` and `import`: agents' files from and to a running server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from memserver.cli.options import ApiKeyOption, UrlOption
from memserver.cli.running_server import connect, find_agent
from memserver.errors import InvalidInput

IMPORT_SECONDS = 24 * 3600
"""An import answers when all is stored."""


def export_agent(
    agent: Annotated[str, typer.Argument(help="Name or id.")],
    file: Annotated[Path, typer.Argument(help="To be written, such as sam.zip.")],
    history: Annotated[
        bool, typer.Option(help="Every version of the working context, not only the last.")
    ] = False,
    vectors: Annotated[
        bool, typer.Option(help="The passages' vectors, so that they need not be made again.")
    ] = False,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Write an agent with its whole memory to a file."""
    with connect(url, api_key) as client, _report_unreadable(f"{file}: "):
        found = find_agent(client, agent)
        client.agents.export(found.id, file, history=history, vectors=vectors)
    print(f"{file}: {file.stat().st_size} bytes")


def import_agent(
    file: Annotated[
        Path,
        typer.Argument(
            help="Of `memserver export`, Letta's (.af), ChatGPT's or Claude's export, or messages as JSON."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Instead of the file's.")] = None,
    keep_ids: Annotated[
        bool, typer.Option(help="The agent and its passages keep the file's ids.")
    ] = False,
    into: Annotated[
        str | None,
        typer.Option(help="An agent that is there, into whose history chats come; name or id."),
    ] = None,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Make an agent of such a file, on a running server.

    All of it is made or nothing.
    """
    with connect(url, api_key, IMPORT_SECONDS) as client, _report_unreadable(f"{file}: "):
        existing = find_agent(client, into).id if into else None
        made = client.agents.import_file(file, name=name, keep_ids=keep_ids, into=existing)
    counts = f"{made.messages} messages, {made.passages} passages"
    print(f"{made.agent.name} ({made.agent.id}): {counts}")
    for note in made.not_carried:
        what = f"{note.kind} {note.name}".rstrip()
        print(f"not carried: {what}: {note.reason}")


@contextmanager
def _report_unreadable(prefix: str) -> Iterator[None]:
    """What can't be read or written on this machine is an error of the command's input."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"{prefix}{error.strerror}.") from error
