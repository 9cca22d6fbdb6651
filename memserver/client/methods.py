"""What a resource's methods are: each makes a request, which a `Client` sends and waits for, and an `AsyncClient` awaits.

So every method stands in one table, for both clients. The transport of the client decides what a method returns.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from types import FunctionType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, get_origin, overload

from memserver.client.awaiting import AsyncStream, AsyncTransport
from memserver.client.blocking import Stream, Transport
from memserver.client.models import Page
from memserver.client.requests import Request

P = ParamSpec("P")
T = TypeVar("T")
TransportT = TypeVar("TransportT", bound=Transport | AsyncTransport)


class Resource(Generic[TransportT]):
    """A group of methods of the client."""

    def __init__(self, transport: TransportT) -> None:
        self.transport = transport


class _Sending(Generic[P, T]):
    def __init__(self, build: Callable[Concatenate[Any, P], Request[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__
        self.options = _options_of(build)

    def __set_name__(self, owner: type, name: str) -> None:
        """Have Python's own errors name the method that was called, where two are built alike, as list and all."""
        build = self.build
        if name != build.__name__:
            self.build = FunctionType(
                build.__code__, build.__globals__, name, build.__defaults__, build.__closure__
            )
            self.build.__dict__.update(build.__dict__)
            self.build.__kwdefaults__ = build.__kwdefaults__
            self.build.__annotations__ = build.__annotations__
            self.build.__doc__, self.build.__qualname__ = build.__doc__, f"{owner.__name__}.{name}"

    def _bind(self, resource: Resource[Any], send: Callable[[Request[T]], Any]) -> Callable[P, Any]:
        @wraps(self.build.__get__(resource))
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401 - the overloads say what
            for name in kwargs:
                if self.options is not None and name not in self.options:
                    method_name = self.build.__qualname__
                    raise TypeError(f"{method_name}() got an unexpected keyword argument {name!r}")
            return send(self.build(resource, *args, **kwargs))

        return method


class method(_Sending[P, T]):  # noqa: N801 - a decorator, as property
    """A method that sends the request and returns what it is answered."""

    @overload
    def __get__(self, resource: Resource[Transport], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, resource: Resource[AsyncTransport], owner: type
    ) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, resource: Resource[Any], owner: type) -> Callable[P, Any]:
        return self._bind(resource, resource.transport.run)


class items(_Sending[P, Page[T, Any]]):  # noqa: N801
    """A method that iterates over a whole list, requesting page after page."""

    @overload
    def __get__(self, resource: Resource[Transport], owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(
        self, resource: Resource[AsyncTransport], owner: type
    ) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, resource: Resource[Any], owner: type) -> Callable[P, Any]:
        return self._bind(resource, resource.transport.items)


class streamed(_Sending[P, None]):  # noqa: N801
    """A method that follows a turn as events; the request is sent with the first `next`."""

    @overload
    def __get__(self, resource: Resource[Transport], owner: type) -> Callable[P, Stream]: ...
    @overload
    def __get__(
        self, resource: Resource[AsyncTransport], owner: type
    ) -> Callable[P, AsyncStream]: ...
    def __get__(self, resource: Resource[Any], owner: type) -> Callable[P, Any]:
        return self._bind(resource, resource.transport.stream)


def _options_of(build: Callable[..., Any]) -> set[str] | None:
    """All names of arguments, where some are those of a TypedDict, which Python doesn't check itself."""
    specification = inspect.getfullargspec(build)
    if specification.varkw is None:
        return None
    (options,) = get_args(specification.annotations[specification.varkw])
    names = (get_origin(options) or options).__annotations__
    return {*specification.args, *specification.kwonlyargs, *names}
