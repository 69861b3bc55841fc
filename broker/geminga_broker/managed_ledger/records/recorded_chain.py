"""The chain of a log together with its record: changed one after the other, never in between.

The record is written first and the chain in memory follows, so that memory never knows a ledger
that a next owner would not find. Ledgers that were taken out are deleted last (``LogStore``)::

    add a ledger      create it ─▶ write the record ─▶ chain, first append
    remove a ledger   write the record (names it as garbage) ─▶ chain ─▶ delete it

A crash between two steps leaves a ledger that no record names as part of the log: the one that was
created is found by its labels only, the one that was removed by the record's list of garbage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from geminga_broker.errors import TopicExists
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.records.log_store import LogStore
from geminga_ledger import LedgerError, LedgerReader, Ledgers, NoSuchLedger
from geminga_runtime.coordination import CoordinationError

log = logging.getLogger(__name__)

# At most so many ledgers wait to be deleted: their ids stand in the record, a node of at most 1
# MiB. Further ledgers stay in the chain until some of these are gone.
GARBAGE_LEDGERS_MAX = 1000


@dataclass(slots=True, eq=False)
class RecordedChain:
    """``chain`` and its record. ``load`` or ``create`` comes first; later calls may overlap.

    All methods raise ``CoordinationError``; one of ``OWNERSHIP_LOST`` says that another broker has
    the log. ``store`` may be read by others; only these methods make it write.
    """

    store: LogStore
    ledgers: Ledgers
    # Replaced by ``load``.
    chain: LedgerChain = field(default_factory=LedgerChain, init=False)
    # Guards the record, and that the chain is what was last written. Made for the first change:
    # most logs that a broker has open never change.
    _lock: asyncio.Lock | None = field(default=None, init=False)
    # Ledgers made for this log of which it is not known whether the record names them: the write
    # that added them was not answered. The next write that succeeds settles it, as it names them
    # garbage.
    _in_doubt: tuple[int, ...] = field(default=(), init=False)

    def _changing(self) -> asyncio.Lock:
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    # Opening

    async def load(self) -> None:
        """Read the record. Raises ``NodeMissing``."""
        self.chain = LedgerChain(await self.store.load())

    async def create(self, span: LedgerSpan, properties: Mapping[str, str]) -> None:
        """Write the first record, with the first ledger in it. Raises ``TopicExists``, and then the
        ledger is deleted."""
        try:
            # No lock: the log is not open yet, so nothing else changes the record.
            await self.store.create((span,), properties)
        except TopicExists:
            # That record does not name the ledger. After any other error ours may do so.
            await self.ledgers.delete(span.ledger_id)
            raise
        self.chain.append(span)

    async def recover_last(self, wall_ms: Callable[[], int]) -> LedgerReader | None:
        """The last writer may not have closed its ledger: fence it off and find where it ends.

        Returns the ledger's reader; None where the ledger was closed, or is gone. The record is
        written afterwards, whatever was found: a broker that wrote it since ``load`` and added or
        deleted ledgers makes this fail, and the log has to be loaded again. Raises ``LedgerError``.
        """
        span = self.chain.spans[-1] if self.chain.spans else None
        if span is None or span.closed_at_ms:
            return None
        reader: LedgerReader | None = None
        try:
            # Also where the last owner is still alive: recovery fences the ledger, so nothing that
            # it appends from now on is confirmed. Its next write of the record fails by the version
            # that is written below.
            reader = await self.ledgers.open(span.ledger_id, recover=True)
        except NoSuchLedger:
            span.entries = span.size_bytes = 0
        else:
            span.entries, span.size_bytes = reader.last_confirmed + 1, reader.length_bytes
        # Retention counts from now, as upstream's: when the last owner stopped is not known.
        span.closed_at_ms = wall_ms()
        # An empty ledger goes, unless it is the only one: cursors need something to point at.
        # Either way the record gets another version, which keeps an owner of before from adding a
        # ledger. Where the record has no room for more garbage, ``remove`` would write nothing: the
        # empty ledger stays then, until ``append`` drops it.
        has_room = len(self.store.garbage) < GARBAGE_LEDGERS_MAX
        if span.entries == 0 and len(self.chain.spans) > 1 and has_room:
            await self.remove(lambda: [span], lambda _: None)
        else:
            await self.save()
        if reader is None:
            # The record named it all the while. The topic is served, as upstream does it: to refuse
            # it would not bring the ledger back.
            log.error(
                "the last ledger of a log is gone: the messages in it are lost",
                extra={"log": self.store.name, "ledger": span.ledger_id},
            )
        return reader

    # Changing

    async def save(
        self, *, properties: Mapping[str, str] | None = None, ends: bool = False
    ) -> None:
        """Write down what became of the ledgers; none but those of the chain are named.

        ``properties`` are added to those of the record; ``ends`` says that the log ends with its
        present last entry.
        """
        async with self._changing():
            store = self.store
            before = store.properties, store.terminated_at
            if properties is not None:
                store.properties = {**store.properties, **properties}
            if ends:
                store.terminated_at = self.chain.last_confirmed
            try:
                await store.save(self.chain.spans, dropped=self._in_doubt)
            except BaseException:
                # Memory must not have what the record may lack: the next owner would not find it.
                store.properties, store.terminated_at = before
                raise
            self._in_doubt = ()

    async def append(self, span: LedgerSpan) -> None:
        """Add the ledger that is written from now on; ledgers closed without an entry go."""
        async with self._changing():
            # Upstream drops closed ledgers without entries, too. Kept, they would add up where
            # bookies fail again and again.
            kept = [each for each in self.chain.spans if each.entries or not each.closed_at_ms]
            empty = [each for each in self.chain.spans if each.closed_at_ms and not each.entries]
            # Before the request, so that cancellation leaves it in doubt, too. The ledgers in doubt
            # from before are named garbage by this very write: none of them got an entry.
            unused, self._in_doubt = self._in_doubt, (*self._in_doubt, span.ledger_id)
            dropped = [*unused, *(each.ledger_id for each in empty)]
            await self.store.save((*kept, span), dropped=dropped)
            # Only now: until the record was written, it was in doubt whether it names one of these.
            self._in_doubt = ()
            for each in empty:
                self.chain.remove(each.ledger_id)
            self.chain.append(span)

    async def remove(
        self,
        choose: Callable[[], Sequence[LedgerSpan]],
        before_removal: Callable[[Sequence[LedgerSpan]], None],
    ) -> None:
        """Take out the ledgers that ``choose`` gives, which is called when nothing else changes.

        ``before_removal`` is called with them when the record is written, the chain not yet
        changed. They are deleted by ``delete_garbage``.
        """
        async with self._changing():
            # The oldest of what was chosen: the log stays without gaps.
            room = GARBAGE_LEDGERS_MAX - len(self.store.garbage)
            removed = choose()[: max(room, 0)]
            if not removed:
                return
            ids = {span.ledger_id for span in removed}
            kept = [span for span in self.chain.spans if span.ledger_id not in ids]
            await self.store.save(kept, dropped=sorted(ids))
            # No await from here to the end: no reader or cursor sees a half-changed chain.
            before_removal(removed)
            for ledger_id in sorted(ids):
                self.chain.remove(ledger_id)

    # Deleting

    async def delete_garbage(self) -> None:
        """Delete the ledgers that the record names no longer; those that cannot be stay garbage."""
        # The tuple of this moment: ``store.garbage`` is replaced, never changed.
        for ledger_id in self.store.garbage:
            try:
                await self.ledgers.delete(ledger_id)
            except (LedgerError, CoordinationError) as error:
                log.warning("ledger not deleted", extra={"ledger": ledger_id, "error": str(error)})
                return
            # Others may have added garbage while this one was deleted. That it is gone is written
            # with the next change of the record: deleting it twice does no harm.
            self.store.garbage = tuple(each for each in self.store.garbage if each != ledger_id)

    async def delete(self) -> None:
        """Delete all ledgers, then the record: after a crash in between, the log is found empty."""
        async with self._changing():
            # Three steps, each of which can be done again: a record without ledgers, which lists
            # all of them as garbage; the ledgers; the record. Here ``GARBAGE_LEDGERS_MAX`` does not
            # hold: the node has room for about 100,000 ids.
            ids = [*(span.ledger_id for span in self.chain.spans), *self._in_doubt]
            await self.store.save((), dropped=ids)
            for ledger_id in self.store.garbage:
                await self.ledgers.delete(ledger_id)
            await self.store.delete()
