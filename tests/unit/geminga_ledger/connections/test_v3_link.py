"""A V3 link connects when it is asked, gives up what does not answer, and never waits for long."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_ledger.v3_bench import LEDGER, v3_bench
from tests.unit.geminga_ledger.world import settle

from geminga_ledger.config import LedgerConfig
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3_requests import long_poll_request, read_lac_request

TIMEOUT_S = 10.0


async def test_nothing_is_connected_before_the_first_request() -> None:
    async with v3_bench(2) as bench:
        await asyncio.sleep(10)
        assert bench.world.network.connects == []
        response = await bench.links[0].ask(read_lac_request(LEDGER), timeout_s=TIMEOUT_S)
        assert response.status == pb.ENOENTRY
        assert len(bench.world.network.connects) == 1


async def test_requests_made_at_once_share_a_connection() -> None:
    async with v3_bench(1) as bench:
        asking = [
            bench.links[0].ask(read_lac_request(LEDGER), timeout_s=TIMEOUT_S) for _ in range(5)
        ]
        assert len(await asyncio.gather(*asking)) == 5
        assert len(bench.world.network.connects) == 1


async def test_a_bookie_that_is_away_is_found_when_it_is_back() -> None:
    async with v3_bench(1) as bench:
        link = bench.links[0]
        bench.bookies[0].kill()
        with pytest.raises(BookieUnavailable, match="no process listens"):
            await link.ask(read_lac_request(LEDGER), timeout_s=TIMEOUT_S)
        assert link.is_doubtful
        # For a moment it is not tried again: a caller has other bookies to ask.
        with pytest.raises(BookieUnavailable, match="a moment ago"):
            await link.ask(read_lac_request(LEDGER), timeout_s=TIMEOUT_S)
        bench.bookies[0].start()
        await asyncio.sleep(bench.config.retry_limit_s)
        await link.ask(read_lac_request(LEDGER), timeout_s=TIMEOUT_S)
        assert not link.is_doubtful


async def test_requests_to_a_bookie_that_does_not_even_connect_fail_after_one_attempt() -> None:
    async with v3_bench(1) as bench:
        bench.world.network.silent.add(3181)
        began_s = bench.world.clock.monotonic()
        asking = [
            bench.links[0].ask(read_lac_request(LEDGER), timeout_s=TIMEOUT_S) for _ in range(5)
        ]
        results = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(each, BookieUnavailable) for each in results)
        assert bench.world.clock.monotonic() - began_s <= bench.config.connect_timeout_s + 0.1
        assert len(bench.world.network.connects) == 1


async def test_a_bookie_that_does_not_answer_loses_the_connection() -> None:
    async with v3_bench(1) as bench:
        bench.bookies[0].is_silent = True
        with pytest.raises(BookieUnavailable, match="no answer in 10 s"):
            await bench.links[0].ask(read_lac_request(LEDGER), timeout_s=TIMEOUT_S)
        assert bench.links[0].is_doubtful
        bench.bookies[0].is_silent = False
        await bench.links[0].ask(read_lac_request(LEDGER), timeout_s=TIMEOUT_S)
        assert len(bench.world.network.connects) == 2


async def test_silence_is_noticed_though_every_question_was_given_up() -> None:
    async with v3_bench(1) as bench:
        bench.store(0)
        bench.bookies[0].is_silent = True
        link = bench.links[0]
        for _ in range(12):
            asking = asyncio.ensure_future(
                link.ask(long_poll_request(LEDGER, 0, 1000), timeout_s=TIMEOUT_S)
            )
            await asyncio.sleep(1)
            asking.cancel()
        assert link.is_doubtful
        assert len(bench.world.network.connects) == 2


async def test_a_connection_that_breaks_fails_what_was_asked() -> None:
    async with v3_bench(1) as bench:
        bench.store(0)
        asking = asyncio.ensure_future(
            bench.links[0].ask(long_poll_request(LEDGER, 0, 60_000), timeout_s=70)
        )
        await settle()
        bench.bookies[0].drop_connections()
        with pytest.raises(BookieUnavailable, match="broke"):
            await asking


async def test_closing_ends_what_waits_and_what_comes() -> None:
    async with v3_bench(2, LedgerConfig()) as bench:
        bench.store(0)
        asking = asyncio.ensure_future(
            bench.links[0].ask(long_poll_request(LEDGER, 0, 60_000), timeout_s=70)
        )
        await settle()
    for link in bench.links:
        with pytest.raises(BookieUnavailable, match="closing"):
            await (asking if link is bench.links[0] else link.ask(pb.Request(), timeout_s=1))
