"""The way to each bookie for what V2 cannot say: long polls, the explicit last-add-confirmed.

A connection beside the V2 one, which stays free of it: made when somebody asks, kept while the
bookie answers in time. Nothing here tries again; whoever asks has other bookies to turn to.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import AsyncExitStack
from random import Random

from geminga_ledger.config import LedgerConfig
from geminga_ledger.dialer import CLOSING, Dialer, Resolver
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.health import BookieHealth
from geminga_ledger.v3_connection import V3Connection
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_runtime.backoff import Backoff
from geminga_runtime.clock import Clock
from geminga_runtime.network import Network
from geminga_runtime.service import Service

log = logging.getLogger(__name__)


class V3Link:
    """One bookie. Used through ``V3Links.link``."""

    def __init__(
        self,
        bookie_id: str,
        *,
        dialer: Dialer,
        clock: Clock,
        random: Random,
        config: LedgerConfig,
        health: BookieHealth,
    ) -> None:
        self.bookie_id = bookie_id
        self._dialer = dialer
        self._clock = clock
        self._config = config
        self._health = health
        self._backoff = Backoff(config.retry_first_s, config.retry_limit_s, random)
        self._connection: V3Connection | None = None
        # Held by who connects; the others wait for the same connection.
        self._connecting = asyncio.Lock()
        self._failed_at_s = -math.inf
        self._retry_at_s = -math.inf
        self._is_closed = False

    @property
    def is_doubtful(self) -> bool:
        """Whether the bookie could not be reached, failed or was slow a moment ago: ask it last."""
        now_s = self._clock.monotonic()
        is_down = (
            self._connection is None and now_s - self._failed_at_s < self._config.down_memory_s
        )
        return is_down or self._health.is_doubtful(self.bookie_id, now_s)

    async def ask(self, request: pb.Request, *, timeout_s: float) -> pb.Response:
        """What the bookie answers, whatever that is.

        Raises ``BookieUnavailable`` where it cannot be reached, where its connection breaks, and
        after ``timeout_s`` seconds.
        """
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connected()
                return await connection.ask(request, timeout_s=timeout_s)
        except TimeoutError as error:
            self._drop_overdue()
            raise BookieUnavailable(self.bookie_id, f"no answer in {timeout_s:.0f} s") from error

    def note_failure(self) -> None:
        """The bookie answered with an error that is its own fault, or not in time."""
        if self._health.failed(self.bookie_id, self._clock.monotonic()):
            log.warning("bookie quarantined", extra={"bookie": self.bookie_id})

    def note_doubt(self) -> None:
        """The bookie's copy of something is damaged."""
        self._health.doubt(self.bookie_id, self._clock.monotonic())

    def close(self) -> None:
        """Give the connection up, for good."""
        self._is_closed = True
        if self._connection is not None:
            self._lose(self._connection, CLOSING)

    async def _connected(self) -> V3Connection:
        self._drop_overdue()
        if self._connection is not None:
            return self._connection
        asked_at_s = self._clock.monotonic()
        async with self._connecting:
            return await self._connect(asked_at_s)

    async def _connect(self, asked_at_s: float) -> V3Connection:
        """Connect, where nobody did or failed to do it since this was asked for."""
        if self._connection is not None:
            return self._connection
        if self._is_closed:
            raise BookieUnavailable(self.bookie_id, CLOSING)
        if self._failed_at_s > asked_at_s or asked_at_s < self._retry_at_s:
            raise BookieUnavailable(self.bookie_id, "not reached a moment ago")
        try:
            transport, connection = await self._dialer.dial(self.bookie_id, self._new_connection)
        except BookieUnavailable:
            self._failed_at_s = self._clock.monotonic()
            self._retry_at_s = self._failed_at_s + self._backoff.next_s()
            raise
        return self._use(transport, connection)

    def _new_connection(self) -> V3Connection:
        return V3Connection(self.bookie_id, self._lose, self._config.frame_bytes_max)

    def _use(self, transport: asyncio.Transport, connection: V3Connection) -> V3Connection:
        if self._is_closed or transport.is_closing():
            connection.retire(CLOSING)
            raise BookieUnavailable(self.bookie_id, "the connection broke at once")
        self._backoff.reset()
        self._connection = connection
        return connection

    def _drop_overdue(self) -> None:
        """Give a connection up over which the bookie owes an answer for too long."""
        if self._connection is not None and self._connection.is_overdue:
            log.warning("bookie does not answer", extra={"bookie": self.bookie_id})
            self.note_failure()
            self._lose(self._connection, "owes an answer for too long")

    def _lose(self, connection: V3Connection, why: str = "the connection broke") -> None:
        if connection is self._connection:
            self._connection = None
        connection.retire(why)


class V3Links(Service):
    """All V3 links of this process; closing it closes every connection."""

    def __init__(
        self,
        resolver: Resolver,
        *,
        network: Network,
        clock: Clock,
        random: Random,
        config: LedgerConfig,
        health: BookieHealth,
    ) -> None:
        super().__init__()
        self._dialer = Dialer(resolver, network, timeout_s=config.connect_timeout_s)
        self._clock = clock
        self._random = random
        self._config = config
        self._health = health
        # Grows with the bookies whose ledgers somebody tailed: tens.
        self._links: dict[str, V3Link] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.callback(self._close_links)

    def link(self, bookie_id: str) -> V3Link:
        """The link to a bookie; connects when it is asked something."""
        link = self._links.get(bookie_id)
        if link is None:
            link = self._links[bookie_id] = V3Link(
                bookie_id,
                dialer=self._dialer,
                clock=self._clock,
                random=self._random,
                config=self._config,
                health=self._health,
            )
        return link

    def _close_links(self) -> None:
        for link in self._links.values():
            link.close()
