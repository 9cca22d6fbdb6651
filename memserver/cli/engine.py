"""The command `engine`: the local model's engine."""

import typer

from memserver.cli.console import console, show_progress
from memserver.cli.options import read_settings
from memserver.local.engine.install import TORCH_INDEX, install_engine

engine = typer.Typer(no_args_is_help=True, help="The local model: vLLM on this machine's CPU.")


@engine.command("install")
def engine_install() -> None:
    """Install the local model's engine in an environment of its own; quick when it is there."""
    settings = read_settings()
    with show_progress() as show:
        install_engine(
            settings.home,
            say=console.print,
            show=show,
            torch_index=settings.torch_index or TORCH_INDEX,
        )
