"""A command whose options are declared once, as the fields of a dataclass. It needs nothing of the server's."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from memserver.errors import InvalidInput

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")


def command_of(
    options: type[Options],
    run: Callable[[Options], None],
    hints: Mapping[str, Any] | None = None,
    defaults: Mapping[str, object] | None = None,
) -> Callable[..., None]:
    """A command whose parameters are the fields of a dataclass; `hints` and `defaults` are those that differ."""

    def command(**given: Any) -> None:  # noqa: ANN401 - as the fields have them
        run(options(**given))

    annotations = {**get_type_hints(options, include_extras=True), **(hints or {})}
    parameters = []
    for field in fields(options):
        own = inspect.Parameter.empty if field.default is MISSING else field.default
        parameters.append(
            inspect.Parameter(
                *(field.name, inspect.Parameter.KEYWORD_ONLY),
                default=(defaults or {}).get(field.name, own),
                annotation=annotations[field.name],
            )
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # typer reads it
    return command


def read_pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """What a repeatable option says. Raises InvalidInput for what is no pair."""
    found: dict[str, str] = {}
    for each in given:
        name, separated, value = each.partition("=")
        if not separated:
            raise InvalidInput(f"{option} {each}: it is key=value.")
        found[name] = value
    return found
