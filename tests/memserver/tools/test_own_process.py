"""A Python function in a process of its own: its end is an error with a name, everything else as in the server's."""

from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

import pytest

from memserver.errors import ToolError, ToolProcessEnded
from memserver.tools import own_process
from memserver.tools.agent_memory import AgentMemory
from memserver.tools.shown import ToolResult
from tests.support import deadly_tools


async def run(name: str) -> object:
    facts: dict[str, Any] = {"agent_id": uuid4(), "tenant": "default", "turn": 1, "call_id": "a"}
    facts["now"] = datetime.now(UTC)
    place = (deadly_tools.__name__, name)
    return await own_process.run(place, {}, facts, cast("AgentMemory", None))


@pytest.mark.parametrize("name", ["leave", "be_killed"])
async def test_a_function_that_ends_its_process_is_distinguished_from_one_that_fails(
    name: str,
) -> None:
    with pytest.raises(ToolProcessEnded):
        await run(name)
    with pytest.raises(ToolError, match="ValueError: no"):
        await run("fail")


async def test_a_function_that_can_not_be_found_there_has_failed_and_ended_nothing() -> None:
    with pytest.raises(ToolError, match="AttributeError"):
        await run("nothing")


async def test_what_asks_a_whole_service_to_end_is_no_end_of_a_functions_own() -> None:
    assert await run("be_asked_to_end") == ToolResult("alive")


def test_only_what_another_process_finds_by_its_name_runs_there() -> None:
    def inside() -> None: ...

    assert own_process.importable_name(deadly_tools.leave) == (deadly_tools.__name__, "leave")
    assert own_process.importable_name(inside) is None
