"""Commands that packages add: each entry point of the group `memserver.commands` is one, by its name.

    [project.entry-points."memserver.commands"]
    eval = "memserver_evals.cli.main:app"

names a `typer.Typer`: with one command it becomes `memserver eval`, with several it becomes a group of them.
A package is imported when its command runs, and for the list of `memserver --help`.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from memserver.errors import SetupError

GROUP = "memserver.commands"


class ExtensibleGroup(TyperGroup):
    """Our own commands, then those of packages, in the order of their names."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *sorted(_plugins().keys() - set(own))]

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        point = _plugins().get(cmd_name)
        if own is not None or point is None:
            return own
        command = typer.main.get_command(_load(point))
        command.name = cmd_name
        return command


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _load(point: EntryPoint) -> typer.Typer:
    """The commands that a package brings. Raises SetupError where it brings none."""
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        raise SetupError(
            f"The command {point.name} of {point.value} can't be loaded: {error}",
            hint="Install what it needs, or remove the package that brings it.",
        ) from error
    if not isinstance(found, typer.Typer):
        raise SetupError(
            f"The command {point.name} is {point.value}, which is no typer.Typer.",
            hint="Name a typer.Typer in the package's entry point.",
        )
    return found
