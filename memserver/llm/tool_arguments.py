"""Whether a call's arguments fit their tool's schema, and what is forgiven.

A lossless change of type is made (`coercion`). What no person and no tool reads never costs the call: a thought that is
too long is cut, and one of no use is left out, as is any argument that a forgiving tool doesn't have. Another tool's
unknown arguments are refused unless its schema says something about them: without a dry_run that the model relies on,
another thing would be done than it means. A message is read by a person while it is written, so it counts beyond its
limit. Everything else is a sentence that the model can act on.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from itertools import islice
from typing import Any

from jsonschema.exceptions import ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from memserver.errors import InvalidInput, ProtocolViolation
from memserver.llm.bounded_schema import check_bounds, check_is_schema
from memserver.llm.bounded_validator import BoundedValidator, Validator
from memserver.llm.coercion import coerce
from memserver.llm.control_tokens import restore_arguments
from memserver.llm.tool_names import SPOKEN
from memserver.llm.tool_schema import closed_schema, schema_text
from memserver.messages import RESERVED, JsonObject, JsonValue, ToolSpec

LONGEST_MESSAGE = 20_000
"""Characters of a message that is taken, whatever its schema says."""
_LOOKED_AT = 100
"""Errors of one call; a list of ten thousand wrong members has as many."""
_SHOWN_AT_ONCE = 3
_NO_REMOTE: Registry[Any] = Registry()
"""Resolves references inside a schema only: a tool's schema must not make the server fetch a URL."""


def check_schema(spec: ToolSpec) -> None:
    """Check a tool's schema when the tool is registered.

    Raises:
        InvalidInput: not a JSON schema, not one of an object, or one that takes unbounded work.
    """
    with _naming(spec.name):
        if spec.parameters.get("type", "object") != "object":
            raise InvalidInput("it must be one of type object.")
        check_bounds(spec.parameters)
        check_is_schema(spec.parameters)


def check_arguments(spec: ToolSpec, arguments: JsonObject) -> JsonObject:
    """Check a call's arguments and give them back as the tool will see them.

    Lossless changes are made first; where they don't fit then, what is of no use is left out.

    Raises:
        ProtocolViolation: they do not fit; the message says what the model should change.
        InvalidInput: the tool's own schema is broken.
    """
    text = schema_text(spec.parameters)
    arguments = restore_arguments(arguments, text)
    validator = _validator(text, spec.name)
    properties = spec.parameters.get("properties", {})
    required = spec.parameters.get("required", ())
    try:
        fitted = {
            name: coerce(value, properties.get(name, True), spec.parameters)
            for name, value in arguments.items()
            if name in required or value is not None or not _is_left_out(validator, name)
        }
        errors = _misfits(spec, fitted, validator)
        if errors:
            fitted = dict(_forgive(spec, fitted, validator))
            errors = _misfits(spec, fitted, validator)
        if any(error.instance is None for error in errors):
            shorter = _without_nulls(fitted, errors)
            left = _misfits(spec, shorter, validator)
            if len(left) < len(errors):
                fitted, errors = shorter, left
    except RecursionError as error:
        raise ProtocolViolation(
            f"The arguments of {spec.name} nest too deep. Make a simpler call."
        ) from error
    except (Unresolvable, ArithmeticError) as error:
        raise InvalidInput(f"The schema of the tool {spec.name} can't be used: {error}") from error
    if errors:
        sentences = dict.fromkeys(_sentence(spec, error) for error in errors)
        raise ProtocolViolation(" ".join(list(sentences)[:_SHOWN_AT_ONCE]))
    return fitted


def _forgive(
    spec: ToolSpec, arguments: JsonObject, validator: Validator
) -> Iterator[tuple[str, JsonValue]]:
    properties = spec.parameters.get("properties", {})
    forgiving = spec.forgiving or spec.name == SPOKEN
    for name, value in arguments.items():
        known = properties.get(name)
        if name in RESERVED:
            longest = known.get("maxLength") if isinstance(known, dict) else None
            kept = value[:longest] if isinstance(value, str) else value
            if known is not None and validator.evolve(schema=known).is_valid(kept):
                yield name, kept
        elif known is not None or not forgiving:
            yield name, value


