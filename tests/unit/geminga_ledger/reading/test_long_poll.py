"""One bookie waits for the reader; those that cannot, or hang, are replaced or joined in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.geminga_ledger.v3_bench import LEDGER, V3Bench, v3_bench
from tests.unit.geminga_ledger.world import INSTANT_S, entry_of, settle

from geminga_ledger.reading.long_poll import LongPoll, News
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper import requests_pb2 as pb

QUORUM = Quorum(3, 2, 2)
# Of entry 1 they are told first by b2, which has it and gets entry 2 as well.
AFTER = 0
FIRST = 2


@pytest.fixture
async def bench() -> AsyncIterator[V3Bench]:
    async with v3_bench(3) as bench:
        bench.store(0, 1)
        yield bench


def poll(bench: V3Bench, *, timeout_s: float = 60.0, turn: int = 0) -> asyncio.Task[News]:
    """The poll, soon to ask."""
    polling = LongPoll(
        LEDGER,
        QUORUM,
        bench.links,
        after=AFTER,
        timeout_s=timeout_s,
        config=bench.config,
        turn=turn,
    )
    return asyncio.get_running_loop().create_task(polling.run())


def asked(bench: V3Bench) -> list[int]:
    """How many long polls each bookie got."""
    return [bookie.v3.count(pb.READ_ENTRY) for bookie in bench.bookies]


async def test_news_come_at_once_and_bring_the_entry(bench: V3Bench) -> None:
    began_s = bench.world.clock.monotonic()
    polling = poll(bench)
    await settle()
    assert asked(bench) == [0, 0, 1]
    bench.store(2)
    assert await polling == News(1, entry_of(LEDGER, 1, 0))
    assert bench.world.clock.monotonic() <= began_s + INSTANT_S


async def test_what_a_bookie_knows_already_is_told_at_once(bench: V3Bench) -> None:
    bench.store(2, 3, 4)
    assert await poll(bench) == News(3, entry_of(LEDGER, 1, 0))
    assert asked(bench) == [0, 0, 1]


async def test_news_of_a_bookie_without_the_entry_come_without_it(bench: V3Bench) -> None:
    bench.store(2)
    del bench.bookies[FIRST].entries[LEDGER][1]
    assert await poll(bench) == News(1, None)


async def test_without_news_it_ends_in_time(bench: V3Bench) -> None:
    began_s = bench.world.clock.monotonic()
    assert await poll(bench, timeout_s=20) == News(0, None)
    assert bench.world.clock.monotonic() - began_s == pytest.approx(20, abs=0.1)
    # A bookie that is silent might hang: the others were asked after 1.5 s, and 3 s more.
    assert asked(bench) == [1, 1, 1]


async def test_a_bookie_that_hangs_gets_company(bench: V3Bench) -> None:
    bench.bookies[FIRST].is_silent = True
    polling = poll(bench)
    await asyncio.sleep(1.6)
    assert sorted(asked(bench)) == [0, 1, 1]
    bench.store(2)
    assert (await polling).last_confirmed == 1


async def test_bookies_that_all_hang_end_it_after_the_time_for_answers(bench: V3Bench) -> None:
    for bookie in bench.bookies:
        bookie.is_silent = True
    began_s = bench.world.clock.monotonic()
    assert await poll(bench, timeout_s=20) == News()
    assert bench.world.clock.monotonic() - began_s == pytest.approx(30, abs=0.1)


@pytest.mark.parametrize("status", [pb.EIO, pb.ETOOMANYREQUESTS, pb.ENOLEDGER])
async def test_a_bookie_that_refuses_is_replaced_at_once(
    bench: V3Bench, status: pb.StatusCode.ValueType
) -> None:
    bench.bookies[FIRST].v3.refusals[pb.READ_ENTRY] = status
    polling = poll(bench)
    await settle()
    assert sum(asked(bench)) == 2
    bench.store(2)
    assert (await polling).last_confirmed == 1
    assert bench.links[FIRST].is_doubtful == (status != pb.ENOLEDGER)


async def test_a_connection_that_breaks_is_replaced_at_once(bench: V3Bench) -> None:
    polling = poll(bench)
    await settle()
    bench.bookies[FIRST].kill()
    await settle()
    assert sum(asked(bench)) == 2
    bench.store(2)
    assert (await polling).last_confirmed == 1


async def test_one_that_was_away_a_moment_ago_is_asked_last(bench: V3Bench) -> None:
    bench.bookies[FIRST].kill()
    polling = poll(bench)
    await settle()
    bench.store(2)
    await polling
    polling = poll(bench)
    await settle()
    assert asked(bench)[FIRST] == 0
    await polling


async def test_a_poll_ends_where_no_bookie_can_hold_it(bench: V3Bench) -> None:
    for bookie in bench.bookies:
        bookie.entries.clear()
    began_s = bench.world.clock.monotonic()
    assert await poll(bench) == News()
    assert bench.world.clock.monotonic() <= began_s + INSTANT_S
    assert asked(bench) == [1, 1, 1]


async def test_what_a_bookie_knows_less_than_the_reader_is_no_news(bench: V3Bench) -> None:
    del bench.bookies[FIRST].entries[LEDGER][1]
    polling = poll(bench)
    await settle()
    bench.store(1, on=FIRST)
    await settle()
    assert not polling.done()
    bench.store(2)
    assert (await polling).last_confirmed == 1


async def test_it_can_be_given_up(bench: V3Bench) -> None:
    polling = poll(bench)
    await settle()
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert not [each for each in asyncio.all_tasks() if each.get_name().startswith("poll ")]


async def test_who_asks_in_vain_begins_with_another_bookie_the_next_time(bench: V3Bench) -> None:
    for turn in range(3):
        await poll(bench, timeout_s=0.0, turn=turn)
        polling = poll(bench, turn=turn)
        await settle()
        polling.cancel()
    assert asked(bench) == [1, 1, 1]
