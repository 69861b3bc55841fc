"""One connection to a broker: handshake, keep-alive, requests, and dispatch of what arrives.

Producers and consumers register themselves under their ids, and handle receipts and messages
themselves. A connection never reconnects: it lives once, and the pool makes the next one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, cast

from geminga._transport.requests import LATE_S, Requests
from geminga._transport.service_urls import Route
from geminga.authentication import AuthenticationExchange, credentials_of
from geminga.errors import ClientError, ConnectionLost, RequestTooLarge, refusal
from geminga.tls import CERTIFICATE_WANTED, handshake_failed
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar import features
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import (
    NO_REQUEST_ID,
    PART_NAMES,
    PING,
    PONG,
    encode_command,
    parse_command,
)
from geminga_protocol.pulsar.connect import NO_METHOD
from geminga_protocol.pulsar.frames import (
    FRAME_OVERHEAD_BYTES,
    MAX_MESSAGE_BYTES_DEFAULT,
    FrameReader,
)

log = logging.getLogger(__name__)

# Frames that are larger on average go to the transport one by one: joining them would copy them.
JOINED_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Times of a connection, in seconds."""

    # Long enough for a broker that is just starting to accept the connection and answer.
    connect_timeout_s: float = 10.0
    # Between pings, as upstream; a broker that is silent from one to the next counts as dead.
    ping_interval_s: float = 30.0
    # For a request and its answer, as upstream.
    operation_timeout_s: float = 30.0
    # Whether messages come from another cluster's log: receipts may then name positions there.
    replicates: bool = False


# Called with an entry: its command, and the buffer that has its payload from start to end.
EntryHandler = Callable[[api.CommandMessage, bytes, int, int], None]


class ChannelHandler(Protocol):
    """A producer or consumer as its connection knows it."""

    def detached(self, connection: Connection, broker_url: str | None) -> None:
        """Note that the broker closed the channel, and which broker is next if it named one; or
        that the connection broke."""
        ...


class ProducerHandler(ChannelHandler, Protocol):
    """What a connection tells a producer besides."""

    def receipt(self, receipt: api.CommandSendReceipt) -> None:
        """Take the receipt of a message that is stored."""
        ...

    def send_error(self, error: api.CommandSendError) -> None:
        """Take the error of a message that is not stored."""
        ...


class ConsumerHandler(ChannelHandler, Protocol):
    """What a connection tells a consumer besides."""

    # HOT: takes an entry. An attribute, so that no method stands between the connection and what
    # opens the entry.
    on_entry: EntryHandler

    def told(self, command: BaseCommand) -> None:
        """Take ACTIVE_CONSUMER_CHANGE or REACHED_END_OF_TOPIC."""
        ...


@dataclass(frozen=True, slots=True)
class Login:
    """How a connection shows a broker who the client is."""

    # The name of the method of authentication.
    method: str
    # What CONNECT carries.
    credentials: bytes
    # Answers challenges.
    exchange: AuthenticationExchange
    # Runs what takes time as a task of the connection's owner.
    spawn: Callable[[Coroutine[Any, Any, None]], object]


