"""The most that bookies know to be confirmed is told, if enough of them tell, and checked."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.unit.geminga_ledger.v3_bench import LEDGER, V3Bench, v3_bench
from tests.unit.geminga_ledger.world import KEY

from geminga_ledger.entries.digests import entry_decoder, explicit_lac_decoder
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.reading.lac_read import LacRead
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3_requests import encode_explicit_lac
from geminga_protocol.records.ledgers.ledger_metadata import DigestType


@pytest.fixture
async def bench() -> AsyncIterator[V3Bench]:
    async with v3_bench(3) as bench:
        yield bench


async def read(bench: V3Bench) -> int:
    return await LacRead(
        LEDGER,
        Quorum(3, 3, 2),
        bench.links,
        answer_timeout_s=10,
        decode_entry=entry_decoder(DigestType.CRC32C, b""),
        decode_lac=explicit_lac_decoder(DigestType.CRC32C, b""),
    ).run()


async def test_entries_tell(bench: V3Bench) -> None:
    bench.store(0, 1, 2)
    assert await read(bench) == 1


async def test_a_writer_at_a_pause_tells_more(bench: V3Bench) -> None:
    bench.store(0, 1, 2)
    for bookie in bench.bookies:
        bookie.v3.explicit_lacs[LEDGER] = encode_explicit_lac(LEDGER, 2)
    assert await read(bench) == 2
    # What it told then is less than what entries tell now.
    bench.store(3, 4, 5)
    assert await read(bench) == 4


async def test_a_ledger_without_entries_has_nothing_confirmed(bench: V3Bench) -> None:
    assert await read(bench) == -1


async def test_two_of_three_speak_for_all(bench: V3Bench) -> None:
    bench.store(0, 1)
    bench.bookies[0].kill()
    assert await read(bench) == 0
    bench.bookies[1].v3.refusals[pb.READ_LAC] = pb.EIO
    with pytest.raises(BookieUnavailable, match="b0, b1"):
        await read(bench)


async def test_a_hung_bookie_delays_no_reader_where_the_others_are_enough(bench: V3Bench) -> None:
    bench.store(0, 1)
    bench.bookies[0].is_silent = True
    began_s = bench.world.clock.monotonic()
    assert await read(bench) == 0
    assert bench.world.clock.monotonic() == began_s


async def test_an_answer_with_a_wrong_digest_does_not_count(bench: V3Bench) -> None:
    bench.store(0, 1)
    bench.bookies[0].store(LEDGER, 1, bytes(50), KEY)
    for bookie in bench.bookies[:2]:
        bookie.v3.explicit_lacs[LEDGER] = encode_explicit_lac(LEDGER, 9)[:-1] + b"?"
    with pytest.raises(BookieUnavailable, match="b0, b1"):
        await read(bench)
