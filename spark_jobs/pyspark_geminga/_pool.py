"""Clients that a Python process of Spark's keeps: one for each access, whatever reads or writes.

Spark runs many short tasks in a process, one after the other; each would connect anew otherwise.
Nothing tells the process that a query ended (Spark calls no ``stop``): clients live as long as it
does, and brokers close connections that no longer answer.
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

# Queries with other accesses in one process are few: the oldest client goes.
CLIENTS_MAX = 16

_clients: dict[tuple[int, Access], ClientLoop] = {}


def task_client(access: Access) -> ClientLoop:
    """The client of this process for ``access``, for a task: its event loop runs in the thread of
    the caller, and only while the caller waits. Decoding needs no second thread then, and hands no
    interpreter lock to and fro."""
    # Of a process that Spark forked: its parent's connections are not its own.
    key = (os.getpid(), access)
    client = _clients.pop(key, None)
    if client is None:
        while len(_clients) >= CLIENTS_MAX:
            _clients.pop(next(iter(_clients))).close()
        client = ClientLoop(access)
    _clients[key] = client  # the newest is last
    return client


class ClientLoop:
    """A client on an event loop that runs while a caller waits for it."""

    def __init__(self, access: Access) -> None:
        self._loop = asyncio.new_event_loop()
        self.client = self.run(_opened(access))

    def run(self, work: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        """Wait for the result of ``work``."""
        return self._loop.run_until_complete(work)

    def iterate(self, items: AsyncIterator[ItemT]) -> Iterator[ItemT]:
        """The items, one after the other, waited for."""
        end = _End[ItemT]()
        while not isinstance(item := self.run(_next(items, end)), _End):
            yield item

    def close(self) -> None:
        """Close the client and its loop."""
        self.run(self.client.close())
        self._loop.close()


class PlannerLoop:
    """A client on an event loop in a thread of its own, for the process that plans a query: its
    connections stay alive, and a subscription stays attached, while a batch runs elsewhere."""

    def __init__(self, access: Access) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: Spark ends the process without a word.
        threading.Thread(target=self._loop.run_forever, name="pyspark_geminga", daemon=True).start()
        self.client = self.run(_opened(access))

    def run(self, work: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        """Wait for the result of ``work``."""
        future = self.begin(work)
        try:
            return future.result()
        finally:
            future.cancel()  # where the wait was interrupted; what is done stays done

    def begin(self, work: Coroutine[Any, Any, AnswerT]) -> Future[AnswerT]:
        """Do ``work`` meanwhile; the caller takes its result or cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class _End(Generic[ItemT]):
    """Stands behind the last item."""


async def _next(items: AsyncIterator[ItemT], end: _End[ItemT]) -> ItemT | _End[ItemT]:
    return await anext(items, end)


async def _opened(access: Access) -> Client:
    return await access.connect()
