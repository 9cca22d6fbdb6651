"""The command `chat`."""

import os
from typing import Annotated

import typer

from memserver.cli.options import read_settings


def chat_command(
    agent: Annotated[str, typer.Argument(help="The agent's name or id.")],
    create: Annotated[bool, typer.Option("--create", help="Make the agent if need be.")] = False,
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="Say this, print the answer, and end.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Of the server; left out: on this machine, at its port.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(envvar="MEMSERVER_API_KEY")] = None,
) -> None:
    """Talk with an agent; /help lists the commands. Through a pipe each line is a message."""
    from memserver.cli.chat.session import Wishes, chat  # noqa: PLC0415 - half a second of each start
    from memserver.client import Client  # noqa: PLC0415 - the same

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    here = f"http://127.0.0.1:{read_settings().port}"
    with Client(url or os.environ.get("MEMSERVER_URL") or here, api_key=api_key) as client:
        chat(client, agent, Wishes(create=create, message=message, editor=editor))
