"""Tools and forms of answers that clients send with a request, the results that they send back, and calls as they read them.

A call of such a tool ends the answer to one request; the request with its result continues the same turn.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from memserver.agent.call_answers import CallAnswer, is_of_request
from memserver.agent.events import End, PausedTurn
from memserver.agent.rendering import Happening
from memserver.api.openai.errors import refuse_again
from memserver.errors import Conflict, InvalidInput, NotFound
from memserver.messages import RESERVED, FunctionCall, JsonObject, TokenUsage, ToolSpec
from memserver.storage import calls
from memserver.storage.agents import AgentRow
from memserver.storage.inbox import TurnRow
from memserver.text import checked_json
from memserver.tools.foreign import cut
from memserver.tools.turn_request import TurnRequest, check_tools
from memserver.wire.agents import AgentOptions
from memserver.wiring.services import Services

_OWN_TOOLS = "An agent's own tools are attached by PUT /v1/agents/{agent}/tools/{name}."
_CHOICES = "auto, none, required, a function or allowed_tools"
_LATE = "result of a call whose turn had ended"
_IDLE = ("nothing_to_do", "nothing_to_save")


def read_tools(tools: Sequence[JsonObject] | None, choice: Any) -> TurnRequest:  # noqa: ANN401 - JSON
    """A request's tools, in the form of chat completions or of responses. Raises InvalidInput."""
    specs = tuple(_read_tool(tool, f"tools[{number}]") for number, tool in enumerate(tools or ()))
    names = {spec.name for spec in specs}
    if choice == "none":
        return TurnRequest()
    if choice in (None, "auto"):
        return TurnRequest(specs)
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        choice = choice.get("allowed_tools", choice)
        listed = choice.get("tools") if isinstance(choice, dict) else None
        if not isinstance(listed, list):
            raise InvalidInput("tool_choice: a list of allowed tools is wanted.")
        allowed = [_name_of(each) for each in listed]
        specs = tuple(spec for spec in specs if spec.name in allowed)
        choice, names = choice.get("mode", "auto"), {spec.name for spec in specs}
    if isinstance(choice, dict) and choice.get("type") == "function":
        name = str(_name_of(choice))
        if name not in names:
            raise InvalidInput(f"tool_choice: the request has no tool {name[:100]!r}.")
        return TurnRequest(specs, choice=name)
    if choice not in ("auto", "required"):
        raise InvalidInput(f"tool_choice: {_CHOICES} is wanted.")
    if choice == "required" and not specs:
        raise InvalidInput("tool_choice: the request has no tools of which one could be called.")
    return TurnRequest(specs, choice=choice)


def read_form(form: object, place: str) -> JsonObject | None:
    """The schema that the answer must have; None for plain text. Raises InvalidInput."""
    kind = form.get("type") if isinstance(form, dict) else None
    if form is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema" or not isinstance(form, dict):
        raise InvalidInput(f"{place}.type: text, json_object or json_schema is wanted.")
    named = form.get("json_schema", form)
    schema = named.get("schema") if isinstance(named, dict) else None
    if not isinstance(schema, dict):
        raise InvalidInput(f"{place}: a JSON schema is wanted as its schema.")
    described = named.get("description")
    said = {"description": described} if isinstance(described, str) else {}
    cleaned: JsonObject = _clean({**said, **schema}, place)
    return cleaned


async def check_request(services: Services, agent: AgentRow, request: TurnRequest) -> None:
    """Check that the agent's turn can have what the request brings. Raises InvalidInput."""
    if not request.is_new:
        return
    if AgentOptions.model_validate(agent.options).reply_mode == "chat":
        what = request.form_field if request.form is not None else "tools"
        raise InvalidInput(
            f"{what}: the agent {agent.name} answers in plain chat, without tools (its option reply_mode).",
            hint=f'Leave {what} out, or give the agent the option reply_mode: "tools".',
        )
    own = {each.spec.name for each in services.deps.tools.server_tools() if each.kind == "memory"}
    await asyncio.to_thread(check_tools, request, own | set(_IDLE))


