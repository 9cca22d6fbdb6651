"""Bodies of requests: read as JSON with bounded work, and off the event loop where they are large. And queries: no unknown ones.

Text is cleaned here, at the boundary, before anything looks at it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import APIRouter
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Header, Path
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from memserver.errors import InvalidInput, RequestTooLarge
from memserver.memory.bounded_json import NotTaken, TooManyValues, read_bounded

OPENAI_TAG = "OpenAI's API"
_SMALL = 32_000
_reading = ThreadPoolExecutor(1, thread_name_prefix="bodies")
"""One at a time: the parser lets nothing else run meanwhile, and several in a row would add up."""


class Router(APIRouter):
    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - those of every router
        super().__init__(route_class=_JsonRoute, **settings)


async def read_body(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON value in a body.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it nests deeper than JSON can be read.
        InvalidInput: it holds what is not taken.
        RequestTooLarge: it holds too many values.
    """
    if len(body) <= _SMALL:
        return _read(body)
    return await asyncio.get_running_loop().run_in_executor(_reading, _read, body)


class _JsonRequest(Request):
    read: Any = None
    failure: Exception | None = None

    @override
    async def json(self) -> Any:
        if self.failure is not None:
            raise self.failure
        return self.read


class _JsonRoute(APIRoute):
    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def with_body(request: Request) -> Response:
            self._check_query(request)
            if self.body_field is None:
                return await handle(request)
            asked = _JsonRequest(request.scope, request.receive)
            try:
                asked.read = await read_body(await asked.body())
            except (ValueError, RecursionError) as error:
                asked.failure = error  # which the handler says where it wants JSON
            return await handle(asked)

        return with_body

    def _check_query(self, request: Request) -> None:
        """Refuse what would have no effect, such as a filter that isn't one. OpenAI's clients send what they like."""
        if not request.scope["query_string"] or OPENAI_TAG in self.tags:
            return
        fields = get_flat_params(self.dependant)
        known = [each.alias for each in fields if not isinstance(each.field_info, Path | Header)]
        unknown = [name for name in request.query_params if name not in known]
        if unknown:
            raise InvalidInput(
                f"{unknown[0][:100]}: there is no such parameter.",
                hint=f"The parameters here are {', '.join(known)}."
                if known
                else "There are none here.",
            )


def _read(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return read_bounded(body)
    except TooManyValues as error:
        raise RequestTooLarge(
            f"The request's body can't be taken: {error}.",
            hint="Send it in parts. Commas, colons and brackets are counted, in texts as well.",
        ) from error
    except NotTaken as error:
        raise InvalidInput(f"body: {error}.") from error
