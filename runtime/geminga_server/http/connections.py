"""The connections of an ``HttpServer``: a bounded number, of which idle ones make room for others.

HTTP allows a server to close a connection at any time between two requests. So where there are too
many, the connection that has been idle longest is closed for the new one: a thousand idle
connections keep no operator out. Only where all of them are being answered, a new one gets 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from geminga_server.connection_limits import RefusalLog

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

BUSY_BODY = b'{"reason":"too many requests are being answered: try again"}'
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(BUSY_BODY), BUSY_BODY)
)


@dataclass(slots=True, eq=False)
class HttpConnections:
    """The connections of one server, or of several that share a bound."""

    connections_max: int
    # How many were closed to make room, and how many found no room.
    evicted: int = 0
    refused: int = 0
    # In the order of the last bytes from their clients, the oldest first.
    open: dict[HttpConnection, None] = field(default_factory=dict["HttpConnection", None])
    log: RefusalLog = field(
        default_factory=partial(RefusalLog, "too many http connections: idle ones are closed")
    )

    def enter(self, connection: HttpConnection) -> None:
        """A client connected: count it, or answer 503 and close."""
        if len(self.open) >= self.connections_max:
            # The first idle one is the one that has been idle longest. The walk is long only where
            # most connections are being answered. At this very moment: no await may lie between
            # this choice and the closing below.
            idle = next((each for each in self.open if each.is_idle), None)
            self.log.note(lambda: {"connections_max": self.connections_max})
            if idle is None:
                self.refused += 1
                # Written by hand, past uvicorn: a request that is never read needs no parser.
                connection.transport.write(BUSY)
                connection.transport.close()
                return
            self.evicted += 1
            del self.open[idle]
            # Taken out of the order before it is closed: ``connection_lost`` comes in a later turn.
            idle.transport.close()
        self.open[connection] = None

    def heard(self, connection: HttpConnection) -> None:
        """The client sent something."""
        # At each read of each connection, so it must be cheap: two operations on a dictionary.
        # Moved to the end of the order. One that was refused, or evicted, is not in it.
        if connection in self.open:
            del self.open[connection]
            self.open[connection] = None

    def families(self, part: str) -> Iterable[Metric]:
        """The metrics of these connections, as those of ``part``."""
        from prometheus_client.core import (  # noqa: PLC0415 - 50 ms, and only scrapes need it
            CounterMetricFamily,
            GaugeMetricFamily,
        )

        prefix = f"geminga_{part}_http"
        yield GaugeMetricFamily(f"{prefix}_connections", "Open HTTP connections.", len(self.open))
        yield GaugeMetricFamily(
            f"{prefix}_connections_max", "How many there may be.", self.connections_max
        )
        for name, count, what in (
            ("evicted", self.evicted, "Idle HTTP connections closed to make room for others."),
            ("refused", self.refused, "HTTP connections refused: all others were busy."),
        ):
            yield CounterMetricFamily(f"{prefix}_{name}_connections", what, count)


class HttpConnection(H11Protocol):
    """uvicorn's protocol, which reports to ``HttpConnections``."""

    def __init__(self, among: HttpConnections, **given: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(**given)
        self._among = among

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered (decided as uvicorn's ``shutdown`` does)."""
        # A request counts when its head is there: a client that sends a byte now and then stays
        # idle, and holds no place that another one needs.
        cycle: Any = self.cycle  # None before the first request, whatever uvicorn declares
        return cycle is None or bool(cycle.response_complete)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport's call: a client connected."""
        # First: ``enter`` may close the transport that this sets.
        super().connection_made(cast("asyncio.Transport", transport))
        self._among.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport's call: the connection is over."""
        # One that was evicted or refused is not there any more.
        self._among.open.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The transport's call: the client sent something."""
        self._among.heard(self)
        super().data_received(data)
