"""One client's session: what the handlers of its commands, its producers and consumers work on.

The session puts together what a connection is made of (outbox, back-pressure, liveness, requests)
and holds what is known of the client. It knows no handler: ``connection`` gives it to all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.ownership.errors import ListenerMissing
from geminga_broker.sessions.back_pressure import BackPressure
from geminga_broker.sessions.command_rules.states import State
from geminga_broker.sessions.context import SessionContext
from geminga_broker.sessions.liveness import Liveness
from geminga_broker.sessions.outbox import Outbox
from geminga_broker.sessions.requests import Requests
from geminga_protocol.pulsar.connect import Forwarded
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_server.authorization import Action, Principal, Resource

log = logging.getLogger(__name__)


class Session:
    """The broker's end of one connection, from its first byte on; a ``ClientSession``.

    ``listener`` is the advertised listener whose bind address the client connected to; "" is the
    internal one.
    """

    def __init__(
        self, context: SessionContext, transport: asyncio.Transport, listener: str = ""
    ) -> None:
        # None for a transport whose peer has gone already.
        peer = transport.get_extra_info("peername")
        self.context = context
        self.listener = listener
        # ``host`` is what connections are limited by; ``address`` is as upstream shows it in stats.
        # Behind a proxy both are the proxy's.
        self.host = str(peer[0]) if peer else "unknown"
        self.address = f"/{peer[0]}:{peer[1]}" if peer else "/unknown"
        self.state = State.STARTED
        # None until the client is connected. After that no handler needs to check for None: the
        # commands that authorize something are taken in the state CONNECTED only.
        self.principal: Principal | None = None
        # What CONNECT says, and empty until it came.
        self.client_version = ""
        # The lower one of what the client and this broker speak (``agreed_version``).
        self.protocol_version = 0
        # Whether messages are sent with the metadata that the broker wrote in front of their entry.
        self.gets_broker_entries = False
        # The client is a replicator of another cluster that numbers its messages by their positions
        # in its log; its receipts then name these positions.
        self.tells_source_positions = False
        # What a proxy said of the client it connects for.
        self.forwarded: Forwarded | None = None
        # Neither slow nor closed. An attribute, as dispatchers read it with every run of messages.
        self.is_writable = True
        self._outbox = Outbox(transport, context.config)
        self._pressure = BackPressure(
            transport, context.publish_buffer, context.clock, context.config
        )
        self._requests = Requests(
            self._outbox,
            self._pressure,
            address=self.address,
            timeout_s=context.operation_timeout_s,
        )
        self.liveness = Liveness(
            self._outbox,
            self._pressure,
            keepalive_s=context.config.keepalive_s,
            check_s=context.liveness_check_s,
            give_up=self.give_up,
        )
        # Methods of the parts, bound once. HOT: methods of the session around them would cost
        # several calls with every run of messages.
        self.out = self._outbox.frames
        self.send = self._outbox.send
        self.delivered = self._outbox.delivered
        self.published = self._pressure.published
        self.confirmed = self._pressure.confirmed
        self.throttle = self._pressure.throttle
        self.review_pressure = self._pressure.review
        self.is_alive = self.liveness.is_alive
        self.start = self._requests.start
        self.fail = self._requests.fail
        self.refuse = self._requests.refuse
        self.cancel_requests = self._requests.cancel

    async def authorize(self, action: Action, resource: Resource) -> None:
        """Raise ``NotAuthorized`` where this client may not do that."""
        assert self.principal is not None
        await self.context.authorize(self.principal, action, resource)

    def send_when_moved(self, name: TopicName, close: Callable[..., bytes]) -> None:
        """Tell the client that a topic closed its producer or consumer.

        ``close`` encodes that, with the URLs of the next broker where there are any. A topic that
        is being handed on has a next broker, which may not be known yet: the client is told once it
        is, for before that it would look the topic up in vain.
        """
        successor = self.context.topics.successors.get(name)
        if successor is None:
            self.send(close())
            return

        # A callback, which keeps the session in memory at most until the hand-over ends: the
        # successor always gets a result (``TopicDirectory.unload_where``). On a connection that is
        # closed meanwhile ``send`` drops the frame.
        def moved(done: asyncio.Future[Owner | None]) -> None:
            owner = done.result()
            try:
                # The addresses of the listener through which this client came: those of another one
                # may not be reachable for it.
                there = None if owner is None else owner.at_listener(self.listener)
            except ListenerMissing:
                there = None  # the next broker has no address for this client: it looks it up
            urls: dict[str, str | None] = {}
            if there is not None:
                urls["broker_url"] = there.broker_url or None
                urls["broker_url_tls"] = there.broker_url_tls or None
            self.send(close(**urls))

        successor.add_done_callback(moved)

    def pause_writing(self) -> None:
        """Send consumers nothing for now: the client reads more slowly than the broker writes.

        Its commands are not read either, for their answers would only queue up.
        """
        # Dispatchers stop in the same turn. What they have put in the outbox before is bounded by
        # ``unflushed_bytes_max``.
        self.is_writable = False
        self._pressure.is_client_slow = True
        self._pressure.review()

    def resume_writing(self) -> None:
        """Serve the client as before: it caught up."""
        # The transport also calls this while it empties its buffer for closing.
        self.is_writable = self.state is not State.CLOSED
        self.liveness.unsent_bytes = 0
        self._pressure.is_client_slow = False
        self._pressure.review()

    def close(self) -> None:
        """Write what is queued, then close the connection."""
        # First the bytes, then the state: answers that were queued before are still sent.
        self._outbox.close()
        self._closed()

    def close_because(self, reason: str) -> None:
        """Close the connection, and log why."""
        log.info("connection closed", extra={"client": self.address, "reason": reason})
        self.close()

    def give_up(self, reason: str) -> None:
        """End the connection of a client that may never take what is queued for it."""
        self.close_because(reason)
        # Closing alone would wait for the client to take what is queued. ``connection_lost``
        # follows, as after any other end.
        self._outbox.abort()

    def lost(self) -> None:
        """Drop what is queued: the connection is over.

        What its client's commands have started is cancelled separately (``cancel_requests``), once
        the handlers have let go of their producers and consumers.
        """
        # No write any more: the transport is gone, and would only log it.
        self._outbox.is_closed = True
        self._closed()
        self.liveness.end()

    def _closed(self) -> None:
        self.state = State.CLOSED
        self.is_writable = False
        # Bytes that are pending are counted off by their producers, when they leave or are
        # confirmed.
        self._pressure.close()
