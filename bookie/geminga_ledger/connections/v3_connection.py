"""One V3 connection to a bookie: numbered requests, answered in any order.

For what V2 lacks (``v3_link``): a few requests a second, most of them waits. Entries go over V2
connections, which know nothing of this.
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

# Requests without an answer that one connection may have: readers that wait, a few hundred bytes
# each, here and at the bookie.
REQUESTS_MAX = 1000


@dataclass(frozen=True, slots=True)
class _Asked:
    answer: asyncio.Future[pb.Response]
    # By the loop's time: later than this, the bookie is not coming back to it.
    due_s: float


class V3Connection(BookieStream):
    """One V3 stream."""

    def __init__(
        self, bookie_id: str, on_lost: Callable[[BookieStream], None], *, frame_bytes_max: int
    ) -> None:
        super().__init__(bookie_id, on_lost, frame_bytes_max=frame_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._requests_made = 0
        # By number. An answer that nobody waits for any more is still due: that it does not come
        # tells something about the bookie.
        self._asked: dict[int, _Asked] = {}

    @property
    def is_overdue(self) -> bool:
        """Whether the bookie owes an answer for longer than it may."""
        now_s = self._loop.time()
        return any(each.due_s <= now_s for each in self._asked.values())

    def ask(self, request: pb.Request, *, timeout_s: float) -> asyncio.Future[pb.Response]:
        """Send ``request`` under a number of its own; the answer should come in ``timeout_s``.

        The connection is made and not over: its link gives out no other. The future fails with
        ``BookieUnavailable`` when it ends before the answer. Raises that where too much is asked
        already.
        """
        assert self._is_live
        assert self._transport is not None
        if len(self._asked) >= REQUESTS_MAX:
            raise BookieUnavailable(self._bookie_id, f"owes {REQUESTS_MAX} answers")
        self._requests_made = request.header.txnId = self._requests_made + 1
        answer: asyncio.Future[pb.Response] = self._loop.create_future()
        self._asked[self._requests_made] = _Asked(answer, self._loop.time() + timeout_s)
        self._transport.write(encode_frame(request))
        return answer

    def give_up(self, why: str) -> None:
        """Tell those who wait."""
        asked, self._asked = self._asked, {}
        for each in asked.values():
            if not each.answer.done():
                each.answer.set_exception(BookieUnavailable(self._bookie_id, why))

    def receive(self, buffer: bytes, bounds: Bounds) -> None:
        """Hand each answer to who asked."""
        for start, end in bounds:
            response = parse_response(buffer[start:end])
            asked = self._asked.pop(response.header.txnId, None)
            if asked is not None and not asked.answer.done():
                asked.answer.set_result(response)