# The one life of a connection; asyncio calls what is marked with ``*``:
#
#    *connection_made: CONNECT ─▶ [ AUTH_CHALLENGE ─▶ AUTH_RESPONSE, any number of times ]
#                                      │
#         ERROR, or another answer ◀───┴───▶ CONNECTED: ``ready`` returns, pings begin
#                    │                                      │ closed, given up, or broken
#                    ▼                                      ▼
#    *connection_lost, once: requests fail, then channels are detached, then watchers are called
#
# Everything runs in the loop's thread, and only ``ready``, ``closed``, ``request`` and ``_answer``
# await. So a frame is handled as a whole, in the order of the frames.
class Connection(asyncio.Protocol):
    """A connection to one broker, as an asyncio protocol.

    Frames that are written in one turn of the loop leave together at its end: one system call for
    all of them.
    """

    def __init__(
        self, route: Route, options: ConnectionOptions, login: Login | None = None
    ) -> None:
        self.address = route.address
        # How large a payload, or a request, the broker takes: known after the handshake.
        self.max_message_bytes = MAX_MESSAGE_BYTES_DEFAULT
        # By their ids: what the broker sends to an id is handed to the one that is registered.
        # Commands for other ids are dropped, since their producer or consumer was closed.
        self.producers: dict[int, ProducerHandler] = {}
        self.consumers: dict[int, ConsumerHandler] = {}
        # What is called when a list of topics may have changed: one that is watched, or all of them
        # when the connection breaks.
        self.watchers: dict[int, Callable[[], None]] = {}
        # What the broker can do, by the handshake: report changes of lists of topics, and name
        # positions of the source cluster in the receipts of a replicator.
        self.watches_topics = False
        self.tells_source_positions = False
        self._login = login
        # Is a challenge being answered?
        self._is_challenged = False
        self._options = options
        self._proxy_target = route.proxy_target
        self._loop = asyncio.get_running_loop()
        # ``None`` before the stream is open and after it is closed.
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(MAX_MESSAGE_BYTES_DEFAULT + FRAME_OVERHEAD_BYTES)
        self._requests = Requests()
        self._request_ids = itertools.count(1)
        # Frames that leave at the end of this turn of the loop.
        self._outgoing: list[bytes | memoryview] = []
        # Done when the handshake is, and when the stream is closed.
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._ping_timer: asyncio.TimerHandle | None = None
        # Did the broker send anything since the last ping?
        self._is_heard = False
        # Why this side closed the connection, if it did.
        self._end_reason: str | None = None

    # ---- life

    async def ready(self) -> None:
        """Wait for the handshake; raises ``ConnectionLost``, ``TlsFailed`` or ``BrokerRefused``."""
        await asyncio.shield(self._connected)

    @property
    def is_open(self) -> bool:
        """Did the handshake succeed, and is the connection still there?"""
        if self._transport is None or self._transport.is_closing():
            return False
        return self._connected.done() and self._connected.exception() is None

    def close(self) -> None:
        """Close, after what was written has left."""
        # The first reason is the one that explains what follows.
        self._end_reason = self._end_reason or "it was closed here"
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what has not left is lost."""
        if self._transport is not None:
            self._transport.abort()

    async def closed(self) -> None:
        """Wait until the connection is closed, by either side."""
        await asyncio.shield(self._closed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream is open, and secured where it has to be: begin the handshake."""
        if self._closed.done():
            return  # with TLS, the stream may break after it is secured and before this call
        self._transport = cast(asyncio.Transport, transport)
        connect = api.CommandConnect(
            client_version=features.CLIENT_VERSION,
            auth_method_name=NO_METHOD if self._login is None else self._login.method,
            auth_data=None if self._login is None else self._login.credentials,
            protocol_version=features.PROTOCOL_VERSION,
            proxy_to_broker_url=self._proxy_target,
            feature_flags=(
                features.REPLICATION_FEATURES
                if self._options.replicates
                else features.CLIENT_FEATURES
            ),
        )
        self.write(encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect)))

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream is closed: fail the open requests, detach producers and consumers."""
        # From here on ``write`` drops what it is given.
        self._transport = None
        self._outgoing.clear()
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        reason = self._end_reason or exc or "the broker closed it"
        error = ConnectionLost(f"the connection to {self.address} broke: {reason}")
        if not self._connected.done():
            self._connected.set_exception(self._unsecured(exc) or error)
        # ``ready`` raises it where it is awaited; elsewhere asyncio must not report it as lost.
        self._connected.exception()
        # Their callers run only in the next turn of the loop, when every channel below is detached.
        self._requests.fail_all(error)
        # Swapped for empty ones first: a handler that is notified may register with another
        # connection, and one that unregisters here must not change the dict while it is gone
        # through.
        producers, self.producers = self.producers, {}
        consumers, self.consumers = self.consumers, {}
        for producer in producers.values():
            producer.detached(self, None)
        for consumer in consumers.values():
            consumer.detached(self, None)
        watchers, self.watchers = self.watchers, {}
        for changed in watchers.values():
            changed()
        if not self._closed.done():
            self._closed.set_result(None)

    def _unsecured(self, exc: Exception | None) -> ClientError | None:
        """Why a broker with TLS closed the connection before it said anything, if that happened.

        With TLS 1.3 a broker refuses a client's certificate only when the client's handshake is
        over. Often its alert is lost, because the connection is reset while CONNECT is written; but
        a balancer without a broker behind it resets connections too, so that trying again may help.
        """
        if isinstance(exc, ssl.SSLError):
            return handshake_failed(self.address.host, exc)
        # This is asked only before the handshake is over, when no ping has reset ``_is_heard`` yet.
        if not self.address.is_tls or self._is_heard or self._end_reason is not None:
            return None
        return ConnectionLost(
            f"{self.address} closed the connection after the TLS handshake"
            f"{'' if exc is None else f' ({exc})'}: {CERTIFICATE_WANTED}"
        )

    # ---- writing

    def write(self, *frames: bytes | memoryview) -> None:
        """Send whole frames at the end of this turn of the loop. On a connection that breaks or is
        closed they are lost: the channel of a producer keeps its own, and sends them again."""
        if self._transport is None:
            return
        if not self._outgoing:
            # The first frame of a turn; those behind it find the call scheduled.
            self._loop.call_soon(self._flush)
        self._outgoing.extend(frames)

    def _flush(self) -> None:
        frames = self._outgoing
        # The connection may have broken since ``write`` scheduled this call.
        if frames and self._transport is not None:
            size_bytes = sum(map(len, frames))
            if size_bytes > len(frames) * JOINED_BYTES_MAX:
                self._transport.writelines(frames)
            else:
                self._transport.write(b"".join(frames))
        frames.clear()

    async def request(self, command: BaseCommand) -> BaseCommand:
        """Send a command with a request id, which is set here, and wait for its answer.

        Raises ``BrokerRefused``, ``RequestTimedOut``, ``RequestTooLarge``, ``TooManyRequests`` or
        ``ConnectionLost``.
        """
        if self._transport is None:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        # Numbered and encoded before anything is registered: a command that is too large leaves no
        # trace.
        request_id = self._number(command)
        name = BaseCommand.Type.Name(command.type)
        encoded = encode_command(command)
        if len(encoded) > self.max_message_bytes:
            raise RequestTooLarge(name, len(encoded), self.max_message_bytes)
        answer = self._requests.add(request_id, name, self._options.operation_timeout_s)
        try:
            self.write(encoded)
            return await answer
        finally:
            # A caller that is cancelled leaves nothing behind; an answer that comes is dropped.
            self._requests.forget(request_id)

    def tell(self, command: BaseCommand) -> None:
        """Send a command without waiting for its answer, if it has one."""
        if "request_id" in getattr(command, PART_NAMES[command.type]).DESCRIPTOR.fields_by_name:
            # The broker's answer finds no open request, and is dropped (``Requests.answered``).
            self._number(command)
        self.write(encode_command(command))

    def unwatch_topics(self, watcher_id: int) -> None:
        """Have no changes reported any more to this one of ``watchers``."""
        self.watchers.pop(watcher_id, None)
        close = api.CommandWatchTopicListClose(request_id=0, watcher_id=watcher_id)
        self.tell(BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=close))

    def _number(self, command: BaseCommand) -> int:
        """Give a command a request id that this connection did not use before."""
        request_id = next(self._request_ids)
        getattr(command, PART_NAMES[command.type]).request_id = request_id
        return request_id

    # ---- reading

    def data_received(self, data: bytes) -> None:
        """Handle every frame that is complete now."""
        # Any byte counts as a sign of life, also a part of a frame: a large message on a slow line
        # may take longer than the interval of pings.
        self._is_heard = True
        # Payloads are not cut out here: a handler takes what it needs of the buffer.
        try:
            buffer, bounds = self._frames.feed(data)
            for start, end in bounds:
                command, payload_start = parse_command(buffer, start, end)
                self._dispatch(command, buffer, payload_start, end)
        except WireError as error:
            self._give_up(f"it speaks no Pulsar: {error}")

    def _dispatch(self, command: BaseCommand, buffer: bytes, start: int, end: int) -> None:
        """Handle one command; the payload of a MESSAGE is ``buffer[start:end]``."""
        # HOT: nearly all commands are the first two kinds.
        kind = command.type
        if kind == _MESSAGE:
            message = command.message
            consumer = self.consumers.get(message.consumer_id)
            if consumer is not None:
                consumer.on_entry(message, buffer, start, end)
        elif kind == _SEND_RECEIPT:
            producer = self.producers.get(command.send_receipt.producer_id)
            if producer is not None:
                producer.receipt(command.send_receipt)
        elif kind == BaseCommand.PING:
            self.write(PONG)
        elif kind == BaseCommand.AUTH_CHALLENGE:
            self._challenged(command.authChallenge.challenge.auth_data)
        # Until the handshake is over, the only answer to expect is that to CONNECT. Pings and
        # challenges may come before it, and are handled above.
        elif not self._connected.done():
            self._shake_hands(command)
        # An error that answers no request concerns the connection as a whole.
        elif kind == BaseCommand.ERROR and command.error.request_id == NO_REQUEST_ID:
            self._give_up(command.error.message)
        elif not self._requests.answered(command):
            self._dispatch_event(command)

    def _dispatch_event(self, command: BaseCommand) -> None:
        """Hand on a command that answers no request."""
        kind = command.type
        if kind == BaseCommand.SEND_ERROR:
            producer = self.producers.get(command.send_error.producer_id)
            if producer is not None:
                producer.send_error(command.send_error)
        elif kind in (BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER):
            # The broker sends nothing more to it. The channel registers anew when it attaches
            # again, often over this same connection.
            closing: api.CommandCloseProducer | api.CommandCloseConsumer
            closed: ChannelHandler | None
            if kind == BaseCommand.CLOSE_PRODUCER:
                closing = command.close_producer
                closed = self.producers.pop(closing.producer_id, None)
            else:
                closing = command.close_consumer
                closed = self.consumers.pop(closing.consumer_id, None)
            # The next owner, if the broker names one.
            url = closing.assignedBrokerServiceUrl
            if self.address.is_tls:
                url = closing.assignedBrokerServiceUrlTls
            if closed is not None:
                closed.detached(self, url or None)
        elif kind == BaseCommand.WATCH_TOPIC_UPDATE:
            changed = self.watchers.get(command.watchTopicUpdate.watcher_id)
            if changed is not None:
                changed()
        elif kind in (BaseCommand.ACTIVE_CONSUMER_CHANGE, BaseCommand.REACHED_END_OF_TOPIC):
            # Both parts have the id under the same name.
            consumer = self.consumers.get(getattr(command, PART_NAMES[kind]).consumer_id)
            if consumer is not None:
                consumer.told(command)
        elif kind != BaseCommand.PONG:
            log.debug("command ignored", extra={"command": BaseCommand.Type.Name(kind)})

    def _shake_hands(self, command: BaseCommand) -> None:
        """Take the answer to CONNECT: the end of the handshake, unless a challenge came first."""
        if command.type == BaseCommand.ERROR:
            self._connected.set_exception(refusal(command.error.error, command.error.message))
            self.close()
        elif command.type != BaseCommand.CONNECTED:
            self._give_up(f"it answers CONNECT with {BaseCommand.Type.Name(command.type)}")
        else:
            if command.connected.max_message_size > 0:
                self.max_message_bytes = command.connected.max_message_size
                # It may allow larger messages than the default, and delivers them to this client,
                # too.
                self._frames.frame_bytes_max = self.max_message_bytes + FRAME_OVERHEAD_BYTES
            flags = command.connected.feature_flags
            self.watches_topics = flags.supports_topic_watchers
            self.tells_source_positions = flags.supports_repl_dedup_by_lid_and_eid
            self._ping_timer = self._loop.call_later(self._options.ping_interval_s, self._ping)
            # Last, so that a caller of ``ready`` finds the limits and features of this broker.
            self._connected.set_result(None)

    def _challenged(self, question: bytes) -> None:
        """Answer a broker that asks who the client is: in the handshake, or when what it was shown
        expires."""
        if self._login is None:
            if self._connected.done():
                return  # it has accepted a client without credentials
            self._give_up("it asks who the client is, and there is no authentication=")
        elif self._is_challenged:
            self._give_up("it asks for credentials before it has those that it asked for")
        else:
            # The next step of the exchange takes time (a token is fetched from a server, for
            # example), so that it runs as a task; frames are handled meanwhile.
            self._is_challenged = True
            self._login.spawn(self._answer(self._login, question))

    async def _answer(self, login: Login, question: bytes) -> None:
        try:
            answer = await credentials_of(login.method, login.exchange.answer(question))
        except ClientError as error:
            if not self._connected.done():
                self._connected.set_exception(error)
            self._give_up(str(error))
            return
        finally:
            self._is_challenged = False
        response = api.CommandAuthResponse(
            client_version=features.CLIENT_VERSION,
            response=api.AuthData(auth_method_name=login.method, auth_data=answer),
            protocol_version=features.PROTOCOL_VERSION,
        )
        self.write(
            encode_command(BaseCommand(type=BaseCommand.AUTH_RESPONSE, authResponse=response))
        )

    def _ping(self) -> None:
        """Check that the broker lives, and ping it again; any frame since the last ping will do."""
        assert self._ping_timer is not None
        # A loop that was blocked may run its timers before it reads: what came meanwhile counts.
        is_punctual = self._loop.time() <= self._ping_timer.when() + LATE_S
        if not self._is_heard and is_punctual:
            self._give_up(f"it was silent for {self._options.ping_interval_s:g} s after a ping")
            return
        # From here on only what comes behind this ping counts.
        self._is_heard = False
        self.write(PING)
        self._ping_timer = self._loop.call_later(self._options.ping_interval_s, self._ping)

    def _give_up(self, reason: str) -> None:
        """Abort the connection, and keep the reason for those that wait for it."""
        log.warning("broker given up", extra={"broker": str(self.address), "reason": reason})
        # ``abort`` only begins the end: ``connection_lost`` follows in a later turn.
        self._end_reason = reason
        self.abort()


# Looked up once: an attribute of a protobuf class costs a search through its enums.
_MESSAGE = BaseCommand.MESSAGE
_SEND_RECEIPT = BaseCommand.SEND_RECEIPT
