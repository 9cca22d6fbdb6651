"""An endpoint as this process sees it: for its operator to read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from memserver.errors import ModelError
from memserver.llm.adapters import Adapters, Served
from memserver.llm.admission import SharedEndpoint
from memserver.llm.base import ChatModel
from memserver.openai_http.endpoint import Endpoint

LIST_SECONDS = 3.0
EndpointState = Literal["ok", "loading", "failing", "not_asked"]


@dataclass(frozen=True, slots=True)
class EndpointOverview:
    """Where it is, whether it answers, what it serves, and which of its models were used."""

    address: str
    state: EndpointState
    detail: str
    in_flight: int
    waiting: int
    at_most: int
    served: Sequence[Served]
    used: Sequence[ChatModel]


async def look_at(
    endpoint: Endpoint, shared: SharedEndpoint, used: Sequence[ChatModel]
) -> EndpointOverview:
    """Ask the endpoint for its list, and describe what is known without asking."""
    adapters = Adapters(replace(endpoint, timeout=LIST_SECONDS))
    served: Sequence[Served] = ()
    state: EndpointState = "ok"
    detail = ""
    try:
        served = await adapters.listed()
    except ModelError as error:
        state, detail = "failing", f"{error.message} {error.hint}".strip()
    finally:
        await adapters.aclose()
    if loading := shared.readiness.loading():
        state, detail = "loading", loading
    elif shared.circuit.is_open:
        state, detail = "not_asked", shared.circuit.describe()
    slots, address, fleet = shared.slots, endpoint.address()[0].base, endpoint.fleet
    if fleet is not None:
        address = ", ".join(engine.address for engine in fleet.engines)
        detail = detail or f"{fleet.describe()} {fleet.disagreement}".strip()
    in_flight = slots.at_most - slots.free
    return EndpointOverview(
        address, state, detail, in_flight, slots.waiting, slots.at_most, served, used
    )
