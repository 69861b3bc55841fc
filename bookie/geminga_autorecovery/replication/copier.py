"""Copies a fragment's entries to the bookies that shall have them, a bounded batch at a time.

Entries travel as they are stored. A batch, whose size the entries' lengths tell beforehand
(``ReadPlan``), is read from the bookies that have it, one after the other of each entry's write
set, and stored before the next is read; between batches the copier waits so that it keeps its rate.
Facts: ``LedgerFragmentReplicator`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
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

# Who is asked for a copy first.
_TRUST = {None: 0, Finding.LACKING: 1, Finding.SILENT: 2, Finding.GONE: 3}


class FragmentCopier:
    """Copies fragments of any ledgers, one at a time."""

    def __init__(
        self,
        copies: Copies,
        *,
        clock: Clock,
        config: AutoRecoveryConfig,
        counters: WorkerCounters,
    ) -> None:
        self._copies = copies
        self._clock = clock
        self._config = config
        self._counters = counters
        # The rate allows the next batch from then on.
        self._next_batch_s = 0.0

    async def copy(
        self, stored: StoredMetadata, fault: FaultyFragment, replacements: Sequence[Replacement]
    ) -> None:
        """Give every replacement what it should have of the fragment.

        Raises ``EntriesUnreadable``, ``CopyRefused``; some may be stored then, which does no harm.
        """
        quorum = quorum_of(stored.ledger_id, stored.metadata)
        entry_ids = _entries_of(fault, quorum, replacements)
        entries_max = self._config.rereplication_entry_batch_size
        bytes_max = self._config.copy_batch_bytes_max
        # A batch may have one entry more than neighbours: it tells how large the next one is.
        plan = ReadPlan(max(entries_max - 1, 1))
        plan.note_end(stored.metadata.last_entry, stored.metadata.length)
        # As many as the plan looks at; in any order, for each is copied by itself.
        left = list(islice(entry_ids, 2 * entries_max))
        while left:
            batch = plan.next_ids(left, bytes_max, bytes_max)
            job = _Batch(self._copies, stored, fault, quorum, replacements, plan)
            await self._keep_rate()
            begun_s = self._clock.monotonic()
            entries = await job.read(batch)
            read_s = self._clock.monotonic()
            stored_bytes = await job.store(entries)
            self._count(entries, job, stored_bytes, begun_s, read_s)
            left = [each for each in left if each not in batch]
            left += islice(entry_ids, 2 * entries_max - len(left))

    def _count(
        self,
        entries: dict[int, bytes],
        job: _Batch,
        stored_bytes: int,
        begun_s: float,
        read_s: float,
    ) -> None:
        counters = self._counters
        counters.batches += 1
        counters.entries_read += len(entries)
        counters.bytes_read += sum(map(len, entries.values()))
        counters.entries_written += job.stored_count
        counters.bytes_written += stored_bytes
        counters.read_s += read_s - begun_s
        counters.write_s += self._clock.monotonic() - read_s
        if self._config.replication_bytes_per_s:
            self._next_batch_s = begun_s + stored_bytes / self._config.replication_bytes_per_s

    async def _keep_rate(self) -> None:
        delay_s = self._next_batch_s - self._clock.monotonic()
        if delay_s > 0:
            await asyncio.sleep(delay_s)


class _Batch:
    """Some entries of one fragment: read, then stored where they are missing."""

    def __init__(
        self,
        copies: Copies,
        stored: StoredMetadata,
        fault: FaultyFragment,
        quorum: Quorum,
        replacements: Sequence[Replacement],
        plan: ReadPlan,
    ) -> None:
        self._copies = copies
        self._plan = plan
        self._stored = stored
        self._fault = fault
        self._quorum = quorum
        self._replacements = replacements
        # By entry: the replacements that need it.
        self._wanted: dict[int, list[Replacement]] = {}
        self.stored_count = 0

    async def read(self, entry_ids: Sequence[int]) -> dict[int, bytes]:
        """The entries that somebody needs. Raises ``EntriesUnreadable``."""
        await self._find_missing(entry_ids)
        found: dict[int, bytes] = {}
        sources = {entry_id: self._sources(entry_id) for entry_id in self._wanted}
        for attempt in range(self._quorum.write_quorum):
            missing = [each for each in self._wanted if each not in found]
            asked = [
                (sources[each][attempt], each) for each in missing if attempt < len(sources[each])
            ]
            if not asked:
                break
            copies = await self._read(asked)
            for (_, entry_id), copy in zip(asked, copies, strict=True):
                if copy.flaw is None:
                    found[entry_id] = copy.content
        unreadable = [each for each in self._wanted if each not in found]
        if unreadable:
            raise EntriesUnreadable(self._stored.ledger_id, unreadable)
        return found

    async def store(self, entries: dict[int, bytes]) -> int:
        """Store what was read; the bytes that were stored. Raises ``CopyRefused``."""
        by_bookie: dict[str, dict[int, bytes]] = {}
        for entry_id, replacements in self._wanted.items():
            for replacement in replacements:
                by_bookie.setdefault(replacement.new, {})[entry_id] = entries[entry_id]
        ledger_id, metadata = self._stored.ledger_id, self._stored.metadata
        for bookie_id, copies in by_bookie.items():
            await self._copies.store(ledger_id, metadata, bookie_id, copies)
        self.stored_count = sum(map(len, by_bookie.values()))
        return sum(len(entry) for copies in by_bookie.values() for entry in copies.values())

    async def _find_missing(self, entry_ids: Sequence[int]) -> None:
        """Work out who needs what: a bookie repaired in place only what it does not give."""
        needs = [
            (entry_id, replacement)
            for entry_id in entry_ids
            for replacement in self._replacements
            if belongs_on(self._quorum, entry_id, replacement.index)
        ]
        in_place = [each for each in needs if each[1].is_in_place]
        copies = await self._read([(each.new, entry_id) for entry_id, each in in_place])
        well = {each for each, copy in zip(in_place, copies, strict=True) if copy.flaw is None}
        for entry_id, replacement in needs:
            if (entry_id, replacement) not in well:
                self._wanted.setdefault(entry_id, []).append(replacement)

    def _sources(self, entry_id: int) -> list[str]:
        """Who may have the entry, the most trusted first; not those that were just found without.

        A bookie that is not registered comes last: it may be running and have the one copy.
        """
        without = {each.old for each in self._wanted[entry_id] if each.is_in_place}
        findings, ensemble = self._fault.findings, self._fault.fragment.ensemble
        indexes = sorted(
            self._quorum.write_set(entry_id), key=lambda index: _TRUST[findings.get(index)]
        )
        return [ensemble[index] for index in indexes if ensemble[index] not in without]

    async def _read(self, wanted: list[tuple[str, int]]) -> list[Copy]:
        if not wanted:
            return []
        copies = await self._copies.read(self._stored.ledger_id, self._stored.metadata, wanted)
        found = [
            (entry_id, copy.content)
            for (_, entry_id), copy in zip(wanted, copies, strict=True)
            if copy.flaw is None
        ]
        for entry_id, entry in found[-2:]:
            length = DIGESTED_HEADER.unpack_from(entry)[3]
            self._plan.note_length(entry_id, length)
        if found:
            self._plan.note_sizes(len(found), sum(len(entry) for _, entry in found))
        return copies


def _entries_of(
    fault: FaultyFragment, quorum: Quorum, replacements: Sequence[Replacement]
) -> Iterator[int]:
    """The entries that belong on any of the replacements, in order."""
    fragment = fault.fragment
    for entry_id in range(fragment.first_entry, fragment.last_entry + 1):
        if any(belongs_on(quorum, entry_id, each.index) for each in replacements):
            yield entry_id
