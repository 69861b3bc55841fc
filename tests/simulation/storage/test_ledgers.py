"""Proves, over many seeds, that ledgers under faults keep what they confirmed.

Owners write ledgers one after the other, each taking over from one that may be alive, standing
still or dead; a reader reads along; bookies crash with torn journals, disks fail or fill up, links
break, a bookie dies for good, others take the places of those that fail. Then all faults end, and
everything is recovered and read. Whatever a writer or a reader was ever told must be there,
in order, in a ledger that ends at one place for all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import pytest
from tests.simulation.bugs.planted import (
    Plant,
    believe_a_fence_that_is_being_written,
    believe_one_absence,
    confirm_a_copy_early,
    count_the_replaced,
    found_by,
    journals_lie,
)
from tests.simulation.bugs.planted_features import answer_v3_adds_before_the_sync
from tests.simulation.harm import patience, with_bad_disks
from tests.simulation.seeds import first_seeds
from tests.simulation.storage.history import History
from tests.simulation.storage.owner import Owner, check_copies, rival, tail, take_over

from geminga_ledger import LedgerConfig, LedgerWriter
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_scenarios.cluster import Sizes
from geminga_scenarios.storage import Storage
from geminga_scenarios.verdicts import raise_failures, results
from geminga_simulation.conditions import DiskConditions
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FULL_MENU, FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

SEEDS_A_TEST = 20
OWNERS = 3
OWNER_S_MAX = 1.5
# How long an owner goes on at the most after something was done to its bookies.
REST_S_MAX = 0.5
DEATH_PROBABILITY = 0.4
RIVAL_PROBABILITY = 0.5
# How long a bookie is away that goes shortly before an owner does.
LOSS_S = 0.3
SETTLE_S = 200.0
SIZES = (
    Sizes(1, 1, 1),
    Sizes(2, 2, 1),
    Sizes(2, 2, 2),
    Sizes(3, 3, 2),
    Sizes(3, 2, 2),
    Sizes(3, 2, 1),
    Sizes(4, 3, 2),
    Sizes(5, 3, 2),
)
# So slow that power is cut within a sync more often than not, and that tears what it can.
SLOW_DISK = DiskConditions(sync_s_min=0.005, sync_s_max=0.05, torn_probability=0.9)
VERY_SLOW_DISK = DiskConditions(sync_s_min=0.05, sync_s_max=0.1)
# Of those who take over from a writer that is mostly at rest: how far apart they begin, and when
# the power fails, before the fence is durable or soon after that.
APPEND_PROBABILITY = 0.1
RIVALS_APART_S_MAX = 0.02
FENCED_S_MAX = 0.1
FENCED_SIZES = (Sizes(1, 1, 1), Sizes(2, 2, 2), Sizes(3, 3, 2))


@dataclass(frozen=True, slots=True)
class Told:
    """What a story did, in counts: a story in which nothing happened would prove nothing."""

    ledgers: int
    pushed: int
    confirmed: int
    changes: int
    faults: int
    v3_adds: int


class Mischief:
    """What may happen to bookies besides the menu, at moments that matter to ledgers."""

    def __init__(self, storage: Storage, sizes: Sizes, chance: Random) -> None:
        self._storage = storage
        self._chance = chance
        self._cut_probability = chance.choice((0.0, 0.5))
        self._fill_probability = chance.choice((0.0, 0.7))
        # An entry with one copy only may be lost with its bookie; no more was promised.
        may_die = sizes.ack_quorum > 1 and chance.random() < 0.5
        self._doomed = storage.bookies[0] if may_die else None
        self.victims = [each for each in storage.bookies if each is not self._doomed]

    def ledger_ended(self) -> None:
        """A ledger was closed: a good moment for the power to go."""
        if self._chance.random() < self._cut_probability:
            self._storage.cut_power(self._chance.random() / 2)

    def reign_goes_on(self) -> None:
        """An owner has been writing for a while."""
        if self._doomed is not None and self._chance.random() < DEATH_PROBABILITY:
            self._storage.lose(self._doomed)
            self._doomed = None
        if self._chance.random() < self._fill_probability:
            device = self._chance.choice(("journal", "ledgers"))
            self._storage.fill(self._chance.choice(self.victims), 2 * self._chance.random(), device)


async def story(
    menu: FaultMenu, sizes: Sizes, config: LedgerConfig, *, over_v3: bool = False
) -> Told:
    """Owners follow each other under faults; then everything is recovered and read. ``over_v3``:
    every second one adds over V3."""
    async with World() as world:
        chance = world.loop.stream("story")
        storage = Storage(world, sizes.ensemble + chance.randrange(1, 3))
        history = History()
        await storage.open()
        v3_answers = Counter[int]()
        mischief = Mischief(storage, sizes, chance)
        history.on_end = mischief.ledger_ended
        async with FaultInjector(world, menu, mischief.victims):
            world.host("reader").start(partial(tail, storage=storage, history=history))
            for number in range(OWNERS):
                owner = world.host(f"owner-{number}")
                answers = v3_answers if over_v3 and number % 2 == 0 else None
                owner.start(Owner(storage, history, sizes, config, answers).run)
                if chance.random() < RIVAL_PROBABILITY:
                    begin_s = chance.random() * chance.choice((0.1, OWNER_S_MAX))
                    world.later(begin_s, partial(_begin_rival, storage, history, number))
                await asyncio.sleep(chance.random() * OWNER_S_MAX)
                mischief.reign_goes_on()
                await asyncio.sleep(chance.random() * REST_S_MAX)
                fate = chance.randrange(4)
                if fate == 0:
                    owner.kill()
                elif fate == 1:
                    owner.pause(chance.random() * 2 * OWNER_S_MAX)
        history.on_end = lambda: None
        await storage.check_all_serve()
        await recover_and_read_all(storage, [history])
        return Told(
            len(history.ledgers),
            sum(map(len, history.pushed.values())),
            sum(last + 1 for last in history.confirmed.values()),
            history.changes,
            len(world.events),
            v3_answers[pb.EOK],
        )


def _begin_rival(storage: Storage, history: History, number: int) -> None:
    """Another process takes over, too: while the owner does, or while it writes and cannot know."""
    host = storage.world.host(f"rival-{number}")
    host.start(partial(rival, storage=storage, history=history))


async def recover_and_read_all(storage: Storage, histories: Sequence[History]) -> None:
    """Recover and read all, on two hosts at once: both must find the same."""
    world = storage.world

    async def check(number: int) -> None:
        host = world.host(f"checker-{number}")
        host.start(lambda _: asyncio.Event().wait())

        async def take_over_all() -> None:
            async with storage.ledgers(host) as ledgers:
                for history in histories:
                    for ledger_id in history.ledgers:
                        await take_over(ledgers, history, ledger_id)
                        await check_copies(ledgers, ledger_id, storage.lost)
                        metadata = await ledgers.metadata(ledger_id)
                        history.changes += len(metadata.fragments) - 1

        await host.run(take_over_all())

    for name, host in list(world.hosts.items()):
        if name.startswith(("owner", "reader", "rival")):
            host.kill()
    async with asyncio.timeout(SETTLE_S):
        await asyncio.gather(check(0), check(1))
    raise_failures(world)


def run(seed: int, *, over_v3: bool = False, record: bool = False) -> Outcome[Told]:
    """The story of one seed, which also chooses what may go wrong in it."""
    random = Random(seed)
    menu = FULL_MENU.drawn(random)
    sizes = random.choice(SIZES)
    menu = with_bad_disks(menu, random)
    told = partial(story, menu, sizes, patience(menu, random), over_v3=over_v3)
    return simulate(seed, told, record=record)


@pytest.mark.parametrize("first", first_seeds("ledgers", SEEDS_A_TEST))
def test_ledgers_keep_what_they_confirmed(first: int) -> None:
    confirmed = changes = 0
    for told in results(run, range(first, first + SEEDS_A_TEST)):
        confirmed += told.confirmed
        changes += told.changes
    assert confirmed > 100 * SEEDS_A_TEST
    assert changes


@pytest.mark.parametrize("first", first_seeds("ledgers over V3", SEEDS_A_TEST))
def test_ledgers_keep_what_they_confirmed_to_clients_of_either_protocol(first: int) -> None:
    told = list(results(partial(run, over_v3=True), range(first, first + SEEDS_A_TEST)))
    assert sum(each.v3_adds for each in told) > 100 * SEEDS_A_TEST


async def losses(rounds: int) -> None:
    """A bookie goes that has entries which another, slower one has not confirmed yet; soon after it
    the owner; the next owner takes over while that bookie is still away."""
    sizes = Sizes(2, 2, 2)
    async with World() as world:
        chance = world.loop.stream("losses")
        storage = Storage(world, 3)
        history = History()
        await storage.open()
        for number in range(rounds):
            owner = world.host(f"owner-{number}")
            owner.start(Owner(storage, history, sizes).run)
            # It takes the ledger of the one before over, and writes a new one.
            await asyncio.sleep(0.3 + 0.2 * chance.random())
            slow, bookie = chance.sample([each for each in storage.bookies if each.is_running], 2)
            for journal in storage.journals(slow):
                journal.conditions = VERY_SLOW_DISK
            await asyncio.sleep(0.2 + 0.1 * chance.random())
            bookie.crash()
            world.later(LOSS_S, bookie.restart)
            # Time for the ensemble to change and for some entries to be confirmed.
            await asyncio.sleep(0.01 + 0.1 * chance.random())
            owner.kill()
            for journal in storage.journals(slow):
                journal.conditions = world.disk_conditions
        await recover_and_read_all(storage, [history])


@pytest.mark.parametrize("first", first_seeds("ledgers: losses", SEEDS_A_TEST))
def test_entries_under_way_to_a_bookie_that_goes_are_not_lost(first: int) -> None:
    list(results(run_losses, range(first, first + SEEDS_A_TEST)))


def run_losses(seed: int) -> Outcome[None]:
    return simulate(seed, partial(losses, 4))


class Hesitant(Owner):
    """Writes a little now and then: much of what it owns is empty, or at rest, for a while."""

    def _append_some(self, host: Host, writer: LedgerWriter) -> None:
        if host.random.random() < APPEND_PROBABILITY:
            super()._append_some(host, writer)


async def fences(rounds: int, sizes: Sizes) -> None:
    """Two take over at once what a third one has hardly begun to write, from bookies whose
    journals are slow, and soon the power fails everywhere: what either was told of a fence holds,
    and the writer, who goes on, finds it."""
    async with World() as world:
        chance = world.loop.stream("fences")
        storage = Storage(world, sizes.ensemble)
        history = History()
        await storage.open()
        for number in range(rounds):
            owner = world.host(f"owner-{number}")
            owner.start(Hesitant(storage, history, sizes).run)
            await asyncio.sleep(REST_S_MAX * (1 + chance.random()))
            for bookie in storage.bookies:
                for journal in storage.journals(bookie):
                    journal.conditions = VERY_SLOW_DISK
            for name in ("one", "other"):
                rival_host = world.host(f"rival-{number}-{name}")
                rival_host.start(partial(rival, storage=storage, history=history))
                await asyncio.sleep(chance.random() * RIVALS_APART_S_MAX)
            await asyncio.sleep(chance.random() * FENCED_S_MAX)
            storage.cut_power(0.05)
            await asyncio.sleep(REST_S_MAX)
            for bookie in storage.bookies:
                for journal in storage.journals(bookie):
                    journal.conditions = world.disk_conditions
        await recover_and_read_all(storage, [history])


def run_fences(seed: int) -> Outcome[None]:
    return simulate(seed, partial(fences, 6, Random(seed).choice(FENCED_SIZES)))


@pytest.mark.parametrize("first", first_seeds("ledgers: fences", SEEDS_A_TEST))
def test_a_fence_that_was_confirmed_outlives_a_power_cut(first: int) -> None:
    list(results(run_fences, range(first, first + SEEDS_A_TEST)))


@pytest.mark.parametrize(
    ("plant", "tell"),
    [
        (journals_lie, run),
        (confirm_a_copy_early, run),
        (believe_one_absence, run),
        (count_the_replaced, run_losses),
        (believe_a_fence_that_is_being_written, run_fences),
        pytest.param(
            answer_v3_adds_before_the_sync,
            partial(run, over_v3=True),
            marks=pytest.mark.full,  # it takes 20 s to find
        ),
    ],
)
def test_a_planted_bug_is_found_by_a_checker(
    plant: Plant,
    tell: Callable[[int], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(tell)
    tell(seed)  # the same story under the same faults is clean without the bug


async def power_cuts(cuts: int) -> None:
    """The only bookie loses its power over and over while owners write, each its own ledgers."""
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
        await recover_and_read_all(storage, histories)


async def _bad_moment(storage: Storage) -> None:
    """Return while the ledger disk holds what is not synced yet: in a checkpoint, mostly."""
    disk = storage.bookies[0].device("ledgers")
    for _ in range(1000):
        if any(len(file.content) > file.synced_size for file in disk.files.values()):
            return
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("first", first_seeds("ledgers: power cuts", SEEDS_A_TEST))
def test_a_bookie_starts_again_whenever_its_power_is_cut(first: int) -> None:
    list(results(run_power_cuts, range(first, first + SEEDS_A_TEST)))


def run_power_cuts(seed: int) -> Outcome[None]:
    return simulate(seed, partial(power_cuts, 4))
