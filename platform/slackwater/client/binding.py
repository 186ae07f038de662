"""One definition for both clients: an operation is written once, and called on ``Client`` or awaited on ``AsyncClient``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from slackwater.client.exchange import Flow
from slackwater.client.streams import Follow

if TYPE_CHECKING:
    from slackwater.client.clients import AsyncClient, Client

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list to read page by page: its address and what narrows it."""

    path: str
    query: Mapping[str, Any]


class _Bound(Generic[P, R]):
    """A method whose plain function says what to do; the client it is called on does it."""

    does = ""

    def __init__(self, function: Callable[Concatenate[Any, P], R]) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def bound(self, client: Any) -> Callable[..., Any]:
        """The method of one client."""
        said = MethodType(self._function, client)
        do = getattr(client, self.does)

        @wraps(said)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return do(said(*args, **kwargs))

        return call


class operation(_Bound[P, Flow[T]]):  # noqa: N801 - a decorator
    """Requests that make one result."""

    does = "_run"

    @overload
    def __get__(self, client: Client, owner: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: Any = None) -> operation[P, T]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        return self if client is None else self.bound(client)


class listing(_Bound[P, Listing[T]]):  # noqa: N801 - a decorator
    """A list, read page by page as one goes through it."""

    does = "_items"

    @overload
    def __get__(self, client: Client, owner: Any = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: Any = None) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: Any = None) -> listing[P, T]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        return self if client is None else self.bound(client)


class following(_Bound[P, Follow[T]]):  # noqa: N801 - a decorator
    """A live stream, gone on with where a connection broke."""

    does = "_follow"

    @overload
    def __get__(self, client: Client, owner: Any = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: Any = None) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: Any = None) -> following[P, T]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        return self if client is None else self.bound(client)
