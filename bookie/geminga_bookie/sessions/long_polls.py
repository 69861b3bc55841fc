"""Readers that wait until more of a ledger is confirmed than they have seen.

New entries are looked at only while there are such readers, and only for the ledgers that they wait
for. Every wait ends: with news, by its timeout, or with its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct

from geminga_bookie.storage.last_confirmed import LastConfirmed
from geminga_protocol.bookkeeper.errors import BookieOverloaded, BookieRefusal

# A reader that asks to wait longer is answered after this long, and asks again.
LONG_POLL_S_MAX = 300.0

_LEDGER_ID = Struct(">q8x")


@dataclass(slots=True, eq=False)
class LongPoll:
    """One reader that waits for more than ``previous_lac`` of a ledger."""

    ledger_id: int
    previous_lac: int
    when_over: WhenOver
    # Set right after the poll is entered; cancelled whenever the wait ends.
    timer: asyncio.TimerHandle | None = None


# Called when a wait ends, with the wait and whether there is news: True where more may be
# confirmed, False where its time is over.
WhenOver = Callable[[LongPoll, bool], None]


@dataclass(slots=True, eq=False)
class LongPolls:
    """All readers of a bookie that wait, at most ``waiting_max``."""

    last_confirmed: LastConfirmed
    waiting_max: int
    # By ledger, in the order in which they came. HOT: sessions check whether it is empty before
    # they report entries.
    waiting: dict[int, dict[LongPoll, None]] = field(init=False, default_factory=dict)
    count: int = field(init=False, default=0)  # of all that wait, whatever the ledger

    def wait(
        self, ledger_id: int, previous_lac: int, timeout_s: float, when_over: WhenOver
    ) -> LongPoll:
        """Call ``when_over`` once, unless ``cancel`` comes first.

        Raises ``BookieOverloaded`` where too many readers wait.
        """
        if self.count >= self.waiting_max:
            raise BookieOverloaded(ledger_id)
        poll = LongPoll(ledger_id, previous_lac, when_over)
        self.waiting.setdefault(ledger_id, {})[poll] = None
        self.count += 1
        # A timer each: how long to wait is the reader's choice.
        loop = asyncio.get_running_loop()
        poll.timer = loop.call_later(min(timeout_s, LONG_POLL_S_MAX), self._end, poll, False)  # noqa: FBT003 a timer takes no keywords
        return poll

    def cancel(self, poll: LongPoll) -> None:
        """End a wait without calling ``when_over``; nothing happens where it is over already."""
        polls = self.waiting.get(poll.ledger_id, {})
        if poll not in polls:
            return
        del polls[poll]
        self.count -= 1
        if not polls:
            del self.waiting[poll.ledger_id]
        assert poll.timer is not None
        poll.timer.cancel()

    def added(self, ids: Sequence[bytes]) -> None:
        """Note that entries are durable: ledger id and entry id of each, as an entry has them."""
        # Sorted, as a set's order would make a simulation differ from run to run.
        ledgers = {_LEDGER_ID.unpack(each)[0] for each in ids}
        for ledger_id in sorted(ledgers & self.waiting.keys()):
            self.confirmed(ledger_id)

    def confirmed(self, ledger_id: int) -> None:
        """Note that more may be confirmed of the ledger than before."""
        polls = self.waiting.get(ledger_id)
        if not polls:
            return
        try:
            # An entry says what was confirmed before it: the add of entry 7 confirms 6 at the most.
            # So not each add is news to the readers.
            lac = self.last_confirmed.find(ledger_id)
        except BookieRefusal:
            return
        # Where only the disk knows, every reader is answered, from there. The list is a copy,
        # because each ``_end`` takes its poll out of the dict.
        for poll in list(polls):
            if lac is None or poll.previous_lac < lac:
                self._end(poll, True)  # noqa: FBT003 as above

    def _end(self, poll: LongPoll, is_news: bool) -> None:  # noqa: FBT001 as above
        # Over before the callback runs: it may begin the next wait.
        self.cancel(poll)
        poll.when_over(poll, is_news)
