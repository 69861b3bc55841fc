"""One open ledger of a log, and the entries on their way to it.

The managed ledger has at most one appender that takes entries; another may be finishing while the
log rolls over to a new ledger. Confirmations come from the ledger writer, once for each batch of
bookie answers, and are handed on as one run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.managed_ledger.writing.append_request import AppendRequest, payload_of
from geminga_ledger import LedgerError, LedgerWriter


@dataclass(slots=True, eq=False)
class Appender:
    """A ledger writer with the queue of its unconfirmed entries."""

    # Called when consecutive entries are durable: with these, what was given along with them, and
    # the bytes of their payloads.
    on_confirmed: Callable[[Appender, list[Entry], list[AppendRequest], int], None]
    # Called when nothing more will be confirmed; ``take_pending`` gives back what was not.
    on_failed: Callable[[Appender, LedgerError], None]
    # The broker's own metadata stands in front of the entries: their message counts are passed on
    # as 0, so that dispatchers parse them.
    has_stamps: bool = field(default=False, kw_only=True)
    # Both are set before anything is appended: the writer is made with the appender as its
    # listener. The span is that of the ledger in the log's chain.
    writer: LedgerWriter = field(init=False)
    span: LedgerSpan = field(init=False)
    # When the log began to write the ledger (monotonic), and at which age it is replaced.
    begun_at_s: float = field(default=0.0, init=False)
    age_max_s: float = field(default=0.0, init=False)
    # None before the first entry: a broker may have very many logs that take no entries. One
    # request for each entry of the writer that is not confirmed: ids ``_confirmed + 1`` and on.
    _pending: deque[AppendRequest] | None = field(default=None, init=False)
    # The last entry that is durable, -1 for none.
    _confirmed: int = field(default=-1, init=False)

    @property
    def pending_count(self) -> int:
        """How many ``pending`` are."""
        return len(self._pending or ())

    @property
    def pending(self) -> Collection[AppendRequest]:
        """Entries appended and not yet confirmed, in order."""
        return self._pending or ()

    def append_all(self, items: Sequence[AppendRequest]) -> None:
        """Append entries. Raises ``LedgerError``, and then none of them was appended."""
        # First: if the writer refuses them, they must not be pending.
        self.writer.append_all(list(map(payload_of, items)))
        if self._pending is None:
            self._pending = deque()
        self._pending.extend(items)

    def entries_confirmed(self, last_confirmed: int) -> None:
        """Called by the ledger writer: everything up to ``last_confirmed`` is durable."""
        first = self._confirmed + 1
        count = last_confirmed - self._confirmed
        # First all of the appender's own state: ``on_confirmed`` may append to it, or replace it.
        self._confirmed = last_confirmed
        pending = self._pending
        assert pending is not None, "what is confirmed was appended"
        # Mostly one answer of the bookies confirms all there is: that is a copy, not a loop.
        if count == len(pending):
            batch = list(pending)
            pending.clear()
        else:
            take = pending.popleft
            batch = [take() for _ in range(count)]
        # The stored entry is the payload that was appended, the same object: the cache copies
        # nothing.
        entries: list[Entry] = []
        size_bytes = 0
        for payload, messages, _, _, _ in batch:
            entries.append((first, payload, messages))
            first += 1
            size_bytes += len(payload)
        # With a stamp in front an entry is not as its client sent it, so it must not be dispatched
        # unparsed.
        if self.has_stamps:
            entries = [(entry_id, payload, 0) for entry_id, payload, _ in entries]
        self.on_confirmed(self, entries, batch, size_bytes)

    def writer_failed(self, error: LedgerError) -> None:
        """Called by the ledger writer: it gives up."""
        self.on_failed(self, error)

    def take_pending(self) -> list[AppendRequest]:
        """Give up the unconfirmed entries, in order: another appender sends them again."""
        # The writer has failed and reports nothing more, so none of these is confirmed here, too.
        rest, self._pending = list(self._pending or ()), None
        return rest
