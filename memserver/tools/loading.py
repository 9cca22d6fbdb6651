"""Finding the tools that packages bring: by entry point, or by name."""

import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from types import ModuleType

from memserver.errors import SetupError
from memserver.foreign_code import outcome_of_import
from memserver.tools.function import MARK, FunctionTool
from memserver.tools.tool import RunnableTool

GROUP = "memserver.tools"
"""Entry points of this group name a module that holds decorated functions."""


def load_tools(names: Sequence[str], *, taken: Iterable[str] = ()) -> list[RunnableTool]:
    """The decorated functions of installed packages that register them, and of modules or packages by name.

    Names in `taken` are those of tools that there are already. The working directory is looked into as well.

    Raises:
        SetupError: a module can't be imported or has no tools, or a tool is wrong or named as another
            one is; the message names file and line.
    """
    modules = {each.module for each in entry_points(group=GROUP)}
    if names and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: dict[str, FunctionTool] = {}
    known = set(taken)
    for module_name in [*sorted(modules - set(names)), *names]:
        for each in _tools_of(_import(module_name)):
            name = each.tool.spec.name
            before = found.get(name)
            if before is not None and before.place == each.place:
                continue
            if before is not None or name in known:
                where = before.place if before else "memserver itself"
                raise SetupError(
                    f"There are two tools named {name}: at {each.place} and at {where}.",
                    hint="Rename one: @tool(name=…).",
                )
            found[name] = each
    return [each.tool for each in found.values()]


def _import(name: str) -> ModuleType:
    module, error = outcome_of_import(lambda: importlib.import_module(name))
    if module is not None:
        return module
    if isinstance(error, SetupError):
        raise error
    if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
        raise SetupError(
            f"There is no module {name} to take tools from.",
            hint="Install its package, or start in the folder that holds it.",
        ) from error
    raise SetupError(
        f"The tools of {name} can't be imported: {type(error).__name__}: {error} ({_place(error)})"
    ) from error


def _place(error: BaseException | None) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__ if error else None)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "no place"


def _tools_of(module: ModuleType) -> list[FunctionTool]:
    inside = [
        each
        for name, each in sorted(sys.modules.items())
        if name == module.__name__ or name.startswith(f"{module.__name__}.")
    ]
    found: dict[str, FunctionTool] = {}
    for each in inside:
        for value in vars(each).values():
            made = getattr(value, MARK, None) if callable(value) else None
            if isinstance(made, FunctionTool):
                found.setdefault(f"{made.place} {made.tool.spec.name}", made)
    if not found:
        raise SetupError(
            f"The module {module.__name__} has no tools.",
            hint="Decorate a function with memserver.tools.function.tool, and import its module there.",
        )
    return list(found.values())
