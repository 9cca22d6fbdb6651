"""The OpenAPI document itself: the resources are alike, and what is there is described and shown.

Each rule is a function that yields what breaks it, so that a test of the rules can break each.
"""

import copy
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from memserver.api.app import create_app
from tests.memserver.api.openapi import (
    JSON,
    LIST,
    SEARCHES,
    Json,
    answers,
    lists,
    operations,
    ours,
    parameters,
    resolved,
)

IDS_OF_OTHERS = {
    "call_id": "models make up the ids of their calls",
    "response_id": "OpenAI's ids begin with resp_",
}
"""Ids that are no UUIDs, and why."""
TIMES = {
    *("created_at", "updated_at", "started_at", "finished_at"),
    *("expires_at", "revoked_at", "last_used_at", "listed_at", "at"),
    *("delivered_at", "disabled_at", "waiting_since"),
}
VERB_FIRST = re.compile(r"[a-z]+(_[a-z]+)+")


@cache
def the_document() -> Json:
    return create_app().openapi()


def every_list_is_asked_in_the_same_way(document: Json) -> Iterator[str]:
    first = None
    for name, spec, _ in lists(document):
        query = parameters(spec, "query")
        if missing := set(LIST) - query.keys():
            yield f"{name} lacks {missing}"
            continue
        limit, order = query["limit"], query["order"]["schema"]
        alike = (limit, order["enum"], query["order"]["description"], query["after"]["description"])
        first = first or alike
        if alike != first:
            yield f"{name}: {alike}"
        for wrong in {"before", "offset", "sort", "page", "cursor", "next"} & query.keys():
            yield f"{name} takes {wrong}"


def every_list_answers_in_the_same_envelope(document: Json) -> Iterator[str]:
    for name, spec, page in lists(document):
        if set(page["properties"]) != {"items", "next"} or set(page["required"]) != {
            "items",
            "next",
        }:
            yield f"{name}: {sorted(page['properties'])}"
            continue
        kinds = {each.get("type") for each in page["properties"]["next"]["anyOf"]}
        cursor = parameters(spec, "query")["after"]["schema"]["anyOf"]
        if "null" not in kinds or kinds != {each.get("type") for each in cursor}:
            yield f"{name}: what is in next doesn't go into after"


def a_list_is_called_one(document: Json) -> Iterator[str]:
    called = {
        name for name, _, _, spec in ours(document) if spec["operationId"].startswith("list_")
    }
    called |= {name for name, _, _, spec in ours(document) if "_history" in spec["operationId"]}
    yield from called ^ {name for name, _, _ in lists(document)}


def searches_are_alike(document: Json) -> Iterator[str]:
    for name, method, path, spec in ours(document):
        if method == "get" and SEARCHES.search(path):
            page = resolved(dict(answers(spec))["200"]["schema"], document)
            if missing := {"query", "page", "limit", "start_date", "end_date"} - set(
                parameters(spec, "query")
            ):
                yield f"{name} takes no {missing}"
            if missing := {"items", "total", "page", "pages"} - page["properties"].keys():
                yield f"{name} answers without {missing}"


def the_same_parameter_is_the_same_everywhere(document: Json) -> Iterator[str]:
    forms: dict[str, Json] = {}
    for name, _, _, spec in operations(document):
        for called, parameter in parameters(spec, "path").items():
            schema = {key: parameter["schema"].get(key) for key in ("type", "format")}
            if forms.setdefault(called, schema) != schema:
                yield f"{name}: {called} is {schema}, and {forms[called]} elsewhere"


def ids_are_uuids(document: Json) -> Iterator[str]:
    for name, _, _, spec in operations(document):
        for called, parameter in (parameters(spec, "path") | parameters(spec, "query")).items():
            if called.endswith("_id") and called not in IDS_OF_OTHERS:
                schema = parameter["schema"]
                kinds = schema.get("anyOf", [schema])
                if kinds[0].get("format") != "uuid":
                    yield f"{name}: {called}"


def times_are_named_and_formed_alike(document: Json) -> Iterator[str]:
    for model, schema in document["components"]["schemas"].items():
        for field, part in schema.get("properties", {}).items():
            is_time = any(each.get("format") == "date-time" for each in part.get("anyOf", [part]))
            named = field in TIMES if is_time else not field.endswith("_at")
            if not named and not _is_openais(model):
                yield f"{model}.{field}"


def _is_openais(model: str) -> bool:
    """OpenAI's API counts seconds."""
    return model in {"ResponseObject", "Completion", "Model"}


def every_post_takes_an_idempotency_key(document: Json) -> Iterator[str]:
    for name, method, _, spec in operations(document):
        if (method == "post") != ("Idempotency-Key" in parameters(spec, "header")):
            yield name


