"""Clients that a Python process of Spark keeps: one for each access, for all reads and writes.

Spark runs many short tasks in a process, one after the other; each would have to connect otherwise.
The process does not learn that a query ended (Spark calls no ``stop``): clients live as long as the
process, and brokers close connections that no longer answer.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from geminga import Client
from pyspark_geminga.access import Access

AnswerT = TypeVar("AnswerT")
ItemT = TypeVar("ItemT")

# Few queries with different accesses share a process: the client not used for longest is closed.
CLIENTS_MAX = 16

# The client that was used last comes last. Only the thread in which Spark runs tasks changes it.
_clients: dict[tuple[int, Access], ClientLoop] = {}


def task_client(access: Access) -> ClientLoop:
    """The client of this process for ``access``, for use by one task at a time.

    Its event loop runs in the thread of the caller, and only while the caller waits: decoding and
    IO in two threads would compete for the interpreter's lock.
    """
    # The process id is part of the key: a process that Spark forked must not use the connections of
    # its parent, which it has in memory.
    key = (os.getpid(), access)
    client = _clients.pop(key, None)
    if client is None:
        while len(_clients) >= CLIENTS_MAX:
            # Dictionaries keep the order of insertion: the first was not used for longest.
            _clients.pop(next(iter(_clients))).close()
        client = ClientLoop(access)
    _clients[key] = client  # the newest is last
    return client


# The two kinds of loops:
#
#               ClientLoop                       PlannerLoop
#   runs in     the caller's thread              a thread of its own
#   runs when   the caller waits                 always
#   used by     tasks, and short questions       the planner of a stream
class ClientLoop:
    """A client on an event loop that runs while a caller waits for it."""

    def __init__(self, access: Access) -> None:
        self._loop = asyncio.new_event_loop()
        self.client = self.run(_opened(access))

    def run(self, work: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        """Wait for the result of ``work``."""
        # Between two calls nothing of the client runs, keep-alives included: a connection that the
        # broker has closed meanwhile is opened again by the next work that needs it.
        return self._loop.run_until_complete(work)

    def iterate(self, items: AsyncIterator[ItemT]) -> Iterator[ItemT]:
        """Wait for each of the items, and yield it."""
        # ``anext`` with a default: StopAsyncIteration cannot leave a coroutine as itself.
        end = _End[ItemT]()

        async def following() -> ItemT | _End[ItemT]:
            return await anext(items, end)

        while not isinstance(item := self.run(following()), _End):
            yield item

    def close(self) -> None:
        """Close the client and its loop."""
        # Only while no task uses it: tasks of a process run one after the other.
        self.run(self.client.close())
        self._loop.close()


class PlannerLoop:
    """A client on an event loop in a thread of its own, for the process that plans a query: its
    connections stay alive, and a subscription stays attached, while a batch runs elsewhere."""

    def __init__(self, access: Access) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon thread: nothing closes this object, and Spark has to be able to end the process.
        threading.Thread(target=self._loop.run_forever, name="pyspark_geminga", daemon=True).start()
        self.client = self.run(_opened(access))

    def run(self, work: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        """Wait for the result of ``work``."""
        future = self.begin(work)
        try:
            return future.result()
        finally:
            future.cancel()  # in case the wait was interrupted; a finished future ignores it

    def begin(self, work: Coroutine[Any, Any, AnswerT]) -> Future[AnswerT]:
        """Start ``work``; the caller takes its result later, or cancels it."""
        # ``work`` that raises keeps its error until ``result``: a count ahead that nothing asks for
        # any more fails in silence.
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class _End(Generic[ItemT]):
    """Marks the end of the items; a value of its own, as any other may be an item."""


async def _opened(access: Access) -> Client:
    return await access.connect()
