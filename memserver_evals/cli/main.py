"""The command `memserver eval`, which joins by the entry point group `memserver.commands`."""

import signal
import sys

import typer

from memserver.errors import SetupError, install_extra

app = typer.Typer()


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    rich_help_panel="Research",
)
def evaluate(context: typer.Context) -> None:
    """Evaluate memories: list the tasks, run one, compare two runs."""
    try:
        from memserver_evals.cli.commands import make_commands  # noqa: PLC0415 - a second long
    except ImportError as error:
        raise SetupError(
            f"Evaluations need packages that aren't installed: {error}", hint=install_extra("eval")
        ) from error

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    make_commands()(context.args or ["--help"], prog_name="memserver eval")
