"""The commands: ours, imported only when they run, and those that packages add.

Each entry point of the group `memserver.commands` is a command, by its name:

    [project.entry-points."memserver.commands"]
    eval = "memserver_evals.cli.main:app"

names a `typer.Typer`: with one command it becomes `memserver eval`, with several it becomes a group of them.
A package is imported when its command runs, and for the list of `memserver --help`. One that can't be
imported is listed with the reason, and disturbs no other command.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

from memserver.errors import SetupError
from memserver.foreign_code import outcome_of_import

GROUP = "memserver.commands"
OTHERS = "From other packages"
"""The panel of commands that name none."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A command of ours; `target` is MODULE:NAME below memserver.cli of a function, or of a `typer.Typer` with several commands."""

    target: str
    panel: str
    help: str

    def load(self, name: str) -> Any:  # noqa: ANN401 - typer's command
        module, _, attribute = self.target.partition(":")
        found = getattr(import_module(f"memserver.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            return _give_name(typer.main.get_group(found), name)
        app = typer.Typer(add_completion=False)
        app.command(name)(found)
        return typer.main.get_command(app)


class ExtensibleGroup(TyperGroup):
    own: ClassVar[Mapping[str, Listed]] = {}

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.own, *sorted(_plugins().keys() - self.own.keys())]

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What the list of commands shows: of ours the line alone."""
        if listed := self.own.get(cmd_name):
            return _line(cmd_name, listed.help, listed.panel)
        point = _plugins().get(cmd_name)
        if point is None:
            return None
        try:
            command = _load(point)
        except SetupError as error:
            return _line(cmd_name, f"Can't be used. {error.message}", OTHERS)
        command.rich_help_panel = command.rich_help_panel or OTHERS
        return command

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is run. Raises SetupError where a package's can't be."""
        name = args[0]
        if listed := self.own.get(name):
            return name, listed.load(name), args[1:]
        if point := _plugins().get(name):
            return name, _load(point), args[1:]
        self.commands = {
            each: _line(each, "", "") for each in self.list_commands(ctx)
        }  # may be meant
        return super().resolve_command(ctx, args)


def _line(name: str, help_: str, panel: str) -> TyperCommand:
    return TyperCommand(name, help=help_, rich_help_panel=panel)


def _give_name(command: Any, name: str) -> Any:  # noqa: ANN401 - typer's command
    command.name = name
    return command


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _load(point: EntryPoint) -> Any:  # noqa: ANN401 - typer's command
    """The command that a package brings. Raises SetupError where it brings none."""
    found, error = outcome_of_import(point.load)
    if error is not None:
        why = f"{type(error).__name__}: {error}"
        raise SetupError(
            f"The command {point.name} of {point.value} can't be loaded: {why}",
            hint="Install what it needs, or remove the package that brings it.",
        ) from error
    if not isinstance(found, typer.Typer):
        raise SetupError(
            f"The command {point.name} is {point.value}, which is no typer.Typer.",
            hint="Name a typer.Typer in the package's entry point.",
        )
    return _give_name(typer.main.get_command(found), point.name)
