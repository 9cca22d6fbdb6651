"""What a list of tools looks like to a model: JSON text in every form that endpoints take, and plain text.

What is derived from a list is cached by the specs' texts: specs that are built again for every turn cost little.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from memserver.llm.control_tokens import escape_control_tokens, escape_schema
from memserver.messages import JsonObject, JsonValue, ToolSpec, ToolSpecs

TOOLS_HEADING = (
    'Answer with exactly one JSON object, {"tool": the name, "arguments": its arguments}, '
    "and nothing else. The tools:"
)
"""What the list of tools in a system message starts with."""
MOST_KNOWN = 2_000
_OPENED_BY = frozenset(
    {"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"}
)
_NO_STRICT = frozenset({"patternProperties", "allOf", "oneOf", "not", "if", "dependentSchemas"})
_Extra = Mapping[str, Any] | None
_Key = tuple[str, str, str]
_known_lists: dict[tuple[int, ...], tuple[tuple[ToolSpec, ...], tuple[_Key, ...]]] = {}
_known_texts: dict[int, tuple[JsonObject, str]] = {}
_text = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps makes an encoder at each call


def schema_text(parameters: JsonObject) -> str:
    """A schema's JSON text. Schemas don't change, and the same objects come again with every turn."""
    known = _known_texts.get(id(parameters))
    if known is None or known[0] is not parameters:
        if len(_known_texts) >= MOST_KNOWN:
            _known_texts.clear()
        known = _known_texts[id(parameters)] = (parameters, _text(parameters))
    return known[1]


def _keys(tools: ToolSpecs) -> tuple[_Key, ...]:
    """What a list of tools is known by; the same specs come again with every turn."""
    ids = tuple(map(id, tools))
    known = _known_lists.get(ids)
    if known is None:
        if len(_known_lists) >= MOST_KNOWN:
            _known_lists.clear()
        keys = tuple((spec.name, spec.description, schema_text(spec.parameters)) for spec in tools)
        known = _known_lists[ids] = (tuple(tools), keys)  # which keeps the ids theirs
    return known[1]


def _made_once(make: Callable[[list[ToolSpec], JsonObject], str]) -> Callable[..., str]:
    """`make` for each list of tools once. Its specs are as the model may read them."""

    @lru_cache(maxsize=256)
    def known(keys: tuple[_Key, ...], extra: str) -> str:
        specs = [
            ToolSpec(name, escape_control_tokens(description), escape_schema(json.loads(text)))
            for name, description, text in keys
        ]
        return make(specs, json.loads(extra))

    def made(tools: ToolSpecs, extra: _Extra = None) -> str:
        return known(_keys(tools), _text(dict(extra)) if extra else "{}")

    return made


@_made_once
def native_tools_json(tools: list[ToolSpec], _extra: JsonObject) -> str:
    """The JSON text of OpenAI's `tools`, strict, so that vLLM holds the arguments to their schema.

    OpenAI's strict schemas name every property as required; one that may be left out becomes one that
    may be null, and `check_arguments` takes the null away. A schema that can't be written that way (free
    keys, `oneOf`) is sent as it is, without `strict`.
    """
    return _text(list(map(_native_tool, tools)))


@_made_once
def native_tools_text(tools: list[ToolSpec], _extra: JsonObject) -> str:
    """The same as chat templates show it to the model: with blanks, and characters as they are."""
    return json.dumps(list(map(_native_tool, tools)), ensure_ascii=False)


@_made_once
def plain_tools_json(tools: list[ToolSpec], _extra: JsonObject) -> str:
    """`tools` with the schemas as they were given, where `strict` is refused or what it makes of a schema can't be rendered."""
    return _text([_function(spec, _whole(spec.parameters)) for spec in tools])


@_made_once
def response_format_json(tools: list[ToolSpec], extra: JsonObject) -> str:
    """The `response_format` that holds an answer to `answer_schema`; `extra` goes to the root, such as vLLM's x-guidance."""
    return _response_format({**extra, **answer_schema(tools)}, strict=True)


