"""One V3 connection to a bookie: numbered requests, answered in any order.

For what V2 lacks (``v3_links``): a few requests a second, most of them waits. Entries go over V2
connections, which know nothing of this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3 import encode_frame, parse_response
from geminga_protocol.errors import WireError
from geminga_protocol.framing import FrameReader

log = logging.getLogger(__name__)

# Requests without an answer that one connection may have: readers that wait, a few hundred bytes
# each, here and at the bookie.
REQUESTS_MAX = 1000


@dataclass(frozen=True, slots=True)
class _Asked:
    answer: asyncio.Future[pb.Response]
    # By the loop's time: later than this, the bookie is not coming back to it.
    due_s: float


class V3Connection(asyncio.Protocol):
    """One TCP stream. ``on_lost`` is called when it ends, unless by ``retire``."""

    def __init__(
        self, bookie_id: str, on_lost: Callable[[V3Connection], None], frame_bytes_max: int
    ) -> None:
        self._bookie_id = bookie_id
        self._on_lost = on_lost
        self._frames = FrameReader(frame_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_live = True
        self._requests_made = 0
        # By number. An answer that nobody waits for any more is still due: that it does not come
        # tells something about the bookie.
        self._asked: dict[int, _Asked] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream is open (``asyncio.Protocol``)."""
        # Not isinstance: uvloop's transports descend from nothing of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream is over (``asyncio.Protocol``)."""
        del exc  # whatever the reason, who waits asks somebody else
        if self._is_live:
            self._on_lost(self)

    @property
    def is_overdue(self) -> bool:
        """Whether the bookie owes an answer for longer than it may."""
        now_s = self._loop.time()
        return any(each.due_s <= now_s for each in self._asked.values())

    def ask(self, request: pb.Request, *, timeout_s: float) -> asyncio.Future[pb.Response]:
        """Send ``request`` under a number of its own; the answer should come in ``timeout_s``.

        The future fails with ``BookieUnavailable`` when the connection ends before. Raises that
        where too much is asked already.
        """
        if not self._is_live or self._transport is None:
            raise BookieUnavailable(self._bookie_id, "not connected")
        if len(self._asked) >= REQUESTS_MAX:
            raise BookieUnavailable(self._bookie_id, f"owes {REQUESTS_MAX} answers")
        self._requests_made = request.header.txnId = self._requests_made + 1
        answer: asyncio.Future[pb.Response] = self._loop.create_future()
        self._asked[self._requests_made] = _Asked(answer, self._loop.time() + timeout_s)
        self._transport.write(encode_frame(request))
        return answer

    def retire(self, why: str) -> None:
        """Be of no more use: close, and tell those who wait."""
        self._is_live = False
        if self._transport is not None:
            self._transport.abort()
        asked, self._asked = self._asked, {}
        for each in asked.values():
            if not each.answer.done():
                each.answer.set_exception(BookieUnavailable(self._bookie_id, why))

    def data_received(self, data: bytes) -> None:
        """Bytes from the bookie (``asyncio.Protocol``)."""
        if not self._is_live:
            return
        try:
            buffer, bounds = self._frames.feed(data)
            for start, end in bounds:
                self._receive(parse_response(buffer[start:end]))
        except WireError as error:
            log.warning(
                "bookie sent garbage, reconnecting",
                extra={"bookie": self._bookie_id, "error": str(error)},
            )
            self._on_lost(self)

    def _receive(self, response: pb.Response) -> None:
        asked = self._asked.pop(response.header.txnId, None)
        if asked is not None and not asked.answer.done():
            asked.answer.set_result(response)
