"""Python functions as tools: what the model reads of them, what they get, and what they may do."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from memserver.errors import SetupError
from memserver.testing.scripted import Call, ScriptedModel, say
from memserver.tools import foreign
from memserver.tools.function import MARK, AgentContext, tool
from memserver.tools.tool import RunnableTool
from tests.support.server import OneDatabase, Server, serving


def made(function: Callable[..., Any]) -> RunnableTool:
    found: RunnableTool = getattr(function, MARK).tool
    return found


class Unit(Enum):
    CELSIUS = "C"
    FAHRENHEIT = "F"


@dataclass
class Place:
    city: str
    country: str = "Norway"


class Wish(BaseModel):
    what: str = Field(description="What is wished for.")
    count: int = 1


@tool
async def plan(
    place: Place,
    day: date,
    how: Literal["train", "ship"],
    wishes: list[Wish],
    unit: Unit = Unit.CELSIUS,
    budget: Optional[float] = None,  # noqa: UP045 - as many write it
    tags: dict[str, int | str] | None = None,
    json: Annotated[bool, Field(description="In JSON.")] = False,
) -> str:
    """Plan a journey.

    It takes a while.

    Args:
        place: where to go,
            and no farther.
        day: when.
        how: by what.
        wishes: in the order of their weight.

    Returns:
        The plan.
    """
    return f"{place!r} {day!r} {how} {wishes!r} {unit!r} {budget} {tags} {json}"


ARGUMENTS = {
    "place": {"city": "Bergen"},
    "day": "2026-06-01",
    "how": "ship",
    "wishes": [{"what": "a window"}],
    "tags": {"a": 1, "b": "x"},
}


def test_a_description_ends_with_its_last_word() -> None:
    @tool
    def short(place: str) -> str:
        """Find a place.

        Args:
            place: which.
        """
        return place

    assert made(short).spec.description == "Find a place."


NUMPY = """Find a place.

Parameters
----------
place : str
    which.
"""
SPHINX = """Find a place.

:param place: which.
"""


@pytest.mark.parametrize("docstring", [NUMPY, SPHINX])
def test_a_docstring_may_be_in_the_style_of_numpy_or_sphinx(docstring: str) -> None:
    def find(place: str) -> str:
        return place

    find.__doc__ = docstring
    spec = made(tool(find)).spec
    assert spec.description == "Find a place."
    assert spec.parameters["properties"]["place"]["description"] == "which."


def test_the_model_reads_types_and_docstring() -> None:
    spec = made(plan).spec
    assert (spec.name, spec.description) == ("plan", "Plan a journey.\n\nIt takes a while.")
    properties = spec.parameters["properties"]
    assert list(properties) == [
        "inner_thought",
        "place",
        "day",
        "how",
        "wishes",
        "unit",
        "budget",
        "tags",
        "json",
        "request_heartbeat",
    ]
    assert spec.parameters["required"] == ["place", "day", "how", "wishes"]
    assert properties["how"] == {
        "description": "by what.",
        "enum": ["train", "ship"],
        "type": "string",
    }
    assert properties["place"]["description"] == "where to go,\nand no farther."
    assert properties["day"]["format"] == "date"
    assert properties["budget"]["anyOf"] == [{"type": "number"}, {"type": "null"}]
    assert properties["json"] == {"default": False, "description": "In JSON.", "type": "boolean"}
    wish = spec.parameters["$defs"]["Wish"]
    assert wish["properties"]["what"]["description"] == "What is wished for."
    assert spec.parameters["$defs"]["Place"]["required"] == ["city"]


async def called(
    database: OneDatabase, function: Callable[..., Any], arguments: Any = None, **settings: Any
) -> tuple[str, str]:
    """The state and the result of a call; the agent answers after it, whatever it was."""
    found = made(function)
    model = ScriptedModel([Call(found.spec.name, arguments or {}), say("Done.")])
    async with serving(database, model, [found], **settings) as server:
        agent = await server.create_agent()
        await server.http.put(f"/v1/agents/{agent}/tools/{found.spec.name}", json={})
        answer = await server.say(agent, "Go!")
    assert answer["text"] == "Done."
    call = answer["messages"][0]["tool_call"]
    return call["state"], call["result"]


async def test_the_function_gets_values_of_its_types(database: OneDatabase) -> None:
    state, result = await called(database, plan, ARGUMENTS)
    assert state == "done"
    assert result == (
        "Place(city='Bergen', country='Norway') datetime.date(2026, 6, 1) ship "
        "[Wish(what='a window', count=1)] <Unit.CELSIUS: 'C'> None {'a': 1, 'b': 'x'} False"
    )


async def test_what_no_schema_says_is_said_to_the_model(database: OneDatabase) -> None:
    state, result = await called(database, plan, {**ARGUMENTS, "day": "the 31st of June"})
    assert state == "failed"
    assert result.startswith("The argument day: Input should be a valid date")


def greet(name: str, context: AgentContext) -> str:
    """Greet."""
    assert threading.current_thread() is not threading.main_thread()
    [persona, _] = context.wait(context.memory.sections())
    context.wait(context.memory.append("human", f"Was greeted as {name}"))
    context.wait(context.memory.insert_archival("A greeting was said."))
    found = context.wait(context.memory.search_archival("greeting"))
    said = context.wait(context.memory.search_recall("GO"))
    return (
        f"{persona.name} {context.tenant} {context.turn} {len(found.found)} {said.total} "
        f"{context.agent_id} {context.call_id}"
    )


async def test_a_sync_function_runs_in_a_thread_with_the_agents_memory(
    database: OneDatabase,
) -> None:
    found = made(tool(greet))
    assert "context" not in found.spec.parameters["properties"]
    model = ScriptedModel([say("Go on."), Call("greet", {"name": "Ada"}), say("Done.")])
    async with serving(database, model, [found]) as server:
        agent = await server.create_agent()
        await server.http.put(f"/v1/agents/{agent}/tools/greet", json={})
        await server.say(agent, "Go!")
        answer = await server.say(agent, "Greet me.")
        memory = await server.get(f"{agent}/working-context")
    call = answer["messages"][0]["tool_call"]
    assert call["result"] == f"persona default 2 1 2 {agent} {call['id']}"
    assert memory["sections"][1]["text"] == "Was greeted as Ada"


class Rude(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


async def hang() -> str:
    """Hang, whatever one says."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if STOP.is_set():
                raise


