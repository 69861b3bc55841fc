"""Copies a fragment's entries to the bookies that should have them, a bounded batch at a time.

Entries are copied as they are stored. A batch, whose size is known beforehand from the lengths that
entries carry (``ReadPlan``), is read from the bookies that have it, one after the other of each
entry's write set, and stored before the next is read; between batches the copier waits so that it
keeps its rate. Facts: ``LedgerFragmentReplicator`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.counters import WorkerCounters
from geminga_autorecovery.decisions.findings import FaultyFragment, Finding
from geminga_autorecovery.decisions.fragments import belongs_on, quorum_of
from geminga_autorecovery.decisions.repair_plan import Replacement
from geminga_autorecovery.errors import EntriesUnreadable
from geminga_autorecovery.replication.copies import Copies, Copy
from geminga_ledger.entries.read_plan import ReadPlan
from geminga_ledger.metadata.store import StoredMetadata
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper.digest import DIGESTED_HEADER
from geminga_runtime.clock import Clock

# Which bookie of a write set is asked for a copy first, by what is wrong with it.
_TRUST = {None: 0, Finding.LACKING: 1, Finding.SILENT: 2, Finding.GONE: 3}


@dataclass(eq=False, slots=True)
class FragmentCopier:
    """Copies fragments of any ledgers, one at a time."""

    copies: Copies
    clock: Clock = field(kw_only=True)
    config: AutoRecoveryConfig = field(kw_only=True)
    counters: WorkerCounters = field(kw_only=True)
    # By the clock: the rate allows the next batch from then on. It holds for all ledgers together.
    next_batch_s: float = field(default=0.0, init=False)

    async def copy(
        self, stored: StoredMetadata, fault: FaultyFragment, replacements: Sequence[Replacement]
    ) -> None:
        """Give every replacement the entries of the fragment that it should have.

        Raises ``EntriesUnreadable``, ``CopyRefused``; some may be stored then, which does no harm.
        """
        quorum = quorum_of(stored.ledger_id, stored.metadata)
        # A generator: the ids of a ledger with millions of entries are not in memory at once.
        entry_ids = _entries_of(fault, quorum, replacements)
        entries_max = self.config.rereplication_entry_batch_size
        bytes_max = self.config.copy_batch_bytes_max
        rate = self.config.replication_bytes_per_s
        # A batch may have one entry more than neighbours: it tells how large the next one is.
        plan = ReadPlan(max(entries_max - 1, 1))
        # A closed ledger's metadata has both, so that even the first batch is not blind.
        plan.note_end(stored.metadata.last_entry, stored.metadata.length)
        counters = self.counters
        # As many as the plan looks at. The order does not matter: each entry is copied by itself.
        left = list(islice(entry_ids, 2 * entries_max))
        while left:
            batch_ids = plan.next_ids(left, bytes_max, bytes_max)
            # ``wanted`` is of one batch, so that each gets an object of its own.
            batch = _Batch(self.copies, stored, fault, quorum, replacements, plan)
            # Wait for the rate; read the batch; store it; work out when the next one may begin.
            delay_s = self.next_batch_s - self.clock.monotonic()
            if delay_s > 0:
                await asyncio.sleep(delay_s)
            begun_s = self.clock.monotonic()
            entries = await batch.read(batch_ids)
            read_s = self.clock.monotonic()
            stored_bytes = await batch.store(entries)
            counters.batches += 1
            counters.entries_read += len(entries)
            counters.bytes_read += sum(map(len, entries.values()))
            counters.entries_written += batch.stored_count
            counters.bytes_written += stored_bytes
            counters.read_s += read_s - begun_s
            counters.write_s += self.clock.monotonic() - read_s
            # By what was stored, and from the beginning of the batch: the time that it took counts.
            if rate:
                self.next_batch_s = begun_s + stored_bytes / rate
            # The plan may have skipped some: the last of a batch is the end of the next window.
            left = [each for each in left if each not in batch_ids]
            left += islice(entry_ids, 2 * entries_max - len(left))


@dataclass(eq=False, slots=True)
class _Batch:
    """Some entries of one fragment: read, then stored where they are missing."""

    copies: Copies
    stored: StoredMetadata
    fault: FaultyFragment
    quorum: Quorum
    replacements: Sequence[Replacement]
    # Learns the sizes of what is read.
    plan: ReadPlan
    # By entry: the replacements that need it.
    wanted: dict[int, list[Replacement]] = field(default_factory=dict[int, list[Replacement]])
    # How many copies ``store`` has made.
    stored_count: int = 0

    async def read(self, entry_ids: Sequence[int]) -> dict[int, bytes]:
        """Those of the entries that a replacement needs. Raises ``EntriesUnreadable``."""
        # A bookie that is repaired in place needs only what it cannot give itself: ask it first.
        # Pairs and not entries: a write set may hold two bookies that are both replaced.
        needs = [
            (entry_id, replacement)
            for entry_id in entry_ids
            for replacement in self.replacements
            if belongs_on(self.quorum, entry_id, replacement.index)
        ]
        in_place = [each for each in needs if each[1].is_in_place]
        copies = await self._read([(each.new, entry_id) for entry_id, each in in_place])
        # These copies are good where they are.
        well = {each for each, copy in zip(in_place, copies, strict=True) if copy.flaw is None}
        for entry_id, replacement in needs:
            if (entry_id, replacement) not in well:
                self.wanted.setdefault(entry_id, []).append(replacement)
        # Then ask, for all entries at once, the best source of each; then the second best of those
        # that are still missing, and so on.
        found: dict[int, bytes] = {}
        sources = {entry_id: self._sources(entry_id) for entry_id in self.wanted}
        # No more bookies than ``write_quorum`` should have an entry, so that there are no more
        # rounds.
        for attempt in range(self.quorum.write_quorum):
            missing = [each for each in self.wanted if each not in found]
            asked = [
                (sources[each][attempt], each) for each in missing if attempt < len(sources[each])
            ]
            if not asked:
                break
            copies = await self._read(asked)
            for (_, entry_id), copy in zip(asked, copies, strict=True):
                if copy.flaw is None:
                    found[entry_id] = copy.content
        # Nothing of the batch is stored then: the plan has to be made anew.
        unreadable = [each for each in self.wanted if each not in found]
        if unreadable:
            raise EntriesUnreadable(self.stored.ledger_id, unreadable)
        return found

    async def store(self, entries: dict[int, bytes]) -> int:
        """Store what was read; returns the bytes that were stored. Raises ``CopyRefused``."""
        by_bookie: dict[str, dict[int, bytes]] = {}
        for entry_id, replacements in self.wanted.items():
            for replacement in replacements:
                by_bookie.setdefault(replacement.new, {})[entry_id] = entries[entry_id]
        ledger_id, metadata = self.stored.ledger_id, self.stored.metadata
        # One bookie after the other; the first that refuses ends the batch.
        for bookie_id, copies in by_bookie.items():
            await self.copies.store(ledger_id, metadata, bookie_id, copies)
        self.stored_count = sum(map(len, by_bookie.values()))
        return sum(len(entry) for copies in by_bookie.values() for entry in copies.values())

    def _sources(self, entry_id: int) -> list[str]:
        """Bookies that may have the entry, the most trusted first; not those that just gave none.

        A bookie that is not registered comes last: it may be running and have the one copy.
        """
        # It was asked first, and what it gave was no good copy.
        without = {each.old for each in self.wanted[entry_id] if each.is_in_place}
        findings, ensemble = self.fault.findings, self.fault.fragment.ensemble
        # ``sorted`` keeps the order of the write set among equally trusted bookies.
        indexes = sorted(
            self.quorum.write_set(entry_id), key=lambda index: _TRUST[findings.get(index)]
        )
        return [ensemble[index] for index in indexes if ensemble[index] not in without]

    async def _read(self, wanted: list[tuple[str, int]]) -> list[Copy]:
        """Read copies, and remember what they tell of the ledger's sizes."""
        if not wanted:
            return []
        copies = await self.copies.read(self.stored.ledger_id, self.stored.metadata, wanted)
        found = [
            (entry_id, copy.content)
            for (_, entry_id), copy in zip(wanted, copies, strict=True)
            if copy.flaw is None
        ]
        # The last one, and the one before it: the end of the batch, and that of the next.
        for entry_id, entry in found[-2:]:
            length = DIGESTED_HEADER.unpack_from(entry)[3]
            self.plan.note_length(entry_id, length)
        if found:
            self.plan.note_sizes(len(found), sum(len(entry) for _, entry in found))
        return copies


def _entries_of(
    fault: FaultyFragment, quorum: Quorum, replacements: Sequence[Replacement]
) -> Iterator[int]:
    """The entries that belong on any of the replacements, in order."""
    fragment = fault.fragment
    for entry_id in range(fragment.first_entry, fragment.last_entry + 1):
        if any(belongs_on(quorum, entry_id, each.index) for each in replacements):
            yield entry_id
