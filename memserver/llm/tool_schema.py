"""What a tool looks like to a model, and whether a call's arguments fit it.

Owns the wire forms of a list of tools (native `tools`, and the schema of a JSON answer) and the check
of arguments. Leaves to `reply_parser` how a call is found in a reply, and to `memserver.tools` where a
schema comes from. What is derived from a spec is cached by the spec's text, so that specs that are
built anew for every turn cost one `json.dumps` each.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from jsonschema.exceptions import ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from memserver.errors import InvalidInput, ProtocolViolation
from memserver.llm.bounded_schema import check_bounds, check_is_schema
from memserver.llm.bounded_validator import BoundedValidator
from memserver.llm.coercion import coerce
from memserver.llm.control_tokens import escape_control_tokens, escape_schema, restore_arguments
from memserver.llm.forgiving import forgiven, misfits
from memserver.messages import JsonObject, ToolSpec

TOOLS_HEADING = (
    'Answer with exactly one JSON object, {"tool": the name, "arguments": its arguments}, '
    "and nothing else. The tools:"
)
"""What the list of tools in a system message starts with."""
_OPENED_BY = frozenset(
    {"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"}
)
_NO_STRICT = frozenset({"patternProperties", "allOf", "oneOf", "not", "if", "dependentSchemas"})
_NO_REMOTE: Registry[Any] = Registry()
"""Resolves references inside a schema only: a tool's schema must not make the server fetch a URL."""
_TOLD_AT_ONCE = 3


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

    Lossless changes are made, to top-level arguments (`memserver.llm.coercion`), and where they don't fit
    then, what is of no use is left out (`memserver.llm.forgiving`).

    Raises:
        ProtocolViolation: they do not fit; the message tells the model what to change.
        InvalidInput: the tool's own schema is broken.
    """
    text = _known_text(spec.parameters)
    arguments = restore_arguments(arguments, text)
    validator = _validator(text, spec.name)
    properties = spec.parameters.get("properties", {})
    required = spec.parameters.get("required", ())
    try:
        fitted = {
            name: coerce(value, properties.get(name, True))
            for name, value in arguments.items()
            if name in required or value is not None or not _is_left_out(validator, name)
        }
        errors = misfits(spec, fitted, validator)
        if errors:
            fitted = dict(forgiven(spec, fitted, validator))
            errors = misfits(spec, fitted, validator)
    except RecursionError as error:
        raise ProtocolViolation(
            f"The arguments of {spec.name} nest too deep. Make a simpler call."
        ) from error
    except (Unresolvable, ArithmeticError) as error:
        raise InvalidInput(f"The schema of the tool {spec.name} can't be used: {error}") from error
    if errors:
        sentences = dict.fromkeys(_sentence(spec, error) for error in errors)
        raise ProtocolViolation(" ".join(list(sentences)[:_TOLD_AT_ONCE]))
    return fitted


def native_tools_json(tools: Sequence[ToolSpec]) -> str:
    """The JSON text of OpenAI's `tools`, strict, so that vLLM holds the arguments to their schema.

    OpenAI's strict schemas name every property as required; one that may be left out becomes one that
    may be null, and `check_arguments` takes the null away. A schema that can't be told that way (free
    keys, `oneOf`) is sent as it is, without `strict`.
    """
    return _native_tools(_keys(tools))


def native_tools_text(tools: Sequence[ToolSpec]) -> str:
    """The same as chat templates show it to the model: with blanks, and characters as they are."""
    return _native_text(_keys(tools))


def answer_schema(tools: Sequence[ToolSpec]) -> JsonObject:
    """The schema of a JSON answer: any of `{"tool": name, "arguments": that tool's parameters}`.

    Parameters with references in them stand under `$defs`: xgrammar, which vLLM uses, follows a
    reference through objects only, not through the list of `anyOf`.
    """
    parameters = {spec.name: _closed(spec.parameters) for spec in tools}
    referring = {name for name, schema in parameters.items() if _refers(schema)}
    answers = [
        {
            "type": "object",
            "properties": {
                "tool": {"const": name},
                "arguments": {"$ref": _def(name)} if name in referring else schema,
            },
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        }
        for name, schema in parameters.items()
    ]
    defs = {name: _rooted(parameters[name], _def(name)) for name in sorted(referring)}
    return {"anyOf": answers, **({"$defs": defs} if defs else {})}


def response_format_json(tools: Sequence[ToolSpec], extra: Mapping[str, Any] | None = None) -> str:
    """The JSON text of the `response_format` that holds an answer to `answer_schema`.

    Args:
        tools: what may be called.
        extra: more for the schema's root, such as vLLM's x-guidance.
    """
    return _response_format(_keys(tools), json.dumps(dict(extra or {})))


def tools_as_text(tools: Sequence[ToolSpec]) -> str:
    """What the system message says of the tools where the endpoint is not told of them (JSON mode)."""
    return _tools_as_text(_keys(tools))


_Key = tuple[str, str, str]


def _keys(tools: Sequence[ToolSpec]) -> tuple[_Key, ...]:
    return tuple((spec.name, spec.description, _known_text(spec.parameters)) for spec in tools)


_known_texts: dict[int, tuple[JsonObject, str]] = {}
MOST_KNOWN = 2_000


def _known_text(parameters: JsonObject) -> str:
    """A schema's JSON text. Schemas don't change, and the same objects come again with every turn."""
    known = _known_texts.get(id(parameters))
    if known is None or known[0] is not parameters:
        if len(_known_texts) >= MOST_KNOWN:
            _known_texts.clear()
        known = _known_texts[id(parameters)] = (parameters, _text(parameters))
    return known[1]


def _specs(keys: tuple[_Key, ...]) -> list[ToolSpec]:
    return [
        ToolSpec(name, escape_control_tokens(description), escape_schema(json.loads(text)))
        for name, description, text in keys
    ]


_text = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps makes an encoder at each call


@lru_cache(maxsize=256)
def _native_tools(keys: tuple[_Key, ...]) -> str:
    return json.dumps([_native_tool(spec) for spec in _specs(keys)], separators=(",", ":"))


@lru_cache(maxsize=256)
def _native_text(keys: tuple[_Key, ...]) -> str:
    return json.dumps(json.loads(_native_tools(keys)), ensure_ascii=False)


@lru_cache(maxsize=256)
def _response_format(keys: tuple[_Key, ...], extra: str) -> str:
    answer = {**json.loads(extra), **answer_schema(_specs(keys))}
    schema = {"name": "tool_call", "strict": True, "schema": answer}
    return json.dumps({"type": "json_schema", "json_schema": schema}, separators=(",", ":"))


@lru_cache(maxsize=256)
def _tools_as_text(keys: tuple[_Key, ...]) -> str:
    lines = [TOOLS_HEADING]
    for spec in _specs(keys):
        shown = {
            name: value for name, value in spec.parameters.items() if name not in {"title", "type"}
        }
        shown.pop("additionalProperties", None)
        described = f": {spec.description}" if spec.description else ""
        lines.append(
            f"- {spec.name}{described}\n  arguments: {json.dumps(shown, ensure_ascii=False)}"
        )
    return "\n".join(lines)


@lru_cache(maxsize=1024)
def _validator(text: str, name: str) -> Any:  # noqa: ANN401 - a class that is made
    schema = json.loads(text)
    with _naming(name):
        check_bounds(schema)
    return BoundedValidator(_closed(schema), registry=_NO_REMOTE)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidInput as error:
        message = f"The schema of the tool {name} can't be used: {error.message}"
        raise InvalidInput(message) from error


def _closed(parameters: JsonObject) -> JsonObject:
    """The schema with unnamed arguments refused, where it leaves that open and can be closed."""
    whole = {"type": "object", "properties": {}, **parameters}
    return whole if _OPENED_BY & parameters.keys() else {**whole, "additionalProperties": False}


def _native_tool(spec: ToolSpec) -> JsonObject:
    function: JsonObject = {"name": spec.name, "description": spec.description}
    try:
        function |= {"parameters": _strict(_closed(spec.parameters)), "strict": True}
    except _NotStrict:
        function |= {"parameters": _closed(spec.parameters)}
    return {"type": "function", "function": function}


class _NotStrict(Exception):
    """This schema has no form that OpenAI's strict mode takes."""