def _without_nulls(arguments: JsonObject, errors: list[ValidationError]) -> JsonObject:
    """The same without nulls inside that are none of the schema's: strict calling has them stand for what is left out."""
    fitted = deepcopy(arguments)
    for error in errors:
        path = list(error.absolute_path)
        parent: Any = fitted
        for step in path[:-1]:
            parent = parent[step]
        if path and error.instance is None and isinstance(parent, dict):
            parent.pop(path[-1], None)
    return fitted


def _misfits(spec: ToolSpec, arguments: JsonObject, validator: Validator) -> list[ValidationError]:
    """What doesn't fit, but for the length of a message that was read already."""
    message = arguments.get("message")
    taken = spec.name == SPOKEN and isinstance(message, str) and len(message) <= LONGEST_MESSAGE
    found = islice(validator.iter_errors(arguments), _LOOKED_AT)
    counting = [
        error
        for error in found
        if not (taken and error.validator == "maxLength" and list(error.path) == ["message"])
    ]
    return sorted(counting, key=lambda error: list(map(str, error.path)))


@lru_cache(maxsize=1024)
def _validator(text: str, name: str) -> Validator:
    schema = json.loads(text)
    with _naming(name):
        check_bounds(schema)
    return BoundedValidator(closed_schema(schema), registry=_NO_REMOTE)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidInput as error:
        message = f"The schema of the tool {name} can't be used: {error.message}"
        raise InvalidInput(message) from error


def _is_left_out(validator: Validator, name: str) -> bool:
    """Whether a null stands for an argument left out: one with a schema that takes no null.

    The argument's schema is looked at inside the whole one, which its references point into.
    """
    whole = validator.schema
    properties = whole.get("properties", {}) if isinstance(whole, Mapping) else {}
    return name in properties and not validator.evolve(schema=properties[name]).is_valid(None)


def _sentence(spec: ToolSpec, error: ValidationError) -> str:
    make = _SENTENCES.get(str(error.validator))
    if make is not None and (error.path or error.validator in {"required", "additionalProperties"}):
        return make(spec, error)
    return f"{_where(spec, error)} does not fit: {_short(error.message)}."


def _where(spec: ToolSpec, error: ValidationError) -> str:
    path = _short(".".join(str(part) for part in error.absolute_path))
    return f"The argument {path} of {spec.name}" if path else f"The call of {spec.name}"


def _missing(spec: ToolSpec, error: ValidationError) -> str:
    given = error.instance if isinstance(error.instance, dict) else {}
    missing = " and ".join(name for name in _values(error) if name not in given)
    inside = _short("".join(f" inside {part}" for part in error.absolute_path))
    return f"{spec.name} needs the argument {missing}{inside}: call it again with it."


def _extra(spec: ToolSpec, error: ValidationError) -> str:
    known = (error.schema or {}).get("properties", {}) if isinstance(error.schema, dict) else {}
    given = error.instance if isinstance(error.instance, dict) else {}
    extra = _short(", ".join(_short(name) for name in given if name not in known), 160)
    takes = f"it takes {_short(', '.join(known), 300)}" if known else "it takes none"
    return f"{spec.name} has no argument {extra}; {takes}."


def _of_type(spec: ToolSpec, error: ValidationError) -> str:
    wanted = " or ".join(_values(error))
    return (
        f"{_where(spec, error)} must be of type {wanted}, not {_short(json.dumps(error.instance))}."
    )


def _of_choice(spec: ToolSpec, error: ValidationError) -> str:
    return f"{_where(spec, error)} must be one of: {_short(', '.join(_values(error)), 300)}."


def _values(error: ValidationError) -> list[str]:
    said = error.validator_value
    return [str(value) for value in said] if isinstance(said, list) else [str(said)]


def _too_long(spec: ToolSpec, error: ValidationError) -> str:
    length = len(str(error.instance))
    return f"{_where(spec, error)} has {length} characters; at most {error.validator_value} are allowed."


_SENTENCES: dict[str, Callable[[ToolSpec, ValidationError], str]] = {
    "required": _missing,
    "additionalProperties": _extra,
    "type": _of_type,
    "enum": _of_choice,
    "maxLength": _too_long,
}


def _short(text: object, limit: int = 80) -> str:
    shown = str(text)
    return shown if len(shown) <= limit else shown[:limit] + "…"
