"""The command line: its commands, and how an error of ours ends one."""

import sys
from typing import Annotated, ClassVar

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
        "serve": Listed("memserver.cli.serve:serve", "Serve agents over HTTP.", START),
        "chat": Listed("memserver.cli.chat.entry:chat_command", "Talk with an agent.", START),
        "agents": Listed(
            "memserver.cli.agents:agents", "List, show and delete a server's agents.", AGENTS
        ),
        "ingest": Listed(
            "memserver.cli.transfer:ingest", "Send files to an agent or a collection.", AGENTS
        ),
        "export": Listed(
            "memserver.cli.transfer:export_agent",
            "Write an agent with its whole memory to a file.",
            AGENTS,
        ),
        "import": Listed(
            "memserver.cli.transfer:import_agent", "Make an agent of such a file.", AGENTS
        ),
        "mcp": Listed("memserver.cli.mcp:mcp", "Offer agents' memories as an MCP server.", AGENTS),
        "doctor": Listed(
            "memserver.cli.doctor:doctor", "Find out what is wrong, and how to fix it.", OPERATION
        ),
        "models": Listed(
            "memserver.cli.models:models", "The endpoint's models, and adapters on them.", OPERATION
        ),
        "engine": Listed(
            "memserver.cli.engine:engine",
            "The local model: vLLM on this machine's CPU.",
            OPERATION,
        ),
        "keys": Listed(
            "memserver.cli.keys:keys", "API keys: who may ask the server for what.", OPERATION
        ),
        "tenants": Listed(
            "memserver.cli.keys:tenants", "Tenants, who see nothing of each other.", OPERATION
        ),
        "migrate": Listed(
            "memserver.cli.database:migrate", "Bring the database to the newest schema.", OPERATION
        ),
        "reembed": Listed(
            "memserver.cli.database:reembed",
            "Give collections vectors of the embedding model that is set now.",
            OPERATION,
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
