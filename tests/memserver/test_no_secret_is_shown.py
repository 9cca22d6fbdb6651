"""No value with a secret shows it when it is printed or logged."""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pytest
from pydantic import BaseModel

import memserver.api.schemas
import memserver.client
import memserver.storage
import memserver.tools.outbound
import memserver.wire
from memserver.client.models import CreatedKey, Tool

SECRET = {"secret", "api_key", "headers", "env", "password"}
PACKAGES = (
    memserver.api.schemas,
    memserver.client,
    memserver.storage,
    memserver.tools.outbound,
    memserver.wire,
)


def shown(kind: type) -> Iterator[str]:
    """The fields that its repr shows."""
    if issubclass(kind, BaseModel):
        yield from (name for name, field in kind.model_fields.items() if field.repr)
    elif is_dataclass(kind):
        yield from (field.name for field in fields(kind) if field.repr)


def kinds() -> list[type]:
    found = {}
    for package in PACKAGES:
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and value.__module__.startswith("memserver."):
                    found[f"{value.__module__}.{value.__qualname__}"] = value
    return list(found.values())


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_no_field_that_holds_a_secret_is_shown(kind: type) -> None:
    assert not SECRET & set(shown(kind))


def test_a_tool_and_a_key_are_printed_without_their_secrets() -> None:
    tool = Tool(name="t", kind="webhook", description="", parameters={}, secret="whsec_hidden")
    key = CreatedKey.model_construct(name="laptop", prefix="msk_abc", key="msk_abc_hidden")
    assert (tool.secret, key.key) == ("whsec_hidden", "msk_abc_hidden")
    for value in (tool, key):
        assert "hidden" not in f"{value} {value!r}"
