"""Entries are copied to exactly those that should have them, a bounded batch at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import accumulate
from typing import cast

import pytest
from tests.unit.geminga_autorecovery.cluster import (
    CONFIG,
    ENTRY_BYTES,
    LEDGER_OPTIONS,
    Cluster,
    metadata_of,
)

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.counters import WorkerCounters
from geminga_autorecovery.decisions.findings import FaultyFragment, Finding
from geminga_autorecovery.decisions.fragments import fragments_of
from geminga_autorecovery.decisions.repair_plan import Replacement
from geminga_autorecovery.errors import CopyRefused, EntriesUnreadable
from geminga_autorecovery.replication.copier import FragmentCopier
from geminga_autorecovery.replication.copies import Copies, Copy
from geminga_ledger.metadata.store import StoredMetadata
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper.codes import Operation, ReturnCode
from geminga_protocol.bookkeeper.digest import ENTRY_HEADER_BYTES, encode_entry_header
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata
from geminga_simulation.event_loop.clock import SimulatedClock

MIB = 1024 * 1024
STRIPED = metadata_of((3, 2, 2), [(0, (0, 1, 2))], last_entry=29)
STORED = StoredMetadata(7, STRIPED, 0)
(FRAGMENT,) = fragments_of(STRIPED)
ON_B1 = [each for each in range(30) if 1 in Quorum(3, 2, 2).write_set(each)]


@asynccontextmanager
async def copier_of(
    cluster: Cluster, config: AutoRecoveryConfig = CONFIG
) -> AsyncGenerator[FragmentCopier]:
    registry, links = cluster.links()
    async with registry, links:
        copies = Copies(links, answer_timeout_s=LEDGER_OPTIONS.answer_timeout_s)
        yield FragmentCopier(copies, clock=cluster.clock, config=config, counters=WorkerCounters())


async def copy(
    cluster: Cluster,
    findings: dict[int, Finding],
    replacements: Sequence[Replacement],
    config: AutoRecoveryConfig = CONFIG,
) -> WorkerCounters:
    async with copier_of(cluster, config) as copier:
        await copier.copy(STORED, FaultyFragment(FRAGMENT, findings), replacements)
        return copier.counters


async def test_the_new_bookie_gets_what_belonged_on_the_old_one() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, STRIPED)
    wanted = dict(cluster.bookies[1].entries[7])
    cluster.lose(1)
    counters = await copy(cluster, {1: Finding.GONE}, [Replacement(1, "b1", "b3")])
    assert cluster.bookies[3].entries[7] == wanted
    assert sorted(wanted) == ON_B1
    assert (counters.entries_read, counters.entries_written) == (20, 20)
    assert counters.bytes_written == 20 * ENTRY_BYTES


async def test_a_bookie_repaired_in_place_gets_only_what_it_lacks() -> None:
    cluster = Cluster(3)
    cluster.put_ledger(7, STRIPED, without=[(1, 4)])
    cluster.damage(1, 7, 6)
    counters = await copy(cluster, {1: Finding.LACKING}, [Replacement(1, "b1", "b1")])
    assert cluster.bookies[1].stored(7) == ON_B1
    assert counters.entries_written == 2
    assert cluster.bookies[1].entries[7][6] == cluster.bookies[0].entries[7][6]


async def test_two_lost_bookies_are_filled_from_those_that_stay() -> None:
    cluster = Cluster(5)
    metadata = metadata_of((3, 3, 2), [(0, (0, 1, 2))], last_entry=9)
    cluster.put_ledger(7, metadata)
    cluster.lose(0)
    cluster.lose(1)
    fault = FaultyFragment(fragments_of(metadata)[0], {0: Finding.GONE, 1: Finding.GONE})
    async with copier_of(cluster) as copier:
        await copier.copy(
            StoredMetadata(7, metadata, 0),
            fault,
            [Replacement(0, "b0", "b3"), Replacement(1, "b1", "b4")],
        )
    assert cluster.bookies[3].entries[7] == cluster.bookies[2].entries[7]
    assert cluster.bookies[4].entries[7] == cluster.bookies[2].entries[7]


async def test_an_entry_that_one_lacks_is_taken_from_another() -> None:
    cluster = Cluster(4)
    metadata = metadata_of((3, 3, 2), [(0, (0, 1, 2))], last_entry=9)
    cluster.put_ledger(7, metadata, without=[(0, 5)])
    cluster.damage(0, 7, 6)
    cluster.lose(1)
    async with copier_of(cluster) as copier:
        await copier.copy(
            StoredMetadata(7, metadata, 0),
            FaultyFragment(fragments_of(metadata)[0], {1: Finding.GONE}),
            [Replacement(1, "b1", "b3")],
        )
    assert cluster.bookies[3].entries[7] == cluster.bookies[2].entries[7]


async def test_the_one_copy_of_a_bookie_that_is_running_unregistered_is_found() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, STRIPED, without=[(2, 1)])
    fault = {1: Finding.SILENT}  # it was silent when it was checked, and answers now
    await copy(cluster, fault, [Replacement(1, "b1", "b3")])
    assert cluster.bookies[3].stored(7) == ON_B1


async def test_entries_that_no_bookie_has_are_named() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, STRIPED, without=[(2, 1), (2, 4)])
    cluster.lose(1)
    with pytest.raises(EntriesUnreadable, match="2 entries of ledger 7") as caught:
        await copy(cluster, {1: Finding.GONE}, [Replacement(1, "b1", "b3")])
    assert caught.value.entry_ids == (1, 4)


async def test_a_bookie_that_refuses_copies_is_named() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, STRIPED)
    cluster.lose(1)
    cluster.bookies[3].refusals[Operation.ADD] = ReturnCode.EREADONLY
    with pytest.raises(CopyRefused, match="b3"):
        await copy(cluster, {1: Finding.GONE}, [Replacement(1, "b1", "b3")])


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, rereplication_entry_batch_size=5),
        replace(CONFIG, copy_batch_bytes_max=5 * (ENTRY_BYTES - ENTRY_HEADER_BYTES)),
    ],
)
async def test_batches_are_bounded(config: AutoRecoveryConfig) -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, STRIPED)
    cluster.lose(1)
    counters = await copy(cluster, {1: Finding.GONE}, [Replacement(1, "b1", "b3")], config)
    assert cluster.bookies[3].stored(7) == ON_B1
    assert counters.batches >= 3


async def test_the_rate_is_kept() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, STRIPED)
    cluster.lose(1)
    config = replace(CONFIG, rereplication_entry_batch_size=5, replication_bytes_per_s=ENTRY_BYTES)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    await copy(cluster, {1: Finding.GONE}, [Replacement(1, "b1", "b3")], config)
    # Twenty entries, one a second; the copier does not wait after the last batch, which has four.
    assert loop.time() - begun_s == pytest.approx(16, abs=0.5)


class UnequalCopies:
    """Copies of entries of these sizes, as bookies would give them; all are stored at once."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.lengths = list(accumulate(sizes))
        self.batches: list[list[int]] = []
        self.stored: list[int] = []

    async def read(
        self, ledger_id: int, metadata: LedgerMetadata, wanted: Sequence[tuple[str, int]]
    ) -> list[Copy]:
        del metadata
        self.batches.append([entry_id for _, entry_id in wanted])
        return [
            Copy(encode_entry_header(ledger_id, each, -1, self.lengths[each], b"") + payload)
            for _, each in wanted
            for payload in (bytes(self.sizes[each]),)
        ]

    async def store(
        self, ledger_id: int, metadata: LedgerMetadata, bookie_id: str, entries: Mapping[int, bytes]
    ) -> None:
        del ledger_id, metadata, bookie_id
        self.stored += entries


async def test_a_batch_has_few_bytes_where_large_entries_follow_small_ones() -> None:
    sizes = [100] * 300 + [MIB] * 60 + [100, MIB] * 30
    copies = UnequalCopies(sizes)
    metadata = metadata_of((1, 1, 1), [(0, (0,))], last_entry=len(sizes) - 1)
    stored = StoredMetadata(7, replace(metadata, length=sum(sizes)), 0)
    (fragment,) = fragments_of(stored.metadata)
    copier = FragmentCopier(
        cast(Copies, copies),
        clock=SimulatedClock(),
        config=replace(CONFIG, replication_bytes_per_s=0),
        counters=WorkerCounters(),
    )
    fault = FaultyFragment(fragment, {0: Finding.GONE})
    await copier.copy(stored, fault, [Replacement(0, "b0", "b1")])
    assert sorted(copies.stored) == list(range(len(sizes)))
    assert max(sum(sizes[each] for each in batch) for batch in copies.batches) <= 10 * MIB
    assert max(map(len, copies.batches)) <= CONFIG.rereplication_entry_batch_size