@_made_once
def object_response_format_json(tools: list[ToolSpec], extra: JsonObject) -> str:
    """The `response_format` whose schema's root is one object, for endpoints that refuse `anyOf` there.

    OpenAI's strict mode does: https://developers.openai.com/api/docs/guides/structured-outputs ("Root objects must not
    be anyOf"). The answer's form is the same; only that these arguments are this tool's is left to the check of the
    call. It is strict where each tool's schema can be; what may be left out is null then, as in native tools.
    """
    functions = [_with_own_definitions(_native_tool(spec)["function"]) for spec in tools]
    arguments = [function["parameters"] for function in functions]
    definitions: JsonObject = {}
    for schema in arguments:
        definitions |= schema.pop("$defs", {})
    answer = {
        **extra,
        "type": "object",
        "properties": {
            "tool": {"type": "string", "enum": [function["name"] for function in functions]},
            "arguments": {"anyOf": arguments} if len(arguments) > 1 else arguments[0],
        },
        "required": ["tool", "arguments"],
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }
    return _response_format(answer, strict=all(function.get("strict") for function in functions))


@_made_once
def tools_as_text(tools: list[ToolSpec], _extra: JsonObject) -> str:
    """What the system message says of the tools where no field of the request does (JSON mode)."""
    lines = [TOOLS_HEADING]
    for spec in tools:
        hidden = {"title", "type", "additionalProperties"}
        shown = {name: value for name, value in spec.parameters.items() if name not in hidden}
        described = f": {spec.description}" if spec.description else ""
        arguments = json.dumps(shown, ensure_ascii=False)
        lines.append(f"- {spec.name}{described}\n  arguments: {arguments}")
    return "\n".join(lines)


def answer_schema(tools: ToolSpecs) -> JsonObject:
    """The schema of a JSON answer: any of `{"tool": name, "arguments": that tool's parameters}`.

    Parameters with references in them stand under `$defs`: xgrammar, which vLLM uses, follows a
    reference through objects only, not through the list of `anyOf`.
    """
    parameters = {spec.name: closed_schema(spec.parameters) for spec in tools}
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
    defs = {name: _put_below(parameters[name], _def(name)) for name in sorted(referring)}
    return {"anyOf": answers, **({"$defs": defs} if defs else {})}


def closed_schema(parameters: JsonObject) -> JsonObject:
    """The schema with unnamed arguments refused, where it leaves that open and can be closed."""
    whole = _whole(parameters)
    return whole if _OPENED_BY & parameters.keys() else {**whole, "additionalProperties": False}


def _whole(parameters: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {}, **parameters}


def _response_format(answer: JsonObject, *, strict: bool) -> str:
    schema = {"name": "tool_call", "strict": strict, "schema": answer}
    return _text({"type": "json_schema", "json_schema": schema})


def _function(spec: ToolSpec, parameters: JsonObject, **more: bool) -> JsonObject:
    function = {"name": spec.name, "description": spec.description, "parameters": parameters}
    return {"type": "function", "function": {**function, **more}}


def _native_tool(spec: ToolSpec) -> JsonObject:
    closed = closed_schema(spec.parameters)
    try:
        return _function(spec, _strict(closed), strict=True)
    except _NotStrict:
        return _function(spec, closed)


def _with_own_definitions(function: JsonObject) -> JsonObject:
    """The function, with the tool's name before those of its definitions: two tools may call theirs alike."""
    parameters = function["parameters"]
    if "$defs" not in parameters:
        return function
    mark, own = '"#/$defs/', f'"#/$defs/{function["name"]}.'
    moved = json.loads(json.dumps(parameters).replace(mark, own))
    moved["$defs"] = {f"{function['name']}.{name}": value for name, value in moved["$defs"].items()}
    return {**function, "parameters": moved}


class _NotStrict(Exception):
    """This schema has no form that OpenAI's strict mode takes."""


def _strict(schema: JsonValue) -> JsonValue:
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
        result["additionalProperties"] = False  # which OpenAI wants said of inner objects, too
    return result


def _or_null(schema: JsonValue) -> JsonObject:
    if not isinstance(schema, dict):
        raise _NotStrict
    if isinstance(schema.get("type"), str) and not {"enum", "const"} & schema.keys():
        return {**schema, "type": [schema["type"], "null"]}
    inner = {key: value for key, value in schema.items() if key != "description"}
    said = {"description": schema["description"]} if "description" in schema else {}
    return {"anyOf": [inner, {"type": "null"}], **said}


def _def(name: str) -> str:
    return f"#/$defs/{name.replace('~', '~0').replace('/', '~1')}"


def _refers(schema: JsonValue) -> bool:
    if isinstance(schema, list):
        return any(map(_refers, schema))
    return isinstance(schema, dict) and ("$ref" in schema or any(map(_refers, schema.values())))


def _put_below(schema: JsonValue, root: str) -> JsonValue:
    """The schema with its inner references moved to where it stands inside a larger one."""
    if isinstance(schema, list):
        return [_put_below(member, root) for member in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _put_below(value, root) for key, value in schema.items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = root + reference[1:]
    return moved
