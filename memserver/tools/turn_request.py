"""What a client's request brings to one turn: tools that the client runs, and the form that the answer must have.

Such a tool is described beside the agent's own, and a call of it waits for the client. An answer's form is the schema
of send_message's `message` in that turn, so that any way of asking for calls holds the model to it.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from memserver.errors import InvalidInput, ToolError
from memserver.llm.bounded_schema import check_bounds
from memserver.llm.tool_arguments import check_schema
from memserver.messages import JsonObject, JsonValue, TokenUsage, ToolSpec
from memserver.text import is_within
from memserver.tools.memory_tools import SEND_MESSAGE
from memserver.tools.parameters import check_parameters
from memserver.tools.tool import RunnableTool, SpecStyle, ToolContext, call_schema

MOST_TOOLS = 128
MOST_BYTES = 128_000
"""Of all tools of a request as JSON."""
MOST_DESCRIBED = 4_000
"""Characters of a tool's description."""
MOST_KNOWN = 64
"""Requests' tools, and forms, that are remembered: a client sends the same ones with every request."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LITERAL = frozenset({"const", "default", "enum", "examples"})
_WHOLE_FORM = "answer"

Check = Callable[[JsonObject], object]


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What one request brings; it holds until the turn has ended, or another request continues it.

    Attributes:
        tools: with the parameters that the client knows.
        choice: auto; or required: a tool of these has to be called; or the name of the one that has to be.
        form: the JSON schema of the answer; None: it is plain text.
        form_field: where the request has it, for errors.
        results: of calls that wait, by the call's id, which came with the request. They are not stored with it.
        ends_with_result: a result is the last thing in the request.
        names: of all tools that requests have brought to the turn.
        since: the steps and tokens of the turn before this request.
    """

    tools: tuple[ToolSpec, ...] = ()
    choice: str = "auto"
    form: JsonObject | None = None
    form_field: str = "response_format"
    results: Mapping[str, str] = field(default_factory=dict)
    ends_with_result: bool = False
    names: tuple[str, ...] = ()
    since: Mapping[str, int] = field(default_factory=dict)

    def stored(self) -> JsonObject | None:
        """As the turn has it; None if there is nothing to have. Schemas are texts, as the database orders an object's names."""
        if not self.is_new:
            return None
        tools = [
            {"name": each.name, "description": each.description, "parameters": each.parameters}
            for each in self.tools
        ]
        names = [each.name for each in self.tools]
        form = {} if self.form is None else {"form": json.dumps(self.form)}
        return {"tools": json.dumps(tools), "choice": self.choice, "names": names, **form}

    @classmethod
    def of(cls, stored: JsonObject | None) -> "TurnRequest":
        if stored is None:
            return NO_REQUEST
        return cls(
            tools=_specs(stored.get("tools", "[]")),
            choice=stored.get("choice", "auto"),
            form=json.loads(stored["form"]) if "form" in stored else None,
            names=tuple(stored.get("names", ())),
            since=stored.get("since", {}),
        )

    @property
    def usage_before(self) -> TokenUsage:
        return TokenUsage(**{name: value for name, value in self.since.items() if name != "steps"})

    @property
    def is_new(self) -> bool:
        """Whether the turn's tools are others than the agent's."""
        return bool(self.tools) or self.form is not None

    def add_to(
        self, tools: Mapping[str, RunnableTool], style: SpecStyle
    ) -> Mapping[str, RunnableTool]:
        """The agent's tools with those of the request, which come before others of the same name."""
        if not self.is_new:
            return tools
        more = _client_tools(json.dumps(self.stored()), style)
        if self.form is not None:
            send = tools[SEND_MESSAGE]
            form, parameters = json.dumps(self.form), json.dumps(send.spec.parameters)
            spec = _in_form(send.spec.name, send.spec.description, parameters, form)
            more = {**more, SEND_MESSAGE: replace(send, spec=spec)}
        return {**tools, **more}

    def offered(self, names: Collection[str], *, last: bool) -> set[str]:
        """Which of the tools that may be called are offered where one of the request's has to be called.

        The agent's own are there beside it, but for the one that answers, until the last step.
        """
        wanted = {each.name for each in self.tools if self.choice in ("required", each.name)}
        others = {SEND_MESSAGE, *self.names} - wanted
        return wanted if last else set(names) - others


NO_REQUEST = TurnRequest()


