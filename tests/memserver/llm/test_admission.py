"""Slots are given in turn among tenants and by arrival within one, and none is ever lost."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memserver.errors import ModelUnavailable
from memserver.llm.admission import EndpointReadiness, FairSemaphore, QueuedModel, SharedEndpoint
from memserver.openai_http.circuit import Circuit
from memserver.testing.scripted import Broken, ScriptedModel, Step, say
from tests.support.model_contract import PROMPT, SEND


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@dataclass
class Line:
    """Those who want a slot; who got one keeps it until it is let go."""

    slots: FairSemaphore
    order: list[str] = field(default_factory=list)
    holding: dict[str, asyncio.Event] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def join(self, *names: str) -> None:
        """Each wants a slot, in this order; its first letter is its key."""
        for name in names:
            self.tasks[name] = asyncio.create_task(self._hold(name))
            await settled()

    async def let_go(self, name: str) -> None:
        self.holding[name].set()
        await settled()

    async def _hold(self, name: str) -> None:
        async with self.slots.one(name[0]):
            self.order.append(name)
            self.holding[name] = asyncio.Event()
            try:
                await self.holding[name].wait()
            finally:
                del self.holding[name]

    async def empty(self) -> None:
        while self.holding:
            await self.let_go(next(iter(self.holding)))
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def test_tenants_take_turns_and_within_one_the_first_comes_first() -> None:
    line = Line(FairSemaphore(1))
    await line.join("x1", "a1", "a2", "a3", "b1", "b2", "c1")
    await line.empty()
    assert line.order == ["x1", "a1", "b1", "c1", "a2", "b2", "a3"]


async def test_a_tenant_that_comes_late_is_next_but_one_before_anothers_many() -> None:
    line = Line(FairSemaphore(2))
    await line.join(*(f"a{number}" for number in range(50)))
    await line.join("b0")
    await line.let_go("a0")
    await line.let_go("a1")
    assert line.order == ["a0", "a1", "a2", "b0"]
    await line.empty()


async def test_no_more_hold_a_slot_than_there_are() -> None:
    line = Line(FairSemaphore(3))
    await line.join("a1", "b1", "a2", "b2", "c1")
    assert sorted(line.holding) == ["a1", "a2", "b1"]
    assert (line.slots.free, line.slots.waiting) == (0, 2)
    await line.empty()
    assert (line.slots.free, line.slots.waiting) == (3, 0)


async def test_who_stops_waiting_is_passed_over_and_does_not_cost_its_tenant_a_turn() -> None:
    line = Line(FairSemaphore(1))
    await line.join("x1", "a1", "a2", "b1")
    line.tasks["a1"].cancel()
    await settled()
    assert line.slots.waiting == 2
    await line.empty()
    assert line.order == ["x1", "a2", "b1"]


@pytest.mark.parametrize("given_first", [False, True])
async def test_a_slot_given_in_the_moment_of_a_cancellation_goes_to_the_next(
    given_first: bool,
) -> None:
    line = Line(FairSemaphore(1))
    first = line.slots.one("x")
    await first.__aenter__()
    await line.join("a1", "a2", "b1")
    if not given_first:
        line.tasks["a1"].cancel()
    await first.__aexit__(None, None, None)  # nothing else runs before the next line
    line.tasks["a1"].cancel()
    await settled()
    assert line.order == [("b1" if given_first else "a2")]
    await line.empty()
    assert (line.slots.free, line.slots.waiting) == (1, 0)
    assert sorted(line.order) == ["a2", "b1"]


async def test_who_comes_in_the_moment_in_which_the_last_of_its_tenant_leaves_is_not_forgotten() -> (
    None
):
    line = Line(FairSemaphore(1))
    first = line.slots.one("x")
    await first.__aenter__()
    await line.join("a1", "b1")
    line.tasks["a2"] = asyncio.create_task(line._hold("a2"))  # runs before a1 knows of its end
    line.tasks["a1"].cancel()
    await first.__aexit__(None, None, None)
    await settled()
    assert (line.order, line.slots.waiting) == (["b1"], 1)
    await line.empty()
    assert line.order == ["b1", "a2"]


async def test_a_holder_that_fails_or_is_cancelled_gives_its_slot_back() -> None:
    slots = FairSemaphore(1)
    with pytest.raises(ZeroDivisionError):
        async with slots.one("a"):
            raise ZeroDivisionError
    line = Line(slots)
    await line.join("a1", "b1")
    line.tasks["a1"].cancel()
    await settled()
    assert line.order == ["a1", "b1"]
    await line.empty()
    assert slots.free == 1


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["join", "let go", "cancel"]), st.integers(0, 99))),
)
def test_whatever_happens_no_slot_is_lost_and_nobody_waits_beside_a_free_one(
    slots: int, steps: list[tuple[str, int]]
) -> None:
    async def run() -> None:
        line = Line(FairSemaphore(slots))
        for number, (step, pick) in enumerate(steps):
            if step == "join":
                name = f"{'abc'[pick % 3]}{number}"
                line.tasks[name] = asyncio.create_task(line._hold(name))
            elif step == "let go" and line.holding:
                list(line.holding.values())[pick % len(line.holding)].set()
            elif step == "cancel" and line.tasks:
                list(line.tasks.values())[pick % len(line.tasks)].cancel()
            if pick % 2:  # at times several things happen in one moment
                await settled()
                assert len(line.holding) + line.slots.free == slots
                assert not (line.slots.free and line.slots.waiting)
        await settled()
        await line.empty()
        assert (line.slots.free, line.slots.waiting) == (slots, 0)

    asyncio.run(run())


async def test_while_the_circuit_is_open_nobody_queues() -> None:
    circuit = Circuit(failures=1)
    shared = SharedEndpoint(FairSemaphore(1), circuit)
    model = ScriptedModel([say("hi")])
    view = QueuedModel(model, shared, "a")
    async with shared.slots.one("x"):
        circuit.begin().record_failure(ModelUnavailable("It is away."))
        with pytest.raises(ModelUnavailable, match="It is away"):
            await view.call_tool(PROMPT, [SEND], max_tokens=50)
        with pytest.raises(ModelUnavailable, match="It is away"):
            await view.write(PROMPT, max_tokens=50)
    assert (model.seen, model.writes) == ([], [])


async def test_closing_a_view_leaves_the_shared_model_open() -> None:
    class Closable(ScriptedModel):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    model = Closable()
    await QueuedModel(model, SharedEndpoint(FairSemaphore(1), Circuit()), "a").aclose()
    assert not model.closed


@dataclass
class Restarting(EndpointReadiness):
    """An endpoint that was lost and is there again whenever it is waited for."""

    lost: bool = True
    waits: int = 0

    async def wait(self) -> None:
        self.waits += 1

    async def is_lost(self) -> bool:
        return self.lost


def restarting(lost: bool, *steps: Step) -> tuple[QueuedModel, Restarting]:
    readiness = Restarting(lost)
    shared = SharedEndpoint(FairSemaphore(1), Circuit(), readiness)
    return QueuedModel(ScriptedModel(steps), shared, "a"), readiness


async def test_what_a_lost_endpoint_did_not_answer_is_asked_again_once_it_is_ready() -> None:
    view, readiness = restarting(True, ModelUnavailable("It died."), say("hi"))
    reply = await view.call_tool(PROMPT, [SEND], max_tokens=50)
    assert reply.call.arguments["message"] == "hi"
    assert readiness.waits == 2


async def test_an_endpoint_that_dies_of_what_it_is_asked_is_not_asked_a_third_time() -> None:
    view, readiness = restarting(True, *[ModelUnavailable("It died.")] * 3)
    with pytest.raises(ModelUnavailable, match="It died"):
        await view.call_tool(PROMPT, [SEND], max_tokens=50)
    assert readiness.waits == 2


async def test_an_endpoint_that_is_there_and_fails_is_not_asked_again() -> None:
    view, readiness = restarting(False, ModelUnavailable("It is ill."), say("hi"))
    with pytest.raises(ModelUnavailable, match="It is ill"):
        await view.call_tool(PROMPT, [SEND], max_tokens=50)
    assert readiness.waits == 1


async def test_a_text_that_was_heard_in_part_is_not_sent_again_from_its_start() -> None:
    broken = Broken(say("hello there"), ModelUnavailable("It died."))
    view, _ = restarting(True, broken, say("hello again"))
    heard: list[str] = []
    with pytest.raises(ModelUnavailable, match="It died"):
        await view.call_tool(PROMPT, [SEND], max_tokens=50, on_text=heard.append)
    assert heard
