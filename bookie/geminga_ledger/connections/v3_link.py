"""The V3 link to a bookie: for long polls and the explicit last-add-confirmed, which V2 lacks.

A connection beside the V2 one, which stays free of waiting requests: made for the first request,
kept while the bookie answers in time. Nothing here tries again: readers and writers can ask other
bookies.
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
        # Held while connecting; other requests wait for the same connection.
        self._connecting = asyncio.Lock()
        # By the clock: after a failure no attempt is made until then.
        self._retry_at_s = -math.inf

    async def ask(self, request: pb.Request, *, timeout_s: float) -> pb.Response:
        """What the bookie answers, whatever that is.

        Raises ``BookieUnavailable`` where it cannot be reached, where its connection breaks, and
        after ``timeout_s`` seconds.
        """
        try:
            async with asyncio.timeout(timeout_s):
                # The deadline covers the connecting too: a caller waits ``timeout_s`` and no
                # longer.
                connection = await self._connected()
                return await connection.ask(request, timeout_s=timeout_s)
        except TimeoutError as error:
            # The request is overdue now, unless it was never sent.
            self._drop_overdue()
            raise BookieUnavailable(self.bookie_id, f"no answer in {timeout_s:.0f} s") from error

    async def _connected(self) -> V3Connection:
        """The connection, made where there is none. Raises ``BookieUnavailable``."""
        self._drop_overdue()
        connection = self._connection
        if connection is not None:
            return connection
        # Before the wait for the lock: an attempt that failed since then was this request's attempt
        # too.
        asked_at_s = self._clock.monotonic()
        async with self._connecting:
            # Another request may have connected, or failed to, while this one waited for the lock.
            if self._connection is not None:
                return self._connection
            if self._is_closed:
                raise BookieUnavailable(self.bookie_id, CLOSING)
            # The attempt that this request waited for has failed, or it is too early for another.
            if self._failed_at_s > asked_at_s or asked_at_s < self._retry_at_s:
                raise BookieUnavailable(self.bookie_id, "not reached a moment ago")
            limit = self._config.frame_bytes_max
            try:
                _, connection = await self._dial(
                    lambda: V3Connection(self.bookie_id, self._lose, frame_bytes_max=limit)
                )
            except BookieUnavailable:
                # Without it each request to a bookie that is away would begin an attempt of its
                # own.
                self._retry_at_s = self._clock.monotonic() + self._backoff.next_s()
                raise
            return connection

    def _drop_overdue(self) -> None:
        """Give the connection up where the bookie has owed an answer over it for too long."""
        if self._connection is not None and self._connection.is_overdue:
            log.warning("bookie does not answer", extra={"bookie": self.bookie_id})
            self.note_failure()
            self._lose(self._connection, "owes an answer for too long")

    def _lose(self, connection: BookieStream, why: str = "the connection broke") -> None:
        if connection is self._connection:
            self._connection = None
        connection.retire(why)