def refuse_without_memory(request: TurnRequest) -> None:
    """Refuse tools and forms where nothing is remembered, since there is no turn then. Raises InvalidInput."""
    if request.is_new:
        what = "tools" if request.tools else request.form_field
        raise InvalidInput(
            f"{what}: an answer that is not remembered is plain text.",
            hint="Send X-Memserver-Remember: true to have the agent answer.",
        )


async def continue_turn(
    services: Services, tenant: str, agent: AgentRow, request: TurnRequest, key: str | None
) -> tuple[TurnRow, int]:
    """Give the agent a result of a call of its own; the same one may come again.

    A result of a call that was given up meanwhile, and one that comes again after its turn has failed, begin a new turn.

    Returns:
        The turn, and the position after which lies what follows.

    Raises:
        InvalidInput: the agent has made none of the calls.
        Refusal: the call has another result already, or wants none.
    """
    for call_id, text in request.results.items():
        result = cut(text, services.deps.limits.calls.characters)
        digest = hashlib.sha256(f"{call_id}\0{result}".encode()).hexdigest()
        answer, stored_key = CallAnswer("client", True, result), key or f"openai-result-{digest}"
        try:
            turn, before = await services.conversation.answer(
                tenant, agent.id, call_id, answer, key=stored_key, request=request
            )
        except NotFound:
            continue
        except Conflict as error:
            await _check_given_up(services, tenant, agent, call_id, error)
            event_key: str | None = stored_key
        else:
            if turn.state != "failed":
                return turn, before + 1
            event_key = key
        turn = await services.conversation.post_event(
            tenant, agent.id, Happening(_LATE, result), key=event_key, request=request
        )
        return turn, 0
    raise InvalidInput(
        "messages: the last message is a tool's result, but the agent has made no call "
        f"{' or '.join(request.results)[:200]!r}.",
        hint="A result has the id that the call had in the agent's answer. Results of other tools are not read.",
    )


async def _check_given_up(
    services: Services, tenant: str, agent: AgentRow, call_id: str, error: Conflict
) -> None:
    """Check that a call that takes no result was given up. Raises Refusal, as the error has it."""
    async with services.database.tenant(tenant) as tx:
        call = await calls.get(tx, agent.id, call_id)
    given = call.record.answer or {}
    if "state" in given or not (given.get("superseded") or given.get("expired")):
        raise refuse_again(error) from error


def function_call(ended: End, turn: TurnRow) -> FunctionCall | None:
    """The call that the client has to run, if the answer ends with one."""
    if not (isinstance(ended, PausedTurn) and is_of_request(ended.message, turn)):
        return None
    assert ended.message.call is not None
    return ended.message.call.call


def arguments_of(call: FunctionCall) -> str:
    """Its arguments as the client's tool has them, as JSON text."""
    given = {name: value for name, value in call.arguments.items() if name not in RESERVED}
    return json.dumps(given, ensure_ascii=False)


def usage_of(ended: End, turn: TurnRow) -> TokenUsage:
    """Tokens that the answer took, without those of requests before it in the same turn."""
    return ended.usage - TurnRequest.of(turn.request).usage_before


def _read_tool(tool: JsonObject, place: str) -> ToolSpec:
    if tool.get("type", "function") != "function":
        kind = str(tool.get("type"))[:100]
        raise InvalidInput(
            f"{place}.type: functions can be sent, not {kind!r}.",
            hint=f"Leave the tool out. {_OWN_TOOLS}",
        )
    function = tool.get("function", tool)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidInput(f"{place}: a function with a name is wanted.")
    described, parameters = function.get("description") or "", function.get("parameters") or {}
    if not isinstance(described, str) or not isinstance(parameters, dict):
        raise InvalidInput(f"{place}: the description is a text, and parameters a JSON schema.")
    parameters = {"type": "object", "properties": {}, **parameters}
    known = _clean({"description": described, "parameters": parameters}, place)
    return ToolSpec(function["name"], known["description"], known["parameters"])


def _name_of(tool: object) -> object:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    return function.get("name") if isinstance(function, Mapping) else None


def _clean(value: JsonObject, place: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return checked_json(value)
    except ValueError as error:
        raise InvalidInput(f"{place}: {error}.") from error
