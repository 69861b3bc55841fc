"""How parts reach each other: byte streams between hosts, as asyncio protocols.

``AsyncioNetwork`` is TCP on the running event loop. Its twin, in ``geminga_simulation``, carries
bytes through memory with delays, losses and partitions, one view for each simulated host.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from ssl import SSLContext

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

# Seconds that one of several addresses of a host has to answer: far longer than a handshake takes,
# and short enough to try the next ones within the time that callers give to connecting.
ADDRESS_TIMEOUT_S = 2.5
# At most so many addresses of a name are tried: enough for every load balancer.
ADDRESSES_MAX = 32

# Connections that wait to be accepted: a restarted broker sees all its clients within a second.
BACKLOG = 1024
# Seconds that a client has for its TLS handshake: a few round trips, and time for a busy machine.
# Until it is done, the connection counts for no limit of the server.
TLS_HANDSHAKE_TIMEOUT_S = 10.0


class Listener(Protocol):
    """A port that accepts connections until it is closed."""

    # The TCP port, known even when port 0 was asked for. It never changes.
    port: int

    async def close(self) -> None:
        """Accept no more connections; those already open stay open."""
        ...


class Network(Protocol):
    """Opens and accepts byte streams. Both ends speak asyncio's transport/protocol pairs."""

    async def connect(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Open a stream to ``host:port``; raises ``OSError`` where nothing answers."""
        ...

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        """Accept streams on ``host:port`` (0: any free port); raises ``OSError`` if it is taken."""
        ...


class AsyncioListener:
    """A listening TCP socket of the running event loop."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        ports = [int(sock.getsockname()[1]) for sock in server.sockets]
        self.port = ports[0]
        # All addresses of the host (IPv4 and IPv6) have the same port.
        self.is_one_port = len(set(ports)) == 1

    async def close(self) -> None:
        """Accept no more connections; those already open stay open."""
        # Not ``wait_closed``: since Python 3.12 it waits for the connections too.
        self._server.close()


@dataclass(slots=True, eq=False)
class AsyncioNetwork:
    """TCP through the running event loop.

    Names are resolved at each connection, and all addresses of a name are tried in turn. With
    ``accept_tls`` each accepted stream is secured, and its protocol connected when the handshake is
    over. With ``connect_tls`` each opened stream is secured, by a context that is made for it in a
    thread, since that reads files. With ``shares_ports`` other processes may listen on the same
    ports in the same way (``SO_REUSEPORT``): the kernel gives each new stream to one of them.
    """

    accept_tls: SSLContext | None = None
    connect_tls: Callable[[], SSLContext] | None = field(default=None, kw_only=True)
    shares_ports: bool = field(default=False, kw_only=True)

    async def connect(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Open a stream to ``host:port``; raises ``OSError`` where nothing answers, or the TLS
        handshake fails."""
        loop = asyncio.get_running_loop()
        # Before the connection is made: a server limits the time until the handshake is done.
        tls = await asyncio.to_thread(self.connect_tls) if self.connect_tls else None
        sock = await _connected_socket(loop, host, port)
        # A context that checks host names checks the one that was asked for, not the address that
        # it resolved to.
        transport, protocol = await loop.create_connection(
            factory, sock=sock, ssl=tls, server_hostname=host if tls else None
        )
        return transport, protocol

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        """Accept streams on ``host:port`` (0: any free port); raises ``OSError`` if it is taken."""
        loop = asyncio.get_running_loop()
        tls = self.accept_tls
        timeout_s = TLS_HANDSHAKE_TIMEOUT_S if tls is not None else None

        async def listen(port: int) -> AsyncioListener:
            # The loop calls ``factory`` before the handshake, and ``connection_made`` after it: the
            # protocol of a client that does not finish it in time hears nothing at all.
            server = await loop.create_server(
                factory,
                host,
                port,
                backlog=BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=timeout_s,
                reuse_port=self.shares_ports,
            )
            return AsyncioListener(server)

        listener = await listen(port)
        if listener.is_one_port:
            return listener
        # "localhost" is two addresses, and port 0 gave each its own: take the first for both.
        # Another process may take the port before the second listening, which then fails as for any
        # port that is taken.
        await listener.close()
        return await listen(listener.port)


async def _connected_socket(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """A socket to the first address of ``host`` that takes one; raises ``OSError``."""
    try:  # a numeric address needs no resolver, which asyncio calls in a thread
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # In the order of the system's preference.
    addresses = found[:ADDRESSES_MAX]
    errors: list[OSError] = []
    # One after the other. Happy Eyeballs (RFC 8305) would begin with several at once, and bring
    # servers connections that are dropped.
    for at, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)  # noqa: FBT003  # socket's signature
        is_last = at + 1 == len(addresses)
        try:
            # Without Nagle's algorithm: writers coalesce small writes themselves.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Only the caller limits the time of the last address.
            async with asyncio.timeout(None if is_last else ADDRESS_TIMEOUT_S):
                await loop.sock_connect(sock, address)
        except OSError as error:  # a TimeoutError is one
            sock.close()
            errors.append(error)
        except BaseException:  # cancelled, as by the caller's time-out
            sock.close()
            raise
        else:
            return sock
    # The only error keeps its type and errno, which callers may look at.
    if len(errors) == 1:
        raise errors[0]
    reasons = "; ".join(f"{each[4][0]}: {e!r}" for each, e in zip(addresses, errors, strict=True))
    raise OSError(f"none of its {len(addresses)} addresses answers ({reasons})")
