"""The connections of one client: one to each broker, shared by all its producers and consumers.

Connecting happens here, with and without TLS, and so does the pace of it: a broker that is away is
not asked by each of ten thousand producers.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass

from geminga._transport.connection import Connection, ConnectionOptions, Login
from geminga._transport.service_urls import Route
from geminga.authentication import Authentication, credentials_of
from geminga.errors import ClientError, Closed, ConnectionLost, NotConnected
from geminga.tls import Tls, handshake_failed
from geminga_runtime.network import Network
from geminga_runtime.service import Service

# For what is still to be written when the client closes: a broker that does not read must not hold
# up closing for longer.
CLOSE_TIMEOUT_S = 1.0

# Each producer and consumer retries by its own timer. Of ten thousand there is always one that
# does, so that a broker which is away, or accepts and fails, would be asked without a pause.
# Attempts at one address are therefore at least so far apart: the delay doubles from the first to
# the limit, and is the first again when no attempt was made for a while.
PACE_FIRST_S = 0.1
PACE_LIMIT_S = 1.0
PACE_FORGOTTEN_S = 5.0


@dataclass(slots=True)
class _Pace:
    """The last attempt to connect to one address."""

    # When it began, in seconds of the loop's clock.
    begun_s: float
    # No other attempt begins for so long.
    delay_s: float = PACE_FIRST_S
    # What is raised meanwhile: why the attempt failed, or that its connection did not last.
    failure: str = "the connection to it broke a moment ago"


# What ``get`` finds at a route, and does:
#
#    an open connection          gives it
#    an attempt that is made     waits for it, with all others
#    an attempt just failed      raises that error at once (``_Pace``)
#    nothing                     begins an attempt, and waits for it
#
# The two dicts overlap only where a connection has broken: it stays in ``_by_route``, not open,
# until the next attempt succeeds.
class ConnectionPool(Service):
    """Opens a connection when it is first asked for, and closes all with itself."""

    def __init__(
        self,
        network: Network,
        options: ConnectionOptions,
        tls: Tls | None = None,
        authentication: Authentication | None = None,
    ) -> None:
        super().__init__()
        self._authentication = authentication
        self._network = network
        self._options = options
        self._tls = tls or Tls()
        self._by_route: dict[Route, Connection] = {}
        # Connections that are being opened, each for all callers that want it.
        self._opening: dict[Route, asyncio.Future[Connection]] = {}
        # Of addresses where an attempt was made within ``PACE_FORGOTTEN_S``.
        self._paces: dict[Route, _Pace] = {}
        self._is_closed = False

    async def get(self, route: Route) -> Connection:
        """An open connection to the broker at ``route``, made now if there is none.

        Raises the last error instead where another attempt has just failed, or the connection that
        it made has just broken.

        Raises ``NotConnected``, ``TlsFailed``, ``CredentialsUnavailable``, ``BrokerRefused`` or
        ``Closed``.
        """
        connection = self._by_route.get(route)
        if connection is not None and connection.is_open:
            return connection
        opening = self._opening.get(route)
        if opening is None:
            # A channel that is being closed may still ask: a connection that is opened now would
            # not be closed with the others.
            if self._is_closed:
                raise Closed("the client")
            # An attempt too soon after the last one is refused here, without a packet; the caller
            # asks again by its own backoff.
            loop = asyncio.get_running_loop()
            now_s = loop.time()
            last = self._paces.get(route)
            if last is not None and now_s < last.begun_s + last.delay_s:
                raise NotConnected(last.failure)
            # Forgetting the old ones with each attempt bounds the dict: owners of topics move, and
            # brokers come back at other addresses.
            recent = {
                at: each
                for at, each in self._paces.items()
                if now_s < each.begun_s + PACE_FORGOTTEN_S
            }
            pace = _Pace(now_s)
            if route in recent:
                pace.delay_s = min(recent[route].delay_s * 2, PACE_LIMIT_S)
            self._paces = {**recent, route: pace}
            opening = loop.create_future()
            self._opening[route] = opening
            # While the client closes, ``spawn`` cancels the task at once: ``_connect_ended`` then
            # raises ``Closed`` for the callers.
            task = self.spawn(self._connect(route, opening), name=f"connect {route.address}")
            task.add_done_callback(lambda _: self._connect_ended(route, opening))
        # Several callers share the attempt: one that is cancelled must not end it for the others.
        return await asyncio.shield(opening)

    async def _connect(self, route: Route, opening: asyncio.Future[Connection]) -> None:
        """Open one connection for all callers of ``get`` that wait for it."""
        try:
            connection = await self._shake_hands(route)
        except ClientError as error:
            # The attempt may have taken longer than ``PACE_FORGOTTEN_S``: then another address's
            # attempt has dropped its pace.
            if route in self._paces:
                self._paces[route].failure = str(error)
            opening.set_exception(error)
            opening.exception()  # all callers may have been cancelled, which is no error
        else:
            # Brokers come back at other addresses: connections to those that are gone must not add
            # up.
            still_open = {at: each for at, each in self._by_route.items() if each.is_open}
            self._by_route = {**still_open, route: connection}
            opening.set_result(connection)

    def _connect_ended(self, route: Route, opening: asyncio.Future[Connection]) -> None:
        """Clear up after the task that opens a connection. A task that is cancelled early may not
        even have begun, so that no ``finally`` in it would run."""
        del self._opening[route]
        if not opening.done():
            opening.set_exception(Closed("the client"))
            opening.exception()

    async def _shake_hands(self, route: Route) -> Connection:
        """Open a stream to a broker and wait for the end of Pulsar's handshake."""
        address = route.address
        connection: Connection | None = None
        login: Login | None = None
        try:
            async with asyncio.timeout(self._options.connect_timeout_s):
                if (method := self._authentication) is not None:
                    # Anew for each connection: credentials expire, and an exchange has steps.
                    exchange = method.exchange(address.host)
                    shown = await credentials_of(method.name, exchange.begin())
                    login = Login(
                        method.name,
                        shown,
                        exchange,
                        lambda work: self.spawn(work, name="challenge"),
                    )
                # The lambda below needs a name that is never ``None``.
                connection = made = Connection(route, self._options, login)
                if address.is_tls:
                    await self._connect_tls(connection)
                else:
                    await self._network.connect(lambda: made, address.host, address.port)
                await connection.ready()
        # A ``ClientError`` that ends Pulsar's handshake passes through: the connection has closed
        # itself then.
        except TimeoutError:
            if connection is not None:
                connection.abort()
            timeout_s = self._options.connect_timeout_s
            raise NotConnected(f"{address} did not answer within {timeout_s:g} s") from None
        except ssl.SSLError as error:
            raise handshake_failed(address.host, error) from error
        except OSError as error:
            reason = str(error) or type(error).__name__
            raise NotConnected(f"{address} cannot be reached: {reason}") from error
        except asyncio.CancelledError:
            if connection is not None:
                connection.abort()
            raise
        return connection

    async def _connect_tls(self, connection: Connection) -> None:
        """Open a stream, secure it, and only then hand it to ``connection``.

        Raises ``OSError``, ``TlsFailed`` or ``ConnectionLost``.
        """
        address = connection.address
        # Before the broker is contacted: a certificate that cannot be read costs no connection, and
        # the broker's own timeout for handshakes does not run meanwhile.
        context = await asyncio.to_thread(self._tls.context)  # it reads files
        stream, _ = await self._network.connect(asyncio.Protocol, address.host, address.port)
        try:
            # Brokers send nothing before CONNECT, so that no byte can come too early.
            secured = await asyncio.get_running_loop().start_tls(
                stream, connection, context, server_hostname=address.host
            )
        except ConnectionError:
            secured = None  # a broker's port without TLS closes the connection on a handshake
        # A cancelled attempt, or a failed handshake: ``connection`` does not own the stream yet.
        except BaseException:
            stream.abort()
            raise
        if secured is None:
            raise ConnectionLost(
                f"the connection to {address} broke during its TLS handshake: if the broker has no "
                "TLS there, use its TLS port, or a URL without TLS"
            )
        # ``start_tls`` leaves this call to its caller; the handshake of Pulsar begins with it.
        connection.connection_made(secured)

    async def _close_parts(self) -> None:
        self._is_closed = True
        connections = list(self._by_route.values())
        # All begin to close before any is waited for: ``CLOSE_TIMEOUT_S`` is the time of all
        # together.
        for connection in connections:
            connection.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                for connection in connections:
                    await connection.closed()
        except TimeoutError:
            for connection in connections:
                connection.abort()
