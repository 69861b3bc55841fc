"""The way to each bookie for what V2 cannot say: long polls, the explicit last-add-confirmed.

A connection beside the V2 one, which stays free of it: made when somebody asks, kept while the
bookie answers in time. Nothing here tries again; whoever asks has other bookies to turn to.
"""

from __future__ import annotations

import asyncio
import logging
import math

from geminga_ledger.connections.dialer import CLOSING
from geminga_ledger.connections.link_base import BookieStream, LinkBase, LinkServices
from geminga_ledger.connections.v3_connection import V3Connection
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb

log = logging.getLogger(__name__)


class V3Link(LinkBase[V3Connection]):
    """One bookie. Used through ``BookieLinks.v3_link``."""

    def __init__(self, bookie_id: str, services: LinkServices) -> None:
        super().__init__(bookie_id, services)
        # Held by who connects; the others wait for the same connection.
        self._connecting = asyncio.Lock()
        self._retry_at_s = -math.inf

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
            _, connection = await self._dial(self._new_connection)
        except BookieUnavailable:
            self._retry_at_s = self._clock.monotonic() + self._backoff.next_s()
            raise
        return connection

    def _new_connection(self) -> V3Connection:
        limit = self._config.frame_bytes_max
        return V3Connection(self.bookie_id, self._lose, frame_bytes_max=limit)

    def _drop_overdue(self) -> None:
        """Give a connection up over which the bookie owes an answer for too long."""
        if self._connection is not None and self._connection.is_overdue:
            log.warning("bookie does not answer", extra={"bookie": self.bookie_id})
            self.note_failure()
            self._lose(self._connection, "owes an answer for too long")

    def _lose(self, connection: BookieStream, why: str = "the connection broke") -> None:
        if connection is self._connection:
            self._connection = None
        connection.retire(why)
