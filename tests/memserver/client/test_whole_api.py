"""The client has a method for each route, and its values are those of the API's schema."""

import inspect
import re
from functools import cache
from types import ModuleType
from typing import Any, get_args
from uuid import UUID

import pytest
from pydantic import BaseModel

from memserver.api.app import create_app
from memserver.client import (
    AsyncClient,
    Client,
    agent_requests,
    archival_requests,
    call_requests,
    document_requests,
    key_requests,
    message_requests,
    section_requests,
    timer_requests,
    tool_requests,
)
from memserver.client.awaiting import AsyncResource
from memserver.client.blocking import Resource
from memserver.client.events import EVENTS, Event, Reconnected
from memserver.client.requests import Request

MODULES = (
    agent_requests,
    archival_requests,
    call_requests,
    document_requests,
    key_requests,
    message_requests,
    section_requests,
    timer_requests,
    tool_requests,
)
ELSEWHERE = re.compile(r"^/v1/(chat/completions|responses|models)\b")
"""What OpenAI's own clients are for."""
SAMPLES: dict[str, Any] = {
    "agent": UUID(int=1),
    "collection": UUID(int=2),
    "passage": UUID(int=3),
    "turn": 1,
    "version": 1,
    "approve": True,
    "content": b"x",
    "file": b"x",
    "messages": [],
    "passages": [],
}
KEPT = ("type", "enum", "const", "format", "anyOf", "items", "properties", "additionalProperties")


def sample_requests() -> list[Request[Any]]:
    found = []
    for module in MODULES:
        for build in builders(module):
            required = [
                name
                for name, parameter in inspect.signature(build).parameters.items()
                if parameter.default is parameter.empty
            ]
            found.append(build(**{name: SAMPLES.get(name, "x") for name in required}))
    return found


def builders(module: ModuleType) -> list[Any]:
    return [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


@cache
def schema() -> dict[str, Any]:
    return create_app().openapi()


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    paths = schema()["paths"]
    return {
        (method.upper(), path): operation
        for path, methods in paths.items()
        for method, operation in methods.items()
        if not ELSEWHERE.match(path)
    }


def test_the_client_has_a_request_for_every_route() -> None:
    assert {(each.method, "/v1" + each.path) for each in sample_requests()} == set(operations())


def test_every_post_has_a_key_of_its_own() -> None:
    keys = [each.key for _ in range(2) for each in sample_requests() if each.method == "POST"]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_every_parameter_that_is_sent_is_one_of_the_route() -> None:
    known = operations()
    for request in sample_requests():
        operation = known[request.method, "/v1" + request.path]
        parameters = {
            each["name"] for each in operation.get("parameters", []) if each["in"] == "query"
        }
        assert set(request.query) <= parameters, request.path


@pytest.mark.parametrize(
    "request_", sample_requests(), ids=[f"{each.method} {each.path}" for each in sample_requests()]
)
def test_an_answer_has_the_fields_and_types_of_the_schema(request_: Request[Any]) -> None:
    model = getattr(request_.parse, "__self__", None)
    if model is None:
        return
    document = schema()
    operation = document["paths"]["/v1" + request_.path][request_.method.lower()]
    answer = next(
        value for status, value in operation["responses"].items() if status in {"200", "201", "202"}
    )
    served = answer["content"]["application/json"]["schema"]
    ours = model.model_json_schema(mode="serialization")
    assert plain(ours, ours) == plain(served, document)


def plain(schema: Any, document: dict[str, Any]) -> Any:
    """A schema without its titles, texts and limits, and with its references resolved."""
    if isinstance(schema, list):
        return [plain(each, document) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target: Any = document
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return plain(target, document)
    found = {name: schema[name] for name in KEPT if name in schema}
    if "properties" in found:
        found["properties"] = {
            name: plain(each, document) for name, each in found["properties"].items()
        }
    if "anyOf" in found:
        parts = [plain(each, document) for each in found["anyOf"]]
        found["anyOf"] = sorted(parts, key=str)
    if "items" in found:
        found["items"] = plain(found["items"], document)
    found.pop("additionalProperties", None)
    return found


def test_both_clients_have_the_same_methods_of_the_same_requests() -> None:
    waiting, awaited = tables(Client()), tables(AsyncClient())
    assert waiting == awaited
    offered = {request for _, request in waiting.values() if request is not None}
    streamed = {
        message_requests.stream_message,
        message_requests.turn_events,
        agent_requests.export_agent,
        call_requests.stream_decision,
        call_requests.stream_result,
    }
    assert offered | streamed == {each for module in MODULES for each in builders(module)}


def tables(client: Any) -> dict[str, Any]:
    found = methods("", client)
    for name, value in vars(client).items():
        if isinstance(value, Resource | AsyncResource):
            found.update(methods(name + ".", value))
    return found


def methods(prefix: str, resource: Any) -> dict[str, Any]:
    return {
        prefix + name: (type(value).__name__.removeprefix("Async"), getattr(value, "_build", None))
        for name, value in vars(type(resource)).items()
        if not name.startswith("_") and name not in {"close", "aclose"}
    }


def test_every_kind_of_event_is_known_by_its_name() -> None:
    assert set(get_args(Event)) == {*EVENTS.values(), Reconnected}
    assert all(issubclass(kind, BaseModel) for kind in EVENTS.values())
