"""The list of a ledger's entries is what can be read."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_bookie.fakes import KEY, make_add
from tests.unit.geminga_bookie.host import Host

from geminga_bookie.storage.entry_list import entry_runs
from geminga_protocol.bookkeeper.availability import runs_of
from geminga_protocol.bookkeeper.errors import NoSuchLedger
from geminga_simulation.event_loop.loop import SimulatedLoop


@given(st.lists(st.sets(st.integers(0, 60), max_size=30), min_size=1, max_size=4), st.booleans())
@settings(max_examples=40)
def test_it_is_the_union_of_all_that_was_added(batches: list[set[int]], is_flushed: bool) -> None:  # noqa: FBT001
    async def run() -> None:
        host = Host(block_bytes=300)
        async with host.bookie() as bookie:
            client = host.network.connect_client()
            await client.ask(make_add(1, 0))
            for batch in batches:
                if batch:
                    await client.ask(*(make_add(1, number) for number in batch))
                if is_flushed:
                    await bookie.checkpointer.run()
            wanted = runs_of(sorted({0}.union(*batches)))
            assert await entry_runs(bookie.storage, 1) == wanted

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(run())


async def test_a_ledger_without_entries_has_none() -> None:
    async with Host().bookie() as bookie:
        with pytest.raises(NoSuchLedger):
            await entry_runs(bookie.storage, 1)
        bookie.storage.fence(1, KEY)
        assert await entry_runs(bookie.storage, 1) == []