def every_error_has_the_one_schema(document: Json) -> Iterator[str]:
    for name, _, _, spec in operations(document):
        openai = spec["tags"] == ["OpenAI's API"]
        wanted = "OpenAIErrorResponse" if openai else "ErrorResponse"
        found = dict(answers(spec))
        for status in spec["responses"]:
            if int(status) < 400 or (name, status) == ("GET /v1/ready", "503"):
                continue
            if found.get(status, {}).get("schema") != {"$ref": f"#/components/schemas/{wanted}"}:
                yield f"{name} {status}"
        if not {"400", "404", "500"} <= spec["responses"].keys():
            yield f"{name} lacks an error"


def every_operation_is_described(document: Json) -> Iterator[str]:
    seen = set()
    for name, _, _, spec in operations(document):
        called = spec["operationId"]
        if not VERB_FIRST.fullmatch(called) or called in seen:
            yield f"{name} is called {called}"
        seen.add(called)
        summary = spec.get("summary", "")
        if not 5 < len(summary) <= 110 or summary.endswith(".") or not summary[0].isupper():
            yield f"{name}: {summary}"
        if len(spec.get("tags", ())) != 1:
            yield f"{name}: {spec.get('tags')}"


def every_body_and_answer_has_an_example(document: Json) -> Iterator[str]:
    for name, _, _, spec in operations(document):
        bodies = spec.get("requestBody", {}).get("content", {})
        shown = [("the body", bodies[JSON])] if JSON in bodies else []
        for what, content in [*shown, *answers(spec)]:
            if "example" not in content:
                yield f"{name}: {what} has none"
                continue
            for error in _validator(content["schema"], document).iter_errors(content["example"]):
                yield f"{name}: {what}: {error.message}"


def _validator(schema: Json, document: Json) -> Draft202012Validator:
    whole = Resource.from_contents(document, default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource("urn:document", whole)
    absolute = _absolute(schema)
    return Draft202012Validator(absolute, registry=registry, format_checker=FormatChecker())


def _absolute(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: f"urn:document{value}" if key == "$ref" else _absolute(value)
            for key, value in schema.items()
        }
    return [_absolute(each) for each in schema] if isinstance(schema, list) else schema


Rule = Callable[[Json], Iterator[str]]
RULES: list[Rule] = [
    every_list_is_asked_in_the_same_way,
    every_list_answers_in_the_same_envelope,
    a_list_is_called_one,
    searches_are_alike,
    the_same_parameter_is_the_same_everywhere,
    ids_are_uuids,
    times_are_named_and_formed_alike,
    every_post_takes_an_idempotency_key,
    every_error_has_the_one_schema,
    every_operation_is_described,
    every_body_and_answer_has_an_example,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_document_keeps_the_rule(rule: Rule) -> None:
    assert list(rule(the_document())) == []


def spec_of(document: Json, method: str, path: str) -> Json:
    found: Json = document["paths"][f"/v1{path}"][method]
    return found


def drop(spec: Json, name: str) -> None:
    spec["parameters"] = [each for each in spec["parameters"] if each["name"] != name]


BREAKS: dict[str, Callable[[Json], Any]] = {
    "every_list_is_asked_in_the_same_way": lambda d: drop(spec_of(d, "get", "/keys"), "order"),
    "every_list_answers_in_the_same_envelope": lambda d: d["components"]["schemas"]["ApiKeyPage"][
        "properties"
    ].update(total={}),
    "a_list_is_called_one": lambda d: spec_of(d, "get", "/keys").update(operationId="get_keys"),
    "searches_are_alike": lambda d: drop(
        spec_of(d, "get", "/agents/{agent}/recall/search"), "page"
    ),
    "the_same_parameter_is_the_same_everywhere": lambda d: parameters(
        spec_of(d, "get", "/agents/{agent}/export"), "path"
    )["agent"].update(schema={"type": "integer"}),
    "ids_are_uuids": lambda d: parameters(spec_of(d, "get", "/keys/{key_id}"), "path")[
        "key_id"
    ].update(schema={"type": "string"}),
    "times_are_named_and_formed_alike": lambda d: d["components"]["schemas"]["ApiKey"][
        "properties"
    ].update(made={"type": "string", "format": "date-time"}),
    "every_post_takes_an_idempotency_key": lambda d: drop(
        spec_of(d, "post", "/keys"), "Idempotency-Key"
    ),
    "every_error_has_the_one_schema": lambda d: spec_of(d, "post", "/keys")["responses"].update(
        {"418": {"description": "no schema"}}
    ),
    "every_operation_is_described": lambda d: spec_of(d, "post", "/keys").update(summary="New."),
    "every_body_and_answer_has_an_example": lambda d: spec_of(d, "post", "/keys")["requestBody"][
        "content"
    ][JSON].update(example={"name": 1}),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_document_that_breaks_the_rule_is_found_out(rule: Rule) -> None:
    document = copy.deepcopy(the_document())
    BREAKS[rule.__name__](document)
    assert list(rule(document)) != []
