"""The command `chat`."""

import os
from typing import Annotated

import typer

from memserver.cli.chat.session import Wishes, chat
from memserver.cli.options import ApiKeyOption, UrlOption, server_url
from memserver.client import Client


def chat_command(
    agent: Annotated[str, typer.Argument(help="Its name or id.")],
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="Say this, print the answer, and end.")
    ] = None,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Talk with an agent. One that doesn't exist is made.

    /help lists the commands. Through a pipe each line is a message.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with Client(server_url(url), api_key=api_key) as client:
        chat(client, agent, Wishes(message=message, editor=editor))
