"""Proves, over many seeds, that garbage goes and that nothing else goes with it.

Writers fill ledgers and delete some of those they closed, while every bookie collects garbage and
compacts its small entry logs several times a second, and is killed, loses power, its disk fails,
its ZooKeeper falls silent. Then all faults end: what was not deleted is recovered and read to the
last confirmed entry; of what was deleted no bookie knows anything any more.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest
from tests.simulation.harm import with_bad_disks
from tests.simulation.seeds import first_seeds
from tests.simulation.storage.history import History
from tests.simulation.storage.owner import READ_BYTES, RETRY_S, Owner, keep_up
from tests.simulation.storage.test_ledgers import recover_and_read_all

from geminga_bookie.index.index import Index
from geminga_ledger import LedgerError, Ledgers
from geminga_runtime.coordination import CoordinationError
from geminga_scenarios.cluster import IMPATIENT, Sizes
from geminga_scenarios.storage import Storage
from geminga_scenarios.verdicts import raise_failures, results
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FULL_MENU, FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

SEEDS_A_TEST = 10
WRITE_S = 6.0
# Garbage is collected every 0.3 s; a bookie that does not answer may cost a round or two.
COLLECT_S = 90.0
DELETE_PROBABILITY = 0.6
READ_S_MAX = 0.1
# So often a ledger disk is full for a while: in the middle of a compaction, mostly.
FULL_DISKS_MAX, FULL_S_MAX = 2, 1.0
SIZES = (Sizes(1, 1, 1), Sizes(3, 3, 2), Sizes(3, 2, 2))


@dataclass(slots=True)
class Deleting:
    """Writes one ledger after the other, and deletes closed ones now and then.

    ``doomed`` are those whose deletion was begun, ``deleted`` those where it is done.
    """

    storage: Storage
    history: History
    sizes: Sizes
    doomed: list[int] = field(default_factory=list[int])
    deleted: list[int] = field(default_factory=list[int])

    async def run(self, host: Host) -> None:
        """The main of the writer's process."""
        await keep_up(lambda: self._write(host))

    async def _write(self, host: Host) -> None:
        owner = Owner(self.storage, self.history, self.sizes)
        async with self.storage.ledgers(host) as ledgers:
            while True:
                await owner.write_one(host, ledgers)
                for ledger_id in list(self.history.ended):
                    is_kept = ledger_id in self.history.ledgers
                    if is_kept and host.random.random() < DELETE_PROBABILITY:
                        self.history.ledgers.remove(ledger_id)
                        self.doomed.append(ledger_id)
                        await self._delete(ledgers, ledger_id)
                await asyncio.sleep(RETRY_S)

    async def _delete(self, ledgers: Ledgers, ledger_id: int) -> None:
        while True:
            try:
                await ledgers.delete(ledger_id)
            except (LedgerError, CoordinationError):
                await asyncio.sleep(RETRY_S)
            else:
                self.deleted.append(ledger_id)
                return


async def read_what_goes(host: Host, storage: Storage, history: History) -> None:
    """The main of a process that reads any ledger, also while it is deleted and its entries are
    moved or dropped. It gets what was pushed, or nothing."""

    async def read_again_and_again() -> None:
        async with storage.ledgers(host, IMPATIENT) as ledgers:
            while True:
                await asyncio.sleep(host.random.random() * READ_S_MAX)
                if not history.pushed:
                    continue
                ledger_id = host.random.choice(list(history.pushed))
                with suppress(LedgerError, CoordinationError):
                    reader = await ledgers.open(ledger_id, recover=False)
                    first = 0
                    while first <= reader.last_confirmed:
                        payloads = await reader.read(first, first + 5, bytes_max=READ_BYTES)
                        history.read(ledger_id, first, payloads)
                        first += len(payloads)

    await keep_up(read_again_and_again)


@dataclass(frozen=True, slots=True)
class Told:
    """What a story did, in counts: a story in which nothing happened would prove nothing."""

    deleted: int
    kept: int
    confirmed: int


async def story(menu: FaultMenu, sizes: Sizes) -> Told:
    """Write and delete under faults; then look at what is there."""
    async with World() as world:
        chance = world.loop.stream("story")
        storage = Storage(world, sizes.ensemble + chance.randrange(2))
        writing = Deleting(storage, History(), sizes)
        await storage.open()
        async with FaultInjector(world, menu, storage.bookies):
            writer = world.host("owner")
            writer.start(writing.run)
            reading = partial(read_what_goes, storage=storage, history=writing.history)
            reader = world.host("reader")
            reader.start(reading)
            for _ in range(chance.randrange(FULL_DISKS_MAX + 1)):
                moment_s = chance.random() * WRITE_S
                bookie, seconds = chance.choice(storage.bookies), chance.random() * FULL_S_MAX
                world.later(moment_s, partial(storage.fill, bookie, seconds, "ledgers"))
            await asyncio.sleep(WRITE_S)
            storage.cut_power(chance.random() / 2)
            await asyncio.sleep(WRITE_S / 4)
        writer.kill()
        reader.kill()
        await storage.check_all_serve()
        async with asyncio.timeout(COLLECT_S):
            while any(  # noqa: ASYNC110 -- nothing tells
                index.ledger(ledger_id) is not None
                for ledger_id in writing.deleted
                for index in storage.indexes()
            ):
                await asyncio.sleep(1.0)
        await recover_and_read_all(storage, [writing.history])
        for index in storage.indexes():
            _require_exact(index)
        raise_failures(world)
        history = writing.history
        return Told(
            len(writing.deleted),
            len(history.ledgers),
            sum(history.confirmed[ledger_id] + 1 for ledger_id in history.ledgers),
        )


def _require_exact(index: Index) -> None:
    """What the index says of logs and counts is the sum of what it says of blocks."""
    live_bytes: dict[int, int] = {}
    entries = ledgers = 0
    for record in index.ledgers():
        ledgers += 1
        for block in index.blocks_of(record.ledger_id):
            entries += block.entries
            live_bytes[block.log_number] = live_bytes.get(block.log_number, 0) + block.size
    said = {number: usage.live_bytes for number, usage in index.logs.items() if usage.live_bytes}
    assert said == live_bytes
    assert (index.counts().ledgers, index.counts().entries) == (ledgers, entries)


def run(seed: int) -> Outcome[Told]:
    """The story of one seed, which also chooses what may go wrong in it."""
    random = Random(seed)
    menu = with_bad_disks(FULL_MENU.drawn(random), random)
    return simulate(seed, partial(story, menu, random.choice(SIZES)))


@pytest.mark.parametrize("first", first_seeds("garbage", SEEDS_A_TEST))
def test_garbage_goes_and_nothing_else(first: int) -> None:
    deleted = confirmed = 0
    for told in results(run, range(first, first + SEEDS_A_TEST)):
        deleted += told.deleted
        confirmed += told.confirmed
    assert deleted > SEEDS_A_TEST
    assert confirmed > 20 * SEEDS_A_TEST
