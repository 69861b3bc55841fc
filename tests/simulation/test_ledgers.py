"""Proves, over many seeds, that ledgers under faults keep what they confirmed.

Owners write ledgers one after the other, each taking over from one that may be alive, standing
still or dead; a reader reads along; bookies crash with torn journals, disks fail, links break. Then
all faults end, and somebody recovers and reads everything. Whatever a writer or a reader was ever
told must be there, in order, in a ledger that ends at one place for all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pytest
from tests.simulation.owner import Owner, Sizes, tail, take_over
from tests.simulation.storage import History, Storage

from magnetar_simulation.canary import Canary
from magnetar_simulation.conditions import DiskConditions
from magnetar_simulation.errors import InvariantViolated
from magnetar_simulation.faults import FAILING_DISK, FULL_MENU, FaultInjector, FaultMenu
from magnetar_simulation.simulate import Outcome, simulate
from magnetar_simulation.world import World

# `make simulate` runs more.
SEEDS = int(os.environ.get("MAGNETAR_SEEDS", "100"))
SEED_FIRST = int(os.environ.get("MAGNETAR_SEED_FIRST", "0"))
SEEDS_A_TEST = 20
OWNERS = 3
OWNER_S_MAX = 2.0
SETTLE_S = 200.0
SIZES = (Sizes(1, 1, 1), Sizes(2, 2, 1), Sizes(3, 3, 2), Sizes(3, 2, 2), Sizes(3, 2, 1))
# So slow that power is cut within a sync more often than not, and that tears what it can.
SLOW_DISK = DiskConditions(sync_s_min=0.005, sync_s_max=0.05, torn_probability=0.9)


@dataclass(frozen=True, slots=True)
class Told:
    """What a story was about, for those who doubt that it was about anything."""

    ledgers: int
    pushed: int
    confirmed: int
    faults: int


async def story(menu: FaultMenu, sizes: Sizes, canary: Canary) -> Told:
    """Owners follow each other under faults; then everything is recovered and read."""
    async with World(canary=canary) as world:
        chance = world.loop.stream("story")
        storage = Storage(world, sizes.ensemble + chance.randrange(3))
        history = History()
        await storage.open()

        def cut_power_perhaps() -> None:
            if chance.random() < cut_probability:
                storage.cut_power(chance.random() / 2)

        cut_probability = chance.choice((0.0, 0.5))
        history.on_end = cut_power_perhaps
        async with FaultInjector(world, menu, storage.bookies):
            world.host("reader").start(partial(tail, storage=storage, history=history))
            for number in range(OWNERS):
                owner = world.host(f"owner-{number}")
                owner.start(Owner(storage, history, sizes).run)
                await asyncio.sleep(chance.random() * OWNER_S_MAX)
                fate = chance.randrange(4)
                if fate == 0:
                    owner.kill()
                elif fate == 1:
                    owner.pause(chance.random() * 2 * OWNER_S_MAX)
        history.on_end = lambda: None
        await _recover_and_read_all(storage, [history])
        return Told(
            len(history.ledgers),
            sum(map(len, history.pushed.values())),
            sum(last + 1 for last in history.confirmed.values()),
            len(world.events),
        )


async def _recover_and_read_all(storage: Storage, histories: Sequence[History]) -> None:
    """Twice, at once and on different hosts: both must find the same."""
    world = storage.world

    async def check(number: int) -> None:
        host = world.host(f"checker-{number}")
        host.start(lambda _: asyncio.Event().wait())

        async def take_over_all() -> None:
            async with storage.ledgers(host) as ledgers:
                for history in histories:
                    for ledger_id in history.ledgers:
                        await take_over(ledgers, history, ledger_id)

        await host.run(take_over_all())

    for name, host in list(world.hosts.items()):
        if name.startswith(("owner", "reader")):
            host.kill()
    async with asyncio.timeout(SETTLE_S):
        await asyncio.gather(check(0), check(1))
    _raise_failures(world)


def _raise_failures(world: World) -> None:
    """A process may end by an error that it has a name for; not by a broken promise or a bug."""
    for host in world.hosts.values():
        for failure in host.failures:
            raise failure
    for report in world.loop.failures:
        what = f"{report['host']}: {report['message']}"
        raise InvariantViolated(what) from report.get("exception")


def run(seed: int, *, canary: Canary = Canary.NONE, record: bool = False) -> Outcome[Told]:
    """The story of one seed, which also chooses what may go wrong in it."""
    random = Random(seed)
    menu = FULL_MENU.drawn(random)
    if random.random() < 0.2:
        menu = replace(menu, disk=FAILING_DISK)
    sizes = random.choice(SIZES)
    return simulate(seed, partial(story, menu, sizes, canary), record=record)


@pytest.mark.parametrize("first", range(SEED_FIRST, SEED_FIRST + SEEDS, SEEDS_A_TEST))
def test_ledgers_keep_what_they_confirmed(first: int) -> None:
    confirmed = 0
    for seed in range(first, first + SEEDS_A_TEST):
        try:
            confirmed += run(seed).result.confirmed
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert confirmed > 100 * SEEDS_A_TEST


def test_a_seed_repeats() -> None:
    assert run(1) == run(1)


def test_a_disk_that_lies_is_found_out() -> None:
    for seed in range(40):
        try:
            run(seed, canary=Canary.LYING_DISK)
        except InvariantViolated:
            return
        except TimeoutError:  # entries that nobody has any more cannot be recovered
            return
    pytest.fail("no seed found the bug that was planted")


async def power_cuts(cuts: int) -> None:
    """The one bookie loses its power over and over while some write, each ledgers of its own."""
    async with World(disk=SLOW_DISK) as world:
        storage = Storage(world, 1)
        await storage.open()
        chance = world.loop.stream("power")
        histories = [History() for _ in range(OWNERS)]
        for number, history in enumerate(histories):
            world.host(f"owner-{number}").start(Owner(storage, history, Sizes(1, 1, 1)).run)
        for _ in range(cuts):
            await asyncio.sleep(chance.random())
            await _bad_moment(storage)
            await asyncio.sleep(chance.choice((0, 0.05)) * chance.random())
            storage.cut_power(0.1)
        await _recover_and_read_all(storage, histories)


async def _bad_moment(storage: Storage) -> None:
    """Return while the ledger disk holds what is not synced yet: in a checkpoint, mostly."""
    disk = storage.bookies[0].device("ledgers")
    for _ in range(1000):
        if any(len(file.content) > file.synced_size for file in disk.files.values()):
            return
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("first", range(0, 100, SEEDS_A_TEST))
def test_a_bookie_starts_again_whenever_its_power_is_cut(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        try:
            simulate(seed, partial(power_cuts, 4))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
