"""Keeps a producer or consumer attached to whichever broker serves its topic.

One task for each: look the owner up, connect, attach, wait until detached, and again. How to
attach, and what to do with a connection, is the producer's and consumer's own knowledge.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from geminga._transport.connection import Connection
from geminga._transport.connection_pool import ConnectionPool
from geminga._transport.lookup import Lookup
from geminga._transport.service_urls import Route
from geminga.errors import BrokerRefused, ClientError, Closed, RequestTimedOut
from geminga_runtime.backoff import Backoff

log = logging.getLogger(__name__)


class Attachable(Protocol):
    """What can be attached to a broker."""

    async def attach(self, connection: Connection) -> None:
        """Ask the broker to take us. Raises ``ClientError``."""
        ...

    def attached(self, connection: Connection) -> None:
        """The broker has taken us, and we may use the connection from now on."""
        ...

    def gave_up(self, error: ClientError) -> None:
        """There will be no further attempt to attach."""
        ...


class Attachment:
    """The life of one producer or consumer as brokers see it.

    Until the first success, an error that asking again cannot mend ends it, and so does
    ``first_timeout_s``. Afterwards it goes on until it is told that it cannot (``is_final``), or
    is stopped by cancelling ``run``.
    """

    def __init__(
        self,
        what: Attachable,
        topic: str,
        lookup: Lookup,
        connections: ConnectionPool,
        backoff: Backoff,
        first_timeout_s: float,
    ) -> None:
        self._what = what
        self._topic = topic
        self._lookup = lookup
        self._connections = connections
        self._backoff = backoff
        self._first_timeout_s = first_timeout_s
        self._loop = asyncio.get_running_loop()
        self._first: asyncio.Future[None] = self._loop.create_future()
        self._connection: Connection | None = None
        self._is_attached = False
        self._detached = asyncio.Event()
        self._attached = asyncio.Event()
        self._next_broker_url: str | None = None
        self._route: Route | None = None  # on which the last broker was reached
        self._end: ClientError | None = None

    async def first(self) -> None:
        """Wait for the first success. Raises the ``ClientError`` that prevented it."""
        await asyncio.shield(self._first)

    async def connection(self, timeout_s: float) -> Connection:
        """The connection we are attached to, waited for if we are not. Raises ``ClientError``."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._connection is None or not self._is_attached:
                    if self._end is not None:
                        raise self._end
                    await self._attached.wait()
        except TimeoutError:
            raise RequestTimedOut(f"attaching to {self._topic}", timeout_s) from None
        return self._connection

    def detached(self, connection: Connection, broker_url: str | None) -> None:
        """The broker let go of us (and may name the next one), or the connection broke."""
        if connection is self._connection:
            self._connection = None
            self._is_attached = False
            self._attached.clear()
            self._next_broker_url = broker_url
            self._detached.set()

    def begin(self, run: asyncio.Task[object]) -> None:
        """``run`` is the task that runs us; it may be cancelled before its first step."""
        run.add_done_callback(lambda _: self._ended(Closed(self._topic)))

    async def run(self) -> None:
        """Attach, and attach again, until it is of no use any more or the task is cancelled."""
        error: ClientError = Closed(self._topic)
        try:
            error = await self._attach_for_ever()
        finally:
            self._ended(error)

    def _ended(self, error: ClientError) -> None:
        if self._end is not None:
            return
        self._end = error
        self._attached.set()  # who waits for a connection must hear that there will be none
        if not self._first.done():
            self._first.set_exception(error)
            self._first.exception()  # nobody may be waiting any more, which is no error
        self._what.gave_up(error)

    async def _attach_for_ever(self) -> ClientError:
        first_deadline = self._loop.time() + self._first_timeout_s
        while True:
            try:
                await self._attach_once()
            except ClientError as error:
                if self._first.done():
                    is_over = isinstance(error, BrokerRefused) and error.is_final
                else:
                    is_over = not error.retry or self._loop.time() >= first_deadline
                if is_over or isinstance(error, Closed):
                    return error
                log.info("not attached yet", extra={"topic": self._topic, "reason": str(error)})
            else:
                await self._detached.wait()
                log.info("detached", extra={"topic": self._topic})
            if self._next_broker_url is None:
                await asyncio.sleep(self._backoff.next_s())

    async def _attach_once(self) -> None:
        url, self._next_broker_url = self._next_broker_url, None
        if url is None or self._route is None:
            route = await self._lookup.owner(self._topic)
        else:
            route = self._route.to(url)
        connection = await self._connections.get(route)
        self._route = route
        self._connection = connection
        self._detached.clear()
        try:
            await self._what.attach(connection)
        except BaseException:
            self._connection = None
            raise
        # The connection may have broken between the answer and this turn of the loop.
        if not self._detached.is_set():
            self._backoff.reset()
            self._is_attached = True
            self._what.attached(connection)
            self._attached.set()
            if not self._first.done():
                self._first.set_result(None)