def hang_in_a_thread() -> str:
    """Hang."""
    STOP.wait()
    return "late"


def leave() -> str:
    """Leave."""
    raise SystemExit(3)


async def leave_at_once() -> str:
    """Leave."""
    raise SystemExit(3)


async def give_up() -> str:
    """Give up."""
    raise asyncio.CancelledError


def be_rude() -> str:
    """Raise what can't be shown."""
    raise Rude


def stop() -> str:
    """Raise what a future takes not."""
    raise StopIteration("here")


def raw() -> bytes:
    """Return bytes."""
    return b"\xff\x00"


def deep() -> list[Any]:
    """Return what nests too deep."""
    whole: list[Any] = []
    for _ in range(100_000):
        whole = [whole]
    return whole


def endless() -> Iterator[int]:
    """Return what never ends."""
    return itertools.repeat(1)


def half() -> Any:
    """Return what is no number in JSON."""
    return {"x": float("nan")}


def round_about() -> Any:
    """Return what holds itself."""
    whole: dict[str, Any] = {}
    whole["self"] = whole
    return whole


STOP = threading.Event()


@pytest.fixture
def hanging_ones_end() -> Iterator[None]:
    STOP.clear()
    yield
    STOP.set()


@pytest.mark.usefixtures("hanging_ones_end")
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (hang, "It did not end within 0.2 seconds"),
        (hang_in_a_thread, "It did not end within 0.2 seconds"),
        (leave, "SystemExit: 3"),
        (leave_at_once, "SystemExit: 3"),
        (give_up, "It was cancelled by itself."),
        (be_rude, "Rude: <exception str() failed>"),
        (stop, "StopIteration: here"),
        (raw, "It returned bytes, not text."),
        (deep, "It returned a list that is no JSON"),
        (endless, "It returned a repeat that is no JSON"),
        (half, "It returned a dict that is no JSON"),
        (round_about, "It returned a dict that is no JSON"),
    ],
)
async def test_whatever_a_function_does_is_a_failed_call_and_nothing_worse(
    database: OneDatabase, function: Callable[..., Any], reason: str
) -> None:
    limit = 0.2 if function in {hang, hang_in_a_thread} else 60.0
    state, result = await called(database, tool(function), tool_timeout=limit)
    for task in list(foreign._abandoned):
        STOP.set()
        task.cancel()
        await asyncio.wait({task})
    assert state == "failed"
    assert reason in result


def much() -> str:
    """Return too much."""
    return "x" * 10_000_000 + "\0"


def structured() -> Any:
    """Return a structure."""
    return {
        "place": Place("Oslo"),
        "wish": Wish(what="ä"),
        "day": date(2026, 1, 2),
        "colours": {"red"},
        "took": timedelta(minutes=5),
        "none": None,
    }


