"""Readers that wait till more of a ledger is confirmed than they have seen.

What arrives is looked at only while somebody waits, and only for the ledgers that are waited for.
Every wait ends: with news, by its time-out, or with its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from struct import Struct

from geminga_bookie.storage.last_confirmed import LastConfirmed
from geminga_protocol.bookkeeper.errors import BookieOverloaded, BookieRefusal

# Whoever asks to wait longer is answered after this long, and asks again.
LONG_POLL_S_MAX = 300.0

_LEDGER_ID = Struct(">q8x")


class LongPoll:
    """One reader that waits for more than ``previous_lac`` of a ledger."""

    __slots__ = ("ledger_id", "previous_lac", "timer", "when_over")

    def __init__(self, ledger_id: int, previous_lac: int, when_over: WhenOver) -> None:
        self.ledger_id = ledger_id
        self.previous_lac = previous_lac
        self.when_over = when_over
        self.timer: asyncio.TimerHandle | None = None


# Called with the wait, and whether it ends with news; otherwise its time is over.
WhenOver = Callable[[LongPoll, bool], None]


class LongPolls:
    """All readers of a bookie that wait, ``waiting_max`` at the most."""

    def __init__(self, last_confirmed: LastConfirmed, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._last_confirmed = last_confirmed
        # By ledger, in the order they came. Sessions look whether it is empty before they tell.
        self.waiting: dict[int, dict[LongPoll, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def wait(
        self, ledger_id: int, previous_lac: int, timeout_s: float, when_over: WhenOver
    ) -> LongPoll:
        """Call ``when_over`` once, unless ``cancel`` comes first.

        Raises ``BookieOverloaded`` where too many wait.
        """
        if self._count >= self._waiting_max:
            raise BookieOverloaded(ledger_id)
        poll = LongPoll(ledger_id, previous_lac, when_over)
        self.waiting.setdefault(ledger_id, {})[poll] = None
        self._count += 1
        loop = asyncio.get_running_loop()
        poll.timer = loop.call_later(min(timeout_s, LONG_POLL_S_MAX), self._time_out, poll)
        return poll

    def cancel(self, poll: LongPoll) -> None:
        """Nobody waits for this any more; no error where it is over."""
        polls = self.waiting.get(poll.ledger_id, {})
        if poll not in polls:
            return
        del polls[poll]
        self._count -= 1
        if not polls:
            del self.waiting[poll.ledger_id]
        assert poll.timer is not None
        poll.timer.cancel()

    def added(self, ids: Sequence[bytes]) -> None:
        """Entries were added: ledger id and entry id of each, as they stand in the entry."""
        ledgers = {_LEDGER_ID.unpack(each)[0] for each in ids}
        for ledger_id in sorted(ledgers & self.waiting.keys()):
            self.confirmed(ledger_id)

    def confirmed(self, ledger_id: int) -> None:
        """More may be confirmed of the ledger than before."""
        polls = self.waiting.get(ledger_id)
        if not polls:
            return
        try:
            lac = self._last_confirmed.find(ledger_id)
        except BookieRefusal:
            return
        # Not in memory any more: whoever waits asks the disk.
        for poll in list(polls):
            if lac is None or poll.previous_lac < lac:
                self._end(poll, is_news=True)

    def _time_out(self, poll: LongPoll) -> None:
        self._end(poll, is_news=False)

    def _end(self, poll: LongPoll, *, is_news: bool) -> None:
        self.cancel(poll)
        poll.when_over(poll, is_news)