def _strict(schema: Any) -> Any:  # noqa: ANN401 - a schema, or any value inside one
    if not isinstance(schema, dict):
        return schema
    if _NO_STRICT & schema.keys():
        raise _NotStrict
    result = {key: value for key, value in schema.items() if key not in {"title", "default"}}
    for key in ("items", "additionalProperties"):
        if key in result:
            result[key] = _strict(result[key])
    if "anyOf" in result:
        result["anyOf"] = [_strict(member) for member in result["anyOf"]]
    if "$defs" in result:
        result["$defs"] = {name: _strict(value) for name, value in result["$defs"].items()}
    if result.get("type") == "object":
        if result.get("additionalProperties", "properties" not in result) is not False:
            raise _NotStrict
        needed = result.get("required", ())
        result["properties"] = {
            name: _strict(value) if name in needed else _or_null(_strict(value))
            for name, value in result.get("properties", {}).items()
        }
        result["required"] = list(result["properties"])
    return result


def _or_null(schema: Any) -> JsonObject:  # noqa: ANN401 - a schema may also be a bare boolean
    if not isinstance(schema, dict):
        raise _NotStrict
    if isinstance(schema.get("type"), str) and not {"enum", "const"} & schema.keys():
        return {**schema, "type": [schema["type"], "null"]}
    inner = {key: value for key, value in schema.items() if key != "description"}
    said = {"description": schema["description"]} if "description" in schema else {}
    return {"anyOf": [inner, {"type": "null"}], **said}


