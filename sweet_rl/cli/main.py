"""The command `memserver train`, which joins by the entry point group `memserver.commands`."""

import typer

from memserver.errors import SetupError, install_extra

app = typer.Typer()


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    rich_help_panel="Research",
)
def train(context: typer.Context) -> None:
    """Train a policy by SWEET-RL and its baselines, and compare them."""
    try:
        from sweet_rl.cli.commands import commands  # noqa: PLC0415 - a second long, and extras
    except ImportError as error:
        raise SetupError(
            f"Training needs packages that aren't installed: {error}", hint=install_extra("train")
        ) from error
    commands(context.args or ["--help"], prog_name="memserver train")
