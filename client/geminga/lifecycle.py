"""How clients, producers and consumers are opened and closed, by ``async with`` or ``await``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

OpenedT = TypeVar("OpenedT", bound=AbstractAsyncContextManager[Any, None])


# The coroutine is made with the call, and runs when it is awaited. So wrong options raise at the
# call, and errors of brokers where the opening is awaited.
class Opening(Generic[OpenedT]):
    """What ``connect``, ``Client.producer`` and their like return: something to be opened, once.

    `async with client.producer("orders") as producer:` opens it, and closes it at the end of the
    block. `producer = await client.producer("orders")` opens it and leaves closing to
    ``producer.close()``. Both raise what opening raises.

    Python warns about an ``Opening`` that is never awaited: nothing was opened.
    """

    __slots__ = ("_opened", "_work")

    def __init__(self, work: Coroutine[Any, Any, OpenedT]) -> None:
        self._work = work
        self._opened: OpenedT | None = None

    # Hidden from type checkers, which would take any attribute for one that exists.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise AttributeError(
                f"{name!r} of something that is not open yet: await it first, or enter it with "
                "`async with`",
                name=name,
                obj=self,
            )

    def __await__(self) -> Generator[Any, None, OpenedT]:
        return self._work.__await__()

    async def __aenter__(self) -> OpenedT:
        # A coroutine runs once: entering a second time raises Python's own error. Kept for the end
        # of the block only: ``await`` leaves closing to its caller.
        self._opened = await self._work
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._opened is not None
        # With the error of the block: a producer raises the errors of its messages only where no
        # other one is under way.
        await self._opened.__aexit__(kind, error, trace)


class AsyncClosable(ABC):
    """What ``async with`` closes at the end of its block, whatever ended the block.

    An instance is open already: entering does nothing.
    """

    __slots__ = ()

    @abstractmethod
    async def close(self) -> None:
        """Close it. Closing twice is harmless."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Whatever ended the block: a broker would refuse the next consumer, or producer of this
        # name, while this one is open.
        await self.close()
