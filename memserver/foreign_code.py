"""Somebody else's code, which may raise anything: a tool's function, a module that is imported, a plug-in."""

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def outcome_of(work: Callable[[], Result]) -> tuple[Result | None, BaseException | None]:
    """What it returns, or what it raised. The broad exception handler of the server is here."""
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001 - somebody else's code may raise anything
        return None, error


def outcome_of_import(load: Callable[[], Result]) -> tuple[Result | None, BaseException | None]:
    """`outcome_of`, for code that is imported: Ctrl-C is still the user's."""
    loaded, error = outcome_of(load)
    if isinstance(error, KeyboardInterrupt):
        raise error
    return loaded, error
