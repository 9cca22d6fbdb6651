"""Modules that are imported when they are used: torch and trl take ten seconds, in every process that collects tests."""

from importlib import import_module
from typing import Any


class Lazy:
    """Stands for a module, and has what it has."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_mock_name":  # pytest looks whether it is a test
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


def lazy(name: str) -> Any:
    """The module of this name."""
    return Lazy(name)