async def test_a_long_result_is_cut_and_the_model_learns_of_the_limit(
    database: OneDatabase,
) -> None:
    state, result = await called(database, tool(much), tool_result_characters=200)
    assert state == "done"
    assert result == "x" * 200 + (
        "… [cut: a result may have 200 characters, this one has 10000000; ask for less]"
    )


async def test_what_is_no_text_reaches_the_model_as_json(database: OneDatabase) -> None:
    _, result = await called(database, tool(structured))
    assert result == (
        '{"place": {"city": "Oslo", "country": "Norway"}, "wish": {"what": "ä", "count": 1}, '
        '"day": "2026-01-02", "colours": ["red"], "took": "PT5M", "none": null}'
    )


async def test_a_tool_has_a_time_limit_of_its_own(database: OneDatabase) -> None:
    @tool(timeout=0.1, name="slow-one")
    async def slow() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    state, result = await called(database, slow)
    assert (state, result.partition(";")[0]) == ("failed", "It did not end within 0.1 seconds")


async def test_more_threads_than_may_hang_are_refused(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "_threads", threading.BoundedSemaphore(1))
    foreign._threads.acquire()
    state, result = await called(database, tool(raw))
    assert state == "failed"
    assert "run or hang already" in result


async def test_agents_have_a_functions_tool_when_they_attach_it_or_all_do(
    database: OneDatabase,
) -> None:
    everybodys = made(tool(attached=True, name="everybodys")(raw))
    some = made(tool(name="some")(raw))
    async with serving(database, ScriptedModel(), [everybodys, some]) as server:
        agent = await server.create_agent()
        assert await names(server, agent) == {"everybodys"}
        await server.http.put(f"/v1/agents/{agent}/tools/some", json={})
        answer = await server.http.delete(f"/v1/agents/{agent}/tools/everybodys")
        assert answer.status_code == 204
        assert await names(server, agent) == {"some"}


async def names(server: Server, agent: str) -> set[str]:
    tools = await server.get(f"{agent}/tools")
    return {item["name"] for item in tools["items"] if item["kind"] != "memory"}


async def wait_wrongly(context: AgentContext) -> str:
    """Wait in the loop."""
    return str(context.wait(context.memory.sections()))


async def test_an_async_function_that_waits_is_reported_and_blocks_nothing(
    database: OneDatabase,
) -> None:
    state, result = await called(database, tool(wait_wrongly))
    assert (state, result) == (
        "failed",
        "An async function must await the memory's methods, not wait for them.",
    )


def bad_star(*places: str) -> str:
    """Take any."""
    return ""


def bad_type(what: Callable[[], None]) -> str:
    """Take a function."""
    return ""


def bad_forward(what: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    """Take what isn't there."""
    return ""


def bad_words(what: str) -> str:
    """Take something.

    Args:
        what: it.
        which: not there.
    """
    return ""


def bad_silence(what: str) -> str:
    return what


def bad_untyped(what) -> str:  # type: ignore[no-untyped-def]
    """Take something."""
    return ""


def bad_parts(what: str) -> Iterator[str]:
    """Give one letter after another."""
    yield from what


async def bad_async_parts(what: str) -> AsyncIterator[str]:
    """Give one letter after another."""
    for letter in what:
        yield letter


def bad_reserved(inner_thought: str) -> str:
    """Take what is ours."""
    return inner_thought


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (bad_star, r"takes \*places"),
        (bad_type, "has a type that a model can't be shown"),
        (bad_forward, "has a type hint that can't be read: name 'Nowhere' is not defined"),
        (bad_words, "describes which, which it has no parameter of"),
        (bad_silence, "has no docstring"),
        (bad_untyped, "has no type for its parameter what"),
        (bad_parts, "is a generator, but a call has one result"),
        (bad_async_parts, "is a generator, but a call has one result"),
        (bad_reserved, "can't have a parameter named inner_thought"),
        (Place, "is no function"),
        (print, "is no function"),
    ],
)
def test_a_bad_tool_is_an_error_when_it_is_decorated(
    function: Callable[..., Any], reason: str
) -> None:
    with pytest.raises(SetupError, match=f"The tool {function.__name__} {reason}") as raised:
        tool(function)
    if function not in {Place, print}:
        line = function.__code__.co_firstlineno  # type: ignore[attr-defined]
        assert f"({__file__}:{line})" in raised.value.message


def test_a_bad_name_is_refused() -> None:
    with pytest.raises(SetupError, match="has a name that is none for a tool"):
        tool(name="two words")(raw)
