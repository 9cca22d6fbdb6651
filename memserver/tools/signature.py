"""What a function takes, as the schema that a model sees and the values that the function gets.

Owns type hints and docstrings. Leaves to `registry` what a tool is, and to `function` what users write.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from docstring_parser import Docstring, ParseError, parse
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticInvalidForJsonSchema,
    PydanticUserError,
    ValidationError,
    create_model,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from memserver.errors import SetupError, ToolError
from memserver.messages import RESERVED, JsonObject

LONGEST_TOOL_NAME = 64
TOOL_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{LONGEST_TOOL_NAME - 1}}}")
"""What OpenAI's API takes as a tool's name."""
_MOST_PROBLEMS = 3


class _Schema(GenerateJsonSchema):
    """A default that is no JSON is left out without a warning: the model doesn't need it."""

    ignored_warning_kinds: ClassVar[set[JsonSchemaWarningKind]] = {  # type: ignore[misc]
        "skipped-choice",
        "non-serializable-default",
    }


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes: JSON schema of the arguments, and the parameter that takes the context, if there is one."""

    name: str
    description: str
    schema: JsonObject
    injected: str | None
    _model: type[BaseModel]

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function's types have them: dataclasses, models, dates.

        Raises:
            ToolError: they don't fit; the message says what the model has to change.
        """
        try:
            model = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            problems = [
                f"The argument {'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}."
                for problem in error.errors(include_url=False)[:_MOST_PROBLEMS]
            ]
            raise ToolError(" ".join(problems)) from error
        return {
            str(field.alias): getattr(model, name)
            for name, field in self._model.model_fields.items()
            if name in model.model_fields_set
        }


def place_of(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


def read_signature(
    function: Callable[..., Any], *, name: str | None = None, context: type | None = None
) -> Signature:
    """Read a function's name, docstring and typed parameters; the one of the type `context` is injected, not in the schema.

    Raises:
        SetupError: it can't be a tool; the message names file and line.
    """
    tool = str(name or getattr(function, "__name__", ""))
    place = place_of(function)

    def refuse(reason: str, hint: str = "") -> SetupError:
        return SetupError(f"The tool {tool or '?'} {reason} ({place})", hint=hint)

    if not TOOL_NAME.fullmatch(tool):
        raise refuse("has a name that is none for a tool: letters, digits, _ and -, at most 64.")
    if not inspect.isfunction(function):
        raise refuse("is no function.", "Decorate a plain def or async def.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise refuse(
            "is a generator, but a call has one result, which is stored when it ends.",
            "Return a list, or the texts joined.",
        )
    described = _docstring(function)
    if not described.description:
        raise refuse("has no docstring to tell the model what it does.")
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise refuse(f"has a type hint that can't be read: {error}.") from error
    descriptions = {each.arg_name: each.description or "" for each in described.params}
    injected = next(
        (each.name for each in parameters.values() if context and each.annotation is context), None
    )
    own = [each for each in parameters.values() if each.name != injected]
    for problem in filter(None, map(_problem, own)):
        raise refuse(problem)
    # The model's field names are ours: a parameter may be called json, copy or model_config.
    fields = {f"p{place}": _field(each, descriptions) for place, each in enumerate(own)}
    unknown = set(descriptions) - set(parameters)
    if unknown:
        raise refuse(f"describes {', '.join(sorted(unknown))}, which it has no parameter of.")
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        model = create_model(tool, __config__=config, **fields)
        shown = model.model_json_schema(by_alias=True, schema_generator=_Schema)
    except (PydanticUserError, PydanticInvalidForJsonSchema) as error:
        raise refuse(f"has a type that a model can't be shown: {error.message}.") from error
    return Signature(tool, described.description.strip(), drop_titles(shown), injected, model)


def drop_titles(schema: Any) -> Any:  # noqa: ANN401 - a JSON schema is any JSON
    """The schema without the titles that pydantic makes of names, which tell a model nothing."""
    if isinstance(schema, dict):
        return {
            key: drop_titles(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
    if isinstance(schema, list):
        return [drop_titles(item) for item in schema]
    return schema


def _problem(parameter: inspect.Parameter) -> str:
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        return f"takes *{parameter.name}, but a model calls with named arguments only."
    if parameter.kind is parameter.POSITIONAL_ONLY:
        return f"has the positional-only parameter {parameter.name}."
    if parameter.annotation is parameter.empty:
        return f"has no type for its parameter {parameter.name}."
    if parameter.name in RESERVED:
        return f"can't have a parameter named {parameter.name}."
    return ""


def _field(parameter: inspect.Parameter, descriptions: Mapping[str, str]) -> Any:  # noqa: ANN401 - pydantic's
    default = ... if parameter.default is parameter.empty else parameter.default
    if descriptions.get(parameter.name):
        described = Field(default, alias=parameter.name, description=descriptions[parameter.name])
    else:
        described = Field(default, alias=parameter.name)
    return parameter.annotation, described


def _docstring(function: Callable[..., Any]) -> Docstring:
    """Of whichever style (Google, NumPy, Sphinx) finds most in it."""
    try:
        return parse(inspect.getdoc(function) or "")
    except ParseError:
        return Docstring()
