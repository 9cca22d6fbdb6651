"""The command line: its commands, and how an error of ours ends one."""

import sys
from io import TextIOWrapper
from typing import Annotated, ClassVar, cast

import typer
from pydantic import ValidationError

from memserver import __version__
from memserver.cli.console import say_error
from memserver.cli.plugins import ExtensibleGroup, Listed
from memserver.errors import MemserverError

START = "Start here"
AGENTS = "Agents and their data"
OPERATION = "Operation"


class Commands(ExtensibleGroup):
    """The commands of the package itself; each line is the first sentence of the command's own help."""

    own: ClassVar = {
        "serve": Listed("serve:serve", START, "Serve agents over HTTP."),
        "chat": Listed("chat.session:chat_command", START, "Talk with an agent."),
        "agents": Listed("agents:agents", AGENTS, "List, show, fork and delete a server's agents."),
        "ingest": Listed(
            "ingest:ingest", AGENTS, "Send files and folders to an agent or a collection."
        ),
        "export": Listed(
            "transfer:export_agent", AGENTS, "Write an agent with its whole memory to a file."
        ),
        "import": Listed("transfer:import_agent", AGENTS, "Make an agent of such a file."),
        "mcp": Listed("mcp:mcp", AGENTS, "Offer agents' memories as an MCP server."),
        "tools": Listed("tools:tools", AGENTS, "List tools, and try one."),
        "doctor": Listed("doctor:doctor", OPERATION, "Find out what is wrong, and how to fix it."),
        "models": Listed(
            "models:models", OPERATION, "The endpoint's models, and adapters on them."
        ),
        "engine": Listed(
            "engine:engine", OPERATION, "The local model: vLLM on this machine's CPU."
        ),
        "keys": Listed("keys:keys", OPERATION, "API keys: who may ask the server for what."),
        "tenants": Listed("keys:tenants", OPERATION, "Tenants, who see nothing of each other."),
        "migrate": Listed(
            "database:migrate", OPERATION, "Bring the database to the newest schema."
        ),
        "backup": Listed(
            "backup:backup",
            OPERATION,
            "Write the embedded database to a file: all tenants and agents.",
        ),
        "restore": Listed(
            "backup:restore", OPERATION, "Fill the empty database of a new home with a backup."
        ),
        "reembed": Listed(
            "database:reembed",
            OPERATION,
            "Give collections vectors of the embedding model that is set now.",
        ),
    }


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"memserver {__version__}")
        raise typer.Exit


@app.callback()
def memserver(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Agents with a memory that does not end, on any language model.

    `memserver serve` starts everything; `memserver chat sam` then talks with the agent sam.
    """


def main() -> None:
    """Run the command; an error of ours is two lines on stderr and exit status 1."""
    for stream in (sys.stdout, sys.stderr):  # names of files may have what a terminal can't show
        cast("TextIOWrapper", stream).reconfigure(errors="backslashreplace")
    try:
        app(prog_name="memserver")
    except MemserverError as error:
        say_error(error)
        sys.exit(1)
    except ValidationError as error:
        for problem in error.errors():
            name = "_".join(["MEMSERVER", *(str(part).upper() for part in problem["loc"])])
            print(f"memserver: {name}: {problem['msg']}", file=sys.stderr)
        print("  Fix it in the environment, in .env or on the command line.", file=sys.stderr)
        sys.exit(1)
