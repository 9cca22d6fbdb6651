"""The client has a method for each route, and its values are those of the API's schema."""

import inspect
import re
from functools import cache
from typing import Any, get_args
from uuid import UUID

import pytest
from pydantic import BaseModel

from memserver.api.app import create_app
from memserver.client import AsyncClient, Client
from memserver.client.clients import Memserver
from memserver.client.events import EVENTS, Event, Reconnected
from memserver.client.methods import Resource, items, method, streamed
from memserver.client.requests import Request

ELSEWHERE = re.compile(r"^/v1/(chat/completions|responses|models|embeddings)\b")
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
    "metadata": {},
    "passages": [],
}
KEPT = ("type", "enum", "const", "format", "anyOf", "items", "properties", "additionalProperties")


def sample_requests() -> list[Request[Any]]:
    found = []
    for resource, sending in builders():
        _, *parameters = inspect.signature(sending.build).parameters.values()
        required = [
            each.name
            for each in parameters
            if each.default is each.empty and each.kind is not each.VAR_KEYWORD
        ]
        optional = (sending.options or set()) - {each.name for each in parameters} - {"self"}
        given = {name: SAMPLES.get(name, "x") for name in (*required, *optional)}
        found.append(sending.build(resource, **given))
    return found


def builders() -> list[tuple[Any, Any]]:
    """All that sends requests, with the resource that has it."""
    client = Client()
    return [
        (resource, value)
        for resource in (client, *resources(client))
        for kind in type(resource).__mro__
        for value in vars(kind).values()
        if isinstance(value, method | items | streamed)
    ]


def resources(client: Any) -> list[Any]:
    return [value for value in vars(client).values() if isinstance(value, Resource)]


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


def test_both_clients_have_the_same_resources() -> None:
    waiting, awaited = Client(), AsyncClient()
    assert issubclass(Client, Memserver)
    assert [*map(type, resources(waiting))] == [*map(type, resources(awaited))]
    assert set(vars(waiting)) == set(vars(awaited))


def test_an_option_that_a_method_does_not_have_is_an_error_before_anything_is_sent() -> None:
    with pytest.raises(TypeError, match=r"^Archival\.search\(\) got an unexpected .* 'tags'$"):
        Client().archival.search("sam", "bees", tags=["bee"])  # type: ignore[call-arg]


def test_every_kind_of_event_is_known_by_its_name() -> None:
    assert set(get_args(Event)) == {*EVENTS.values(), Reconnected}
    assert all(issubclass(kind, BaseModel) for kind in EVENTS.values())