def _def(name: str) -> str:
    return f"#/$defs/{name.replace('~', '~0').replace('/', '~1')}"


def _refers(schema: Any) -> bool:  # noqa: ANN401 - a schema, or any value inside one
    if isinstance(schema, list):
        return any(map(_refers, schema))
    return isinstance(schema, dict) and ("$ref" in schema or any(map(_refers, schema.values())))


def _rooted(schema: Any, root: str) -> Any:  # noqa: ANN401 - a schema, or any value inside one
    """The schema with its inner references moved to where it stands inside a larger one."""
    if isinstance(schema, list):
        return [_rooted(member, root) for member in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _rooted(value, root) for key, value in schema.items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = root + reference[1:]
    return moved


def _is_left_out(validator: Any, name: str) -> bool:  # noqa: ANN401 - a class that is made
    """Whether a null stands for an argument left out: one with a schema that takes no null.

    The argument's schema is looked at inside the whole one, which its references point into.
    """
    whole = validator.schema
    properties = whole.get("properties", {}) if isinstance(whole, Mapping) else {}
    return name in properties and not validator.evolve(schema=properties[name]).is_valid(None)


def _sentence(spec: ToolSpec, error: ValidationError) -> str:
    tell = _TELLERS.get(str(error.validator))
    if tell is not None and (error.path or error.validator in {"required", "additionalProperties"}):
        return tell(spec, error)
    return f"{_where(spec, error)} does not fit: {_short(error.message)}."


def _where(spec: ToolSpec, error: ValidationError) -> str:
    path = _short(".".join(str(part) for part in error.absolute_path))
    return f"The argument {path} of {spec.name}" if path else f"The call of {spec.name}"


def _tell_missing(spec: ToolSpec, error: ValidationError) -> str:
    given = error.instance if isinstance(error.instance, dict) else {}
    missing = " and ".join(name for name in _values(error) if name not in given)
    inside = _short("".join(f" inside {part}" for part in error.absolute_path))
    return f"{spec.name} needs the argument {missing}{inside}: call it again with it."


def _tell_extra(spec: ToolSpec, error: ValidationError) -> str:
    known = (error.schema or {}).get("properties", {}) if isinstance(error.schema, dict) else {}
    given = error.instance if isinstance(error.instance, dict) else {}
    extra = _short(", ".join(_short(name) for name in given if name not in known), 160)
    takes = f"it takes {_short(', '.join(known), 300)}" if known else "it takes none"
    return f"{spec.name} has no argument {extra}; {takes}."


def _tell_type(spec: ToolSpec, error: ValidationError) -> str:
    wanted = " or ".join(_values(error))
    return (
        f"{_where(spec, error)} must be of type {wanted}, not {_short(json.dumps(error.instance))}."
    )


def _tell_choice(spec: ToolSpec, error: ValidationError) -> str:
    return f"{_where(spec, error)} must be one of: {_short(', '.join(_values(error)), 300)}."


def _values(error: ValidationError) -> list[str]:
    said = error.validator_value
    return [str(value) for value in said] if isinstance(said, list) else [str(said)]


def _tell_too_long(spec: ToolSpec, error: ValidationError) -> str:
    length = len(str(error.instance))
    return f"{_where(spec, error)} has {length} characters; at most {error.validator_value} are allowed."


_TELLERS: dict[str, Callable[[ToolSpec, ValidationError], str]] = {
    "required": _tell_missing,
    "additionalProperties": _tell_extra,
    "type": _tell_type,
    "enum": _tell_choice,
    "maxLength": _tell_too_long,
}


def _short(text: object, limit: int = 80) -> str:
    shown = str(text)
    return shown if len(shown) <= limit else shown[:limit] + "…"
