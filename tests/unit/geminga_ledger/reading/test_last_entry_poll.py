"""Enough bookies of an ensemble tell their newest entry, and are fenced where that was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest
from tests.unit.geminga_ledger.world import FIRST_PORT, KEY, World, settle

from geminga_ledger import RecoveryUndecided, WrongPassword
from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.reading.last_entry_poll import LastEntryPoll
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper.codes import Flag, Operation, ReturnCode

CONFIG = LedgerConfig()
LEDGER = 5
ALL = (0, 1, 2)


class Bench:
    """Three bookies, ledger 5 with E=3 Qw=3 Qa=2."""

    def __init__(self, world: World, links: BookieLinks) -> None:
        self.world = world
        self.links = links

    def poll(self, master_key: bytes | None = None) -> LastEntryPoll:
        return LastEntryPoll(
            LEDGER,
            Quorum(3, 3, 2),
            [self.links.link(f"b{number}") for number in ALL],
            answer_timeout_s=CONFIG.answer_timeout_s,
            master_key=master_key,
        )


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    world = World(3)
    registry = BookieRegistry(world.coordination, random=Random(1), config=CONFIG)
    links = BookieLinks(
        registry.resolve, network=world.network, clock=world.clock, random=Random(1), config=CONFIG
    )
    async with registry, links:
        yield Bench(world, links)


async def test_the_highest_confirmation_is_found_without_fencing(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(4), ALL), told={2: 1, 3: 1})
    votes = await bench.poll().run()
    assert (votes.last_confirmed, votes.length_bytes) == (1, 40)
    assert not any(bookie.fenced for bookie in bench.world.bookies)


async def test_fencing_reaches_an_ack_quorum_of_every_write_set(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: ALL})
    await bench.poll(KEY).run()
    assert sum(LEDGER in bookie.fenced for bookie in bench.world.bookies) >= 2


async def test_a_fencing_read_carries_the_flag_and_the_key(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {})
    votes = await bench.poll(KEY).run()
    assert votes.last_confirmed == -1
    (request,) = bench.world.bookies[0].requests
    assert request[:5] == (Operation.READ, Flag.FENCING, LEDGER, -1, KEY)


async def test_one_bookie_of_three_may_be_down(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: ALL, 1: (0,)})
    bench.world.bookies[2].kill()
    votes = await bench.poll(KEY).run()
    assert votes.last_confirmed == 0


async def test_a_bookie_that_swallows_connections_does_not_hold_up_the_others(
    bench: Bench,
) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: ALL})
    bench.world.network.silent.add(FIRST_PORT + 1)
    before_s = bench.world.clock.monotonic()
    await bench.poll(KEY).run()
    assert bench.world.clock.monotonic() - before_s < 0.1


async def test_an_answer_that_comes_too_late_changes_nothing(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: ALL, 1: ALL, 4: (2,)}, told={4: 3})
    late = bench.world.bookies[2]
    late.is_holding = True
    votes = await bench.poll(KEY).run()
    late.release()
    await settle()
    assert (votes.last_confirmed, votes.length_bytes) == (0, 20)


async def test_two_bookies_of_three_down_leave_it_undecided(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: ALL})
    bench.world.bookies[1].kill()
    bench.world.bookies[2].kill()
    with pytest.raises(RecoveryUndecided):
        await bench.poll(KEY).run()


async def test_silent_bookies_leave_it_undecided_after_the_answer_timeout(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: ALL})
    bench.world.bookies[0].is_silent = bench.world.bookies[1].is_silent = True
    before_s = bench.world.clock.monotonic()
    with pytest.raises(RecoveryUndecided, match="b0, b1"):
        await bench.poll(KEY).run()
    assert bench.world.clock.monotonic() - before_s == pytest.approx(CONFIG.answer_timeout_s)


async def test_a_failing_disk_gives_no_answer_that_counts(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: ALL})
    for bookie in bench.world.bookies:
        bookie.refusals[Operation.READ] = ReturnCode.EIO
    with pytest.raises(RecoveryUndecided, match="b0, b1, b2"):
        await bench.poll(KEY).run()


async def test_a_damaged_last_entry_still_counts_as_fenced(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: ALL, 1: ALL})
    bench.world.bookies[0].store(LEDGER, 1, b"no entry at all", KEY)
    bench.world.bookies[2].kill()
    votes = await bench.poll(KEY).run()
    assert votes.last_confirmed == 0


async def test_another_password_is_said(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: ALL})
    with pytest.raises(WrongPassword):
        await bench.poll(b"another key of 20 b.").run()