def check_tools(request: TurnRequest, taken: Collection[str]) -> None:
    """Check a request's tools and form, as those are checked that are registered. Call it in a thread.

    The schemas are as the client sent them; its tools can't have the names that are `taken`.

    Raises:
        InvalidInput: what is wrong, and where.
    """
    if len(request.tools) > MOST_TOOLS:
        raise InvalidInput(f"tools: there may be {MOST_TOOLS}, these are {len(request.tools)}.")
    names: set[str] = set()
    size = 0
    for number, tool in enumerate(request.tools):
        with_place = _Place(f"tools[{number}]")
        if not _NAME.fullmatch(tool.name):
            raise with_place("name: 1 to 64 of the characters a-z, A-Z, 0-9, _ and - are wanted.")
        if tool.name in taken:
            raise with_place(
                f"name: the agent has a tool {tool.name} of its own.", hint="Rename the client's."
            )
        if tool.name in names:
            raise with_place(f"name: there is another tool {tool.name}.")
        if len(tool.description) > MOST_DESCRIBED:
            raise with_place(f"description: it may have {MOST_DESCRIBED} characters.")
        names.add(tool.name)
        size += len(tool.description) + with_place.check(tool.parameters, check_parameters)
        if size > MOST_BYTES:
            raise InvalidInput(f"tools: they have more than {MOST_BYTES} bytes together.")
    if request.form is not None:
        _Place(request.form_field).check(request.form, _check_form)


class _Place:
    def __init__(self, place: str) -> None:
        self._place = place

    def __call__(self, words: str, hint: str = "") -> InvalidInput:
        return InvalidInput(f"{self._place}: {words}", hint=hint)

    def check(self, schema: JsonObject, check: "Check") -> int:
        """Returns how large the schema is."""
        if not is_within(schema, MOST_BYTES):
            raise self(f"the schema has more than {MOST_BYTES} bytes.")
        try:
            text = json.dumps(schema, allow_nan=False)
        except (ValueError, RecursionError) as error:
            raise self("the schema holds what JSON can't, or nests too deep.") from error
        fault = _fault_of(text, check)
        if fault is not None:
            raise self(fault)
        return len(text)


@lru_cache(maxsize=128)
def _fault_of(text: str, check: "Check") -> str | None:
    """What is wrong with a schema; a client sends the same ones with every request."""
    try:
        check(json.loads(text))
    except InvalidInput as error:
        return error.message
    return None


def _check_form(form: JsonObject) -> None:
    check_bounds(form)
    check_schema(_in_form("json_schema", "", '{"properties": {"message": {}}}', json.dumps(form)))


@lru_cache(maxsize=MOST_KNOWN)
def _specs(tools: str) -> tuple[ToolSpec, ...]:
    """The same ones as in the turn before, which caches know by their identity."""
    return tuple(ToolSpec(**each) for each in json.loads(tools))


@lru_cache(maxsize=MOST_KNOWN)
def _client_tools(stored: str, style: SpecStyle) -> Mapping[str, RunnableTool]:
    specs = TurnRequest.of(json.loads(stored)).tools
    return {each.name: style.apply(_client_tool(each)) for each in specs}


def _client_tool(spec: ToolSpec) -> RunnableTool:
    async def run(context: ToolContext, /, **_: object) -> object:  # noqa: ARG001 - every tool takes it
        raise ToolError("This tool is run by the caller.")

    # What follows a result is the client's to have: no heartbeat has to ask for it.
    called = replace(spec, parameters=call_schema(spec.parameters, heartbeat=False))
    return RunnableTool(called, run, kind="client", attached=False)


@lru_cache(maxsize=MOST_KNOWN)
def _in_form(name: str, description: str, parameters: str, form: str) -> ToolSpec:
    """send_message, where its message has this form. It is the turn's last: it can't ask for another step."""
    message, definitions = _inner_schema(json.loads(form))
    taken = json.loads(parameters)
    properties = {
        name: message if name == "message" else schema
        for name, schema in taken["properties"].items()
        if name != "request_heartbeat"
    }
    schema = {
        **taken,
        "type": "object",
        "properties": properties,
        "required": ["message"],
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }
    described = f"{description} The message is your whole answer, as JSON of its schema."
    return ToolSpec(name, described, schema)


def _inner_schema(form: JsonObject) -> tuple[JsonObject, JsonObject]:
    """A schema that stands inside another one, and the definitions that it needs at the root."""
    whole = {name: value for name, value in form.items() if name not in ("$schema", "$id")}
    definitions = {**whole.pop("definitions", {}), **whole.pop("$defs", {})}
    own = _WHOLE_FORM
    while own in definitions:
        own += "_"
    used: set[str] = set()

    def moved(reference: str) -> str:
        for kept in ("#/$defs/", "#/definitions/"):
            if reference.startswith(kept):
                return f"#/$defs/{reference.removeprefix(kept)}"
        used.add(own)
        return f"#/$defs/{own}{reference[1:]}"

    whole, definitions = _refer(whole, moved), _refer(definitions, moved)
    if used:
        return {"$ref": f"#/$defs/{own}"}, {**definitions, own: whole}
    return whole, definitions


def _refer(schema: JsonValue, moved: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(schema, list):
        return [_refer(each, moved) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: moved(value)
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else value
        if key in _LITERAL
        else _refer(value, moved)
        for key, value in schema.items()
    }
