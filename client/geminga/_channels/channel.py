"""Channels: producers and consumers as brokers see them, kept attached to the owner of their topic.

One task for each channel: look the owner up, connect, attach, wait until detached, and again.
``ProducerChannel`` and ``ConsumerChannel`` know the command by which they attach, and what happens
once a broker has accepted it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from geminga._channels.registry import Channels
from geminga._transport.connection import Connection
from geminga._transport.service_urls import Route
from geminga.errors import (
    BrokerRefused,
    ClientError,
    Closed,
    NotConnected,
    RequestTimedOut,
)
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.topics.topic_names import TopicName

log = logging.getLogger(__name__)


# The states of a channel, by its fields:
#
#              ┌──────── a delay (_backoff); none if the last owner named the next ◀──┐
#              ▼                                                                      │
#    looking up, connecting       _asked is None                        ── failed ────┤
#              │                                                                      │
#              ▼                                                                      │
#    asking a broker              _asked is set, _connection is None    ── refused ───┤
#              │ accepted                                                             │
#              ▼                                                                      │
#    attached                     _asked and _connection are the same   ── detached ──┘
#
# ``end`` leads out of each of them, for good: ``error`` is set, both connections are ``None``. A
# connection has the channel in its directory while it is ``_asked``. Where the two differ for a
# moment, ``detached`` ignores a connection that is not the asked one.
class Channel(ABC):
    """The life of one producer or consumer.

    Until a broker has accepted it once, the channel ends with an error that asking again cannot
    mend, and when the time for an operation is over. Afterwards it attaches again until a broker's
    error is final (``is_final``), until it has tried for ``reconnect_timeout_s``, or until it is
    closed. ``error`` then says why it ended.

    A client may have ten thousand. Of more than 30 attributes a dictionary would take 1.6 KB, and
    each event 0.8 KB, so that there are slots, and events only where something waits.
    """

    __slots__ = (
        "_asked",
        "_attached",
        "_backoff",
        "_channels",
        "_close_timeout_s",
        "_connection",
        "_detached",
        "_first",
        "_loop",
        "_next_broker_url",
        "_route",
        "_run",
        "attachments",
        "error",
        "id",
        "on_close",
        "on_end",
        "title",
        "topic",
    )

    def __init__(
        self, channels: Channels, topic: TopicName, title: str, close_timeout_s: float
    ) -> None:
        self.topic = topic
        # What brokers call the channel by, on whatever connection.
        self.id = next(channels.ids)
        # What logs and errors call it by.
        self.title = title
        # Why the channel ended; ``None`` until then.
        self.error: ClientError | None = None
        # How often a broker has accepted the channel.
        self.attachments = 0
        # Both are set by the owner, before ``open``. The first is called with the reason when the
        # channel ends, the second when the client closes, to close the channel.
        self.on_end: Callable[[ClientError], None] = lambda _: None
        self.on_close: Callable[[], Awaitable[None]] = self.close
        self._channels = channels
        self._close_timeout_s = close_timeout_s
        self._backoff = channels.backoff()
        self._loop = asyncio.get_running_loop()
        # The task that keeps the channel attached.
        self._run: asyncio.Task[object] | None = None
        # Done once a broker has accepted the channel for the first time, or it has ended.
        self._first: asyncio.Future[None] = self._loop.create_future()
        # Set while a broker has accepted the channel; ``_asked`` is set before that, as soon as the
        # channel asks a broker to accept it.
        self._connection: Connection | None = None
        self._asked: Connection | None = None
        # Requests wait for the first, the task that keeps the channel attached for the second.
        self._attached: asyncio.Event | None = None
        self._detached: asyncio.Future[None] | None = None
        # The next owner, where the last one named it: it needs no lookup, and no delay.
        self._next_broker_url: str | None = None
        self._route: Route | None = None  # on which the last broker was reached

    # ---- what the two kinds of channels know

    @abstractmethod
    def _directory(self, connection: Connection) -> MutableMapping[int, Any]:
        """Where a connection finds the channels of this kind, by their ids: it hands a channel what
        the broker sends to it, as long as the channel is in there."""

    @abstractmethod
    def _attach_command(self) -> BaseCommand:
        """The command that asks a broker to accept the channel."""

    @abstractmethod
    def _close_command(self) -> BaseCommand:
        """The command that tells a broker that the channel is over, or leaves for a while."""

    @abstractmethod
    def _resume(self, connection: Connection) -> None:
        """Go on over ``connection``, with what was interrupted first."""

    def _accepted(self, answer: BaseCommand) -> None:  # noqa: B027  # not all answers say more
        """Remember what the broker said when it accepted the channel."""

    def _ended(self, error: ClientError) -> None:  # noqa: B027  # not all channels have waiters
        """Fail what still waits: the channel is over, and the connection is gone."""

    # ---- life

    @property
    def is_connected(self) -> bool:
        """Does a broker serve the channel at this moment?"""
        return self._connection is not None

    def check_open(self) -> None:
        """Raise the error that ended the channel, if one did."""
        if self.error is not None:
            raise self.error

    async def open(self) -> None:
        """Have a broker accept the channel, and keep it attached from then on.

        Raises the ``ClientError`` for which no broker accepted it.
        """
        self._run = self._channels.run(self.id, self.title, self.on_close, self._keep_attached())
        # The task may be cancelled before its first step: only its end is certain.
        self._run.add_done_callback(lambda _: self.end(Closed(self.title)))
        try:
            await asyncio.shield(self._first)
        except asyncio.CancelledError:
            connection = self._connection
            self.end(Closed(self.title))
            if connection is not None:
                # The broker has just accepted the channel, and would refuse it the next time.
                connection.tell(self._close_command())
            raise

    async def close(self) -> None:
        """End the channel, then tell the broker. Closing twice is harmless."""
        # Read before ``end`` clears it.
        connection = self._connection
        self.end(Closed(self.title))
        if connection is not None:
            with suppress(TimeoutError, ClientError):
                async with asyncio.timeout(self._close_timeout_s):
                    # Waited for, since the broker then accepts the next producer of this name, or
                    # consumer of this subscription. Whatever the answer is, the channel is over.
                    await connection.request(self._close_command())

    def end(self, error: ClientError) -> None:
        """Attach no more. The first call counts; the broker is not told."""
        if self.error is not None:
            return
        # Set before everything else: the callbacks below, and the requests that wake up, all look
        # at it.
        self.error = error
        if self._connection is not None:
            self._directory(self._connection).pop(self.id, None)
        self._connection = self._asked = None
        self._wake_requests()  # so that they fail: there will be no connection
        if not self._first.done():
            self._first.set_exception(error)
            self._first.exception()  # the caller of ``open`` may be gone, which is no error
        # Cancelling is safe where ``end`` is called from the task itself: it returns right behind
        # that call.
        if self._run is not None:
            self._run.cancel()
        # What was sent fails first, and then, by the owner, what was not sent yet: callbacks are
        # called in the order of sending.
        self._ended(error)
        self.on_end(error)

    def leave(self) -> None:
        """Leave the broker and attach again: the broker then begins anew."""
        connection = self._connection
        if connection is not None:
            self._directory(connection).pop(self.id, None)
            connection.tell(self._close_command())
            # As if the broker had let go of the channel: the task then attaches it anew.
            self.detached(connection, None)

    def detached(self, connection: Connection, broker_url: str | None) -> None:
        """The broker let go of the channel (and may name the next one), or the connection broke."""
        # Else it is an old connection, which the channel has left already.
        if connection is self._asked:
            self._connection = self._asked = None
            self._next_broker_url = broker_url
            if self._detached is not None and not self._detached.done():
                self._detached.set_result(None)

    async def _attached_connection(self, timeout_s: float) -> Connection:
        """The connection to the broker that serves the channel, waited for if there is none.

        Raises ``RequestTimedOut``, or the error that ended the channel.
        """
        try:
            async with asyncio.timeout(timeout_s):
                # A loop, since the channel may be detached again between the event and this turn.
                while self._connection is None:
                    self.check_open()
                    if self._attached is None:
                        self._attached = asyncio.Event()
                    await self._attached.wait()
        except TimeoutError:
            raise RequestTimedOut(f"attaching to {self.topic}", timeout_s) from None
        return self._connection

    def _wake_requests(self) -> None:
        """There is a connection, or will be none."""
        if self._attached is not None:
            self._attached.set()
            self._attached = None

    # ---- attaching

    async def _keep_attached(self) -> None:
        """Attach, wait until detached, and attach again, until the channel ends."""
        options = self._channels.options
        # That of ``open``. Each time that the channel loses its broker later on sets another one.
        deadline_s = self._loop.time() + options.connection.operation_timeout_s
        while True:
            try:
                await self._attach()
            except ClientError as error:
                # Only after an attempt: a loop that was blocked past the deadline makes one first.
                if (reason := self._given_up(error, deadline_s)) is not None:
                    self.end(reason)
                    return
                log.info("not attached yet", extra={"topic": str(self.topic), "reason": str(error)})
            else:
                attached_s = self._loop.time()
                # The broker may have let go of the channel since it accepted it, before there was a
                # future to be told by: then there is nothing to wait for.
                while self._asked is not None:
                    self._detached = self._loop.create_future()
                    await self._detached
                log.info("detached", extra={"topic": str(self.topic)})
                now_s = self._loop.time()
                # Delays grow on while attachments last only for a moment: a broker that accepts
                # everything and fails at once must not be asked without end.
                if now_s >= attached_s + options.reconnect_limit_s:
                    self._backoff.reset()
                timeout_s = options.reconnect_timeout_s
                deadline_s = math.inf if timeout_s is None else now_s + timeout_s
            # A broker that hands a topic over may name its next owner: waiting would only make the
            # gap longer. If that attempt fails, the name is used up, and a delay follows.
            if self._next_broker_url is None:
                left_s = max(deadline_s - self._loop.time(), 0.0)
                await asyncio.sleep(min(self._backoff.next_s(), left_s))

    def _given_up(self, error: ClientError, deadline_s: float) -> ClientError | None:
        """Why the channel ends with this failed attempt; ``None`` if there will be another."""
        is_late = self._loop.time() >= deadline_s
        # The client is being closed: its pool makes no more connections.
        if isinstance(error, Closed):
            return error
        if not self._first.done():
            # The caller of ``open`` waits, and can mend a wrong name or a missing permission.
            return error if is_late or not error.retry else None
        # An open channel outlasts errors that may be mended meanwhile, a revoked permission too.
        if isinstance(error, BrokerRefused) and error.is_final:
            return error
        if not is_late:
            return None
        timeout_s = self._channels.options.reconnect_timeout_s
        given_up = NotConnected(
            f"{self.title} lost its broker, and none accepted it again within {timeout_s:g} s: "
            f"{error}"
        )
        given_up.__cause__ = error
        return given_up

    async def _attach(self) -> None:
        """Find the topic's owner and have it accept the channel. Raises ``ClientError``."""
        url, self._next_broker_url = self._next_broker_url, None
        if url is None or self._route is None:
            route = await self._channels.lookup.owner(str(self.topic))
        else:
            route = self._route.to(url)
        connection = await self._channels.pool.get(route)
        self._route = route
        self._asked = connection
        # Registered before the broker is asked. A consumer's first messages, or the broker's word
        # that it lets go again, may come in the same read as its answer.
        self._directory(connection)[self.id] = self
        try:
            answer = await connection.request(self._attach_command())
        except BaseException as error:
            self._asked = None
            self._directory(connection).pop(self.id, None)
            if isinstance(error, RequestTimedOut | asyncio.CancelledError):
                # The broker may accept the channel yet, and would then refuse it the next time.
                connection.tell(self._close_command())
            raise
        # What the answer says is kept even if the connection has broken since: the broker has, for
        # example, chosen the name that the next attempt must use.
        self._accepted(answer)
        # The connection may have broken between the answer and this turn of the loop.
        if self._asked is connection:
            # Only here: whatever sends looks at ``_connection``, and may write nothing before the
            # broker knows the channel.
            self._connection = connection
            self.attachments += 1
            # What was interrupted goes first. Requests that wait for a connection are woken behind
            # it: an acknowledgement or a message that is sent again must not be overtaken.
            self._resume(connection)
            self._wake_requests()
            if not self._first.done():
                self._first.set_result(None)
