"""What schemathesis can't find out from the document: ids of things that there are. It loads this by its name.

A case that names a thing by an id that could be one mostly gets one that is, so that routes do their work. What
deletes goes to another tenant's things: they are there for the first time, and what the rest uses stays. In a chain
of requests what an earlier one made is used, and deleted, by the later ones.
"""

import json
import os
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import schemathesis
from hypothesis import strategies as st

from tests.support.agent_files import closed, with_messages

THINGS = json.loads(Path(os.environ["THINGS"]).read_text(encoding="utf-8"))
"""`used`, `deleted` and `operator`: each with the `headers` of a key, and the `ids` by route."""
OPERATORS = ("/v1/endpoint", "/v1/operations", "/v1/reports", "/v1/tenants")
WITHIN = {"turn", "section", "position", "label"}
"""Parameters that name a thing only within another one."""
USED = {
    value
    for ids in THINGS["used"]["ids"].values()
    for name, value in ids.items()
    if name not in WITHIN
}
NAMES = {
    *("agent", "collection", "section", "name", "turn", "position"),
    *("tenant", "model", "response_id", "call_id"),
}
"""Parameters that are no UUIDs, or not always."""
KEY = "Idempotency-Key"
NUMBERS = count(1)
taken: set[tuple[str, str]] = set()
LONGEST_QUERY = 5000
EVERY = 4
"""Of so many cases one keeps what was made up."""


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Put ids into the case."""
    route = f"{case.method.upper()} {case.operation.path}"
    made_up = json.dumps([case.path_parameters, case.query, str(case.body)], default=str)
    _keep_from_conflicts(case, route)
    if sum(made_up.encode()) % EVERY == 0 or _linked(case) or _deletes_its_own(case):
        return
    ids = THINGS[_use(case)]["ids"].get(route, {})
    for name, value in (case.path_parameters or {}).items():
        if name in ids and (name in NAMES or _is_id(value)):
            case.path_parameters[name] = ids[name]
    if isinstance(case.body, dict):
        for name, value in case.body.items():
            if name in ids and ((name == "model" and isinstance(value, str)) or _is_id(value)):
                case.body[name] = ids[name]


@schemathesis.auth(refresh_interval=None)
class KeyOfTheTenant:
    """A header of the command line would be the same for all cases."""

    def get(self, case: Any, context: Any) -> dict[str, str]:
        headers: dict[str, str] = THINGS[_use(case)]["headers"]
        return headers

    def set(self, case: Any, data: dict[str, str], context: Any) -> None:
        case.headers.update(data)


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Say otherwise what Schemathesis 4.32 can't check in an answer: tuples within `additionalProperties`."""
    points = raw_schema["components"]["schemas"]["ReportContent"]["properties"]["curves"]
    pair = points["additionalProperties"]["items"]
    pair["items"], *_ = pair.pop("prefixItems")


@schemathesis.hook
def filter_query(context: Any, query: dict[str, Any] | None) -> bool:
    """Leave out what is no HTTP to uvicorn, which answers in its own words: a request line of 64 KiB."""
    return len(str(query)) < LONGEST_QUERY


@st.composite
def _agent_files(draw: st.DrawFn) -> bytes:
    """Files of agents, of which some have a value that a record can't have there."""
    values = with_messages(draw(st.integers(0, 12)), draw(st.integers(0, 3)))
    values["agent.json"]["name"] = draw(st.text(max_size=20))
    for _ in range(draw(st.integers(0, 2))):
        part = values[draw(st.sampled_from(sorted(values)))]
        if record := draw(st.sampled_from(part)) if isinstance(part, list) and part else part:
            record[draw(st.sampled_from(sorted(record)))] = draw(ANYTHING)
    return closed(values)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
schemathesis.openapi.media_type("application/zip", _agent_files())


def _keep_from_conflicts(case: Any, route: str) -> None:
    if KEY in case.headers:
        case.headers[KEY] = _fresh(route, case.headers[KEY])
    if case.method.upper() == "POST" and isinstance(case.body, dict) and "name" in case.body:
        case.body = {**case.body, "name": _fresh(f"name of {route}", case.body["name"])}


def _fresh(of: str, value: Any) -> Any:
    """The value, or another one: few are made up, and all but the first request of each would be a conflict."""
    if isinstance(value, str) and (of, value) in taken:
        return f"{value}{next(NUMBERS)}"
    taken.add((of, str(value)))
    return value


def _use(case: Any) -> str:
    if case.operation.path.startswith(OPERATORS):
        return "operator"
    return "deleted" if case.method.upper() == "DELETE" and not _deletes_its_own(case) else "used"


def _deletes_its_own(case: Any) -> bool:
    """Whether it deletes what its chain made, or nothing: such an id isn't always marked as linked."""
    if case.method.upper() != "DELETE" or not _in_a_chain(case):
        return False
    return not USED.intersection(map(str, (case.path_parameters or {}).values()))


def _linked(case: Any) -> bool:
    """Whether it names what an earlier answer of its chain named, and not what all cases use."""
    if not _in_a_chain(case):
        return False
    taken = case._override
    named = [*taken.path_parameters.values(), *taken.query.values()]
    return bool(named) and not USED.intersection(map(str, named))


def _in_a_chain(case: Any) -> bool:
    return case.meta is not None and case.meta.phase.name == "stateful"


def _is_id(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(UUID(value))
    except ValueError:
        return False
