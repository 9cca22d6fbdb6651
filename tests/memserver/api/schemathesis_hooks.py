"""What schemathesis can't find out from the document: ids of things that there are. It loads this by its name.

A case that names a thing by an id that could be one mostly gets one that is, so that routes do their work. What
deletes goes to another tenant's things: they are there for the first time, and what the rest uses stays. In a chain
of requests what an earlier one made is used, and deleted, by the later ones.
"""

import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import schemathesis

THINGS = json.loads(Path(os.environ["THINGS"]).read_text(encoding="utf-8"))
"""`used` and `deleted`: each with the `headers` of a key, and the `ids` by route."""
WITHIN = {"turn", "section", "position", "label"}
"""Parameters that name a thing only within another one."""
USED = {
    value
    for ids in THINGS["used"]["ids"].values()
    for name, value in ids.items()
    if name not in WITHIN
}
NAMES = {"section", "name", "turn", "tenant", "model", "response_id", "call_id"}
"""Parameters that are no UUIDs."""
KEY = "Idempotency-Key"
"""Made up, it is one of a few, and all but the first request of each would be refused as a conflict."""
LONGEST_QUERY = 5000
EVERY = 4
"""Of so many cases one keeps what was made up."""


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Put ids into the case."""
    route = f"{case.method.upper()} {case.operation.path}"
    linked = _linked(case)
    things = THINGS["deleted" if case.method.upper() == "DELETE" and not linked else "used"]
    for name, value in things["headers"].items():
        case.headers[name] = value
    made_up = json.dumps([case.path_parameters, case.query, str(case.body)], default=str)
    if sum(made_up.encode()) % EVERY == 0:
        return
    if KEY in case.headers:
        case.headers[KEY] = str(uuid4())
    if linked:
        return
    ids = things["ids"].get(route, {})
    for name, value in (case.path_parameters or {}).items():
        if name in ids and (name in NAMES or _is_id(value)):
            case.path_parameters[name] = ids[name]
    if isinstance(case.body, dict):
        for name, value in case.body.items():
            if name in ids and ((name == "model" and isinstance(value, str)) or _is_id(value)):
                case.body[name] = ids[name]


@schemathesis.hook
def filter_query(context: Any, query: dict[str, Any] | None) -> bool:
    """Leave out what is no HTTP to uvicorn, which answers in its own words: a request line of 64 KiB."""
    return len(str(query)) < LONGEST_QUERY


def _linked(case: Any) -> bool:
    """Whether it names what an earlier answer of its chain named, and not what all cases use."""
    if case.meta is None or case.meta.phase.name != "stateful":
        return False
    taken = case._override
    named = [*taken.path_parameters.values(), *taken.query.values()]
    return bool(named) and not USED.intersection(map(str, named))


def _is_id(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(UUID(value))
    except ValueError:
        return False
