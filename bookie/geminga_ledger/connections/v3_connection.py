"""One V3 connection to a bookie: numbered requests, answered in any order.

For what V2 lacks (``v3_link``): a few requests a second, most of them long polls. Entries go over
V2 connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from geminga_ledger.connections.link_base import BookieStream
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3 import encode_frame, parse_response
from geminga_protocol.framing import Bounds

# Requests without an answer that one connection may have: mostly readers that wait at the bookie, a
# few hundred bytes each, here and there.
REQUESTS_MAX = 1000


@dataclass(frozen=True, slots=True)
class _Request:
    answer: asyncio.Future[pb.Response]
    # By the loop's time: later than this, the bookie will not answer.
    due_s: float


class V3Connection(BookieStream):
    """One V3 stream."""

    def __init__(
        self, bookie_id: str, on_lost: Callable[[BookieStream], None], *, frame_bytes_max: int
    ) -> None:
        super().__init__(bookie_id, on_lost, frame_bytes_max=frame_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._requests_made = 0
        # Answers come in any order, so requests are numbered. By number, until answered: also when
        # the asker has given up. An answer that never comes shows that the bookie hangs.
        self._requests: dict[int, _Request] = {}

    @property
    def is_overdue(self) -> bool:
        """Whether the bookie owes an answer for longer than it may."""
        now_s = self._loop.time()
        return any(each.due_s <= now_s for each in self._requests.values())

    def ask(self, request: pb.Request, *, timeout_s: float) -> asyncio.Future[pb.Response]:
        """Send ``request`` under a number of its own; the answer should come in ``timeout_s``.

        The connection must be made and not retired. The future fails with ``BookieUnavailable``
        when the connection ends before the answer. Raises that where too many requests are without
        an answer already.
        """
        assert self._is_live
        assert self._transport is not None
        # Requests whose asker gave up count, too: the bookie still owes their answers.
        if len(self._requests) >= REQUESTS_MAX:
            raise BookieUnavailable(self._bookie_id, f"owes {REQUESTS_MAX} answers")
        self._requests_made = request.header.txnId = self._requests_made + 1
        answer: asyncio.Future[pb.Response] = self._loop.create_future()
        self._requests[self._requests_made] = _Request(answer, self._loop.time() + timeout_s)
        # At once, without an outbox: there are a few of these a second.
        self._transport.write(encode_frame(request))
        return answer

    def give_up(self, why: str) -> None:
        """Fail all requests without an answer."""
        # Taken out first: a stream that is over owes nothing and is not overdue.
        requests, self._requests = self._requests, {}
        for each in requests.values():
            if not each.answer.done():
                each.answer.set_exception(BookieUnavailable(self._bookie_id, why))

    def receive(self, buffer: bytes, bounds: Bounds) -> None:
        """Give each answer to the request with its number."""
        for start, end in bounds:
            response = parse_response(buffer[start:end])
            request = self._requests.pop(response.header.txnId, None)
            # Done already: its asker has given up.
            if request is not None and not request.answer.done():
                request.answer.set_result(response)
