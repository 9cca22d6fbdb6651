"""The command line: its commands, and how an error of ours ends one."""

import sys

import typer
from pydantic import ValidationError

from memserver.cli.chat.entry import chat_command
from memserver.cli.console import say_error
from memserver.cli.database import migrate, reembed
from memserver.cli.doctor import doctor
from memserver.cli.engine import engine
from memserver.cli.keys import keys, tenants
from memserver.cli.mcp import mcp
from memserver.cli.models import models
from memserver.cli.plugins import ExtensibleGroup
from memserver.cli.serve import serve
from memserver.cli.transfer import export_agent, import_agent, ingest
from memserver.errors import MemserverError

app = typer.Typer(
    cls=ExtensibleGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command("chat")(chat_command)
app.command()(doctor)
app.command()(ingest)
app.command("export")(export_agent)
app.command("import")(import_agent)
app.command()(mcp)
app.command()(migrate)
app.command()(reembed)
app.add_typer(engine, name="engine")
app.add_typer(models, name="models")
app.add_typer(keys, name="keys")
app.add_typer(tenants, name="tenants")


def main() -> None:
    """Run the command; an error of ours is two lines on stderr and exit status 1."""
    try:
        app()
    except MemserverError as error:
        say_error(error)
        sys.exit(1)
    except ValidationError as error:
        for problem in error.errors():
            name = "_".join(["MEMSERVER", *(str(part).upper() for part in problem["loc"])])
            print(f"memserver: {name}: {problem['msg']}", file=sys.stderr)
        print("  Mend it in the environment, in .env or on the command line.", file=sys.stderr)
        sys.exit(1)
