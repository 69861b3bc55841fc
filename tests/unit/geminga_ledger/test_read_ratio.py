"""Proves that readers get the right entries and read no byte twice, at any mix of sizes.

Bytes that came from bookies and bytes given out are those of the metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_ledger.entry_sizes import KIB, MIB, mixes
from tests.unit.geminga_ledger.world import KEY, World

from geminga_ledger import EntryCorrupt, LedgerConfig, LedgerReader, Ledgers
from geminga_protocol.bookkeeper.codes import Operation
from geminga_protocol.bookkeeper.digest import encode_entry_header
from geminga_simulation.event_loop.loop import SimulatedLoop

LEDGER = 5
# What a ledger of a property test has at most: each example reads it once or more.
BYTES_MAX = 12 * MIB
QUORUMS = ((1, 1, 1), (3, 2, 2))


def payload_of(entry_id: int, size: int) -> bytes:
    """What a ledger of these tests has there: no two entries are alike."""
    return (b"%d." % entry_id * (size // 2 + 1))[:size]


class Passes:
    """Ledger 5 with entries of these sizes on three bookies, and readers of it."""

    def __init__(
        self,
        ledgers: Ledgers,
        world: World,
        sizes: list[int],
        quorum: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        self.ledgers = ledgers
        self.world = world
        self.sizes = sizes
        world.left_behind(LEDGER, quorum, {})
        for entry_id, (size, length) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
            payload = payload_of(entry_id, size)
            head = encode_entry_header(LEDGER, entry_id, entry_id - 1, length, payload)
            for bookie in world.bookies[: quorum[0]]:
                bookie.store(LEDGER, entry_id, head + payload, KEY)

    def close_ledger(self) -> None:
        closed = self.world.metadata(LEDGER).closed(len(self.sizes) - 1, sum(self.sizes))
        self.world.put_metadata(LEDGER, closed)

    async def reader(self) -> LedgerReader:
        reader = await self.ledgers.open(LEDGER, recover=False)
        reader.advance(len(self.sizes) - 1)
        return reader

    async def read_through(
        self, reader: LedgerReader, wanted: list[int], *, count_max: int, bytes_max: int
    ) -> None:
        """Read all of ``wanted``, and look at every byte of it."""
        at = 0
        while at < len(wanted):
            found = await reader.read_entries(wanted[at : at + count_max], bytes_max=bytes_max)
            assert found
            assert len(found) == 1 or sum(map(len, found)) <= bytes_max
            for entry_id, payload in zip(wanted[at:], found, strict=False):
                assert payload == payload_of(entry_id, self.sizes[entry_id])
            at += len(found)

    @property
    def bytes_read(self) -> int:
        return self.ledgers.counters.bytes_read

    @property
    def bytes_given_out(self) -> int:
        return self.ledgers.counters.bytes_given_out


@asynccontextmanager
async def passes_over(
    sizes: list[int],
    quorum: tuple[int, int, int] = (1, 1, 1),
    config: LedgerConfig | None = None,
) -> AsyncGenerator[Passes]:
    world = World(3)
    async with world.ledgers(config) as ledgers:
        yield Passes(ledgers, world, sizes, quorum)


@given(
    mixes(BYTES_MAX),
    st.sampled_from(QUORUMS),
    st.booleans(),
    st.sampled_from([1, 10, 1000]),
    st.sampled_from([1, 100 * KIB, MIB]),
)
@settings(max_examples=40)
def test_one_pass_reads_every_entry_once(
    sizes: list[int],
    quorum: tuple[int, int, int],
    is_closed: bool,  # noqa: FBT001 - hypothesis draws it
    count_max: int,
    bytes_max: int,
) -> None:
    async def play() -> None:
        async with passes_over(sizes, quorum) as passes:
            if is_closed:
                passes.close_ledger()
            reader = await passes.reader()
            wanted = list(range(len(sizes)))
            await passes.read_through(reader, wanted, count_max=count_max, bytes_max=bytes_max)
            assert passes.bytes_read == passes.bytes_given_out == sum(sizes)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(play())


@given(mixes(BYTES_MAX), st.lists(st.integers(1, 20), min_size=1, max_size=100))
@settings(max_examples=25)
def test_of_entries_with_gaps_between_them_no_other_is_read(
    sizes: list[int], steps: list[int]
) -> None:
    async def play() -> None:
        wanted = [each for each in accumulate(steps, initial=0) if each < len(sizes)]
        async with passes_over(sizes) as passes:
            reader = await passes.reader()
            await passes.read_through(reader, wanted, count_max=1000, bytes_max=MIB)
            total = sum(sizes[each] for each in wanted)
            assert passes.bytes_read == passes.bytes_given_out == total

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(play())


@given(mixes(BYTES_MAX), st.lists(st.integers(0, 1000), min_size=2, max_size=6))
@settings(max_examples=25)
def test_passes_at_several_places_of_a_ledger_read_each_for_itself(
    sizes: list[int], starts: list[int]
) -> None:
    async def play() -> None:
        all_wanted = [list(range(start % len(sizes), len(sizes))) for start in starts]
        async with passes_over(sizes) as passes:
            reader = await passes.reader()
            async with asyncio.TaskGroup() as group:
                for wanted in all_wanted:
                    work = passes.read_through(reader, wanted, count_max=1000, bytes_max=MIB)
                    group.create_task(work)
            assert passes.bytes_given_out == sum(sizes[each] for ids in all_wanted for each in ids)
            assert passes.bytes_read <= 1.5 * passes.bytes_given_out

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(play())


async def test_a_reader_that_jumps_has_read_little_more_than_it_gave_out() -> None:
    async with passes_over([50, 60 * KIB] * 500) as passes:
        reader = await passes.reader()
        for first in (0, 700, 300):
            given_before, read_before = passes.bytes_given_out, passes.bytes_read
            await reader.read(first, 999, bytes_max=MIB)
            given_out = passes.bytes_given_out - given_before
            assert given_out > MIB // 2
            assert passes.bytes_read - read_before <= 1.2 * given_out


async def test_what_was_looked_at_is_not_read_again() -> None:
    async with passes_over([1000] * 100) as passes:
        reader = await passes.reader()
        for entry_id in (50, 25, 12):
            assert await reader.peek(entry_id) == [payload_of(entry_id, 1000)]
        assert (passes.bytes_read, passes.bytes_given_out) == (3_000, 0)
        await passes.read_through(reader, list(range(12, 100)), count_max=1000, bytes_max=MIB)
        assert passes.bytes_read == passes.bytes_given_out == 88_000


async def test_what_all_readers_keep_is_bounded_and_what_had_to_go_is_read_again() -> None:
    sizes = [100] * 200 + [3 * MIB] * 6
    async with passes_over(sizes, config=LedgerConfig(read_ahead_bytes_max=2 * MIB)) as passes:
        reader = await passes.reader()
        await passes.read_through(reader, list(range(206)), count_max=1000, bytes_max=MIB)
        assert passes.bytes_given_out == sum(sizes)
        assert sum(sizes) < passes.bytes_read < 2 * sum(sizes)


@pytest.mark.parametrize("quorum", QUORUMS)
async def test_what_was_read_beyond_a_damaged_entry_is_not_read_again(
    quorum: tuple[int, int, int],
) -> None:
    async with passes_over([1000] * 20, quorum) as passes:
        passes.close_ledger()
        bookies = passes.world.bookies[: quorum[0]]
        whole = [bookie.entries[LEDGER][5] for bookie in bookies]
        for bookie in bookies:
            bookie.store(LEDGER, 5, b"rotten", KEY)
        reader = await passes.reader()
        assert len(await reader.read(0, 19, bytes_max=MIB)) == 5
        for _ in range(3):
            with pytest.raises(EntryCorrupt):
                await reader.read(5, 19, bytes_max=MIB)
        requests = [request for bookie in bookies for request in bookie.requests]
        asked = [each[3] for each in requests if each[0] == Operation.READ and each[3] >= 0]
        assert sorted(each for each in asked if each != 5) == [*range(5), *range(6, 20)]
        for bookie, entry in zip(bookies, whole, strict=True):
            bookie.store(LEDGER, 5, entry, KEY)
        assert len(await reader.read(5, 19, bytes_max=MIB)) == 15
        assert passes.bytes_given_out == 20 * 1000
