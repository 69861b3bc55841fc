"""Proves, over many seeds, that a bookie which was decommissioned may be wiped: no ledger names it,
and every confirmed entry is on the others, as often as was promised.

A bookie is told to end, or dies, while ledgers are written and the others suffer. An operator has
it decommissioned, and begins again where that is broken off. Then its disks are emptied; it comes
back as a new bookie, or never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pytest
from tests.simulation.bugs.planted import Plant, found_by
from tests.simulation.seeds import first_seeds
from tests.simulation.storage.administrators import Administration
from tests.simulation.storage.history import History
from tests.simulation.storage.owner import Owner
from tests.simulation.storage.test_autorecovery import (
    OWNER_S_MAX,
    OWNERS,
    SETTLE_S,
    SIZES,
    close_all,
    until_whole,
)

from geminga_autorecovery.errors import (
    BookieStillThere,
    DecommissionStalled,
    RecoveryDisabled,
)
from geminga_autorecovery.removal import decommission as decommissioning
from geminga_autorecovery.removal.decommission import Progress, decommission
from geminga_autorecovery.zookeeper.ledger_list import ledger_directories, ledgers_in
from geminga_ledger.config import LedgerConfig
from geminga_ledger.metadata.store import LedgerStore
from geminga_protocol.records.bookies.cookies import cookie_path
from geminga_runtime.coordination import Coordination, CoordinationError
from geminga_scenarios.cluster import Sizes
from geminga_scenarios.storage import EAGER, RecoveringStorage
from geminga_scenarios.verdicts import raise_failures, results
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FULL_MENU, FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

SEEDS_A_TEST = 5
RETRY_S = 0.5
# A bookie that does not end in order within so long is killed.
STOP_S_MAX = 5.0
# An operator who breaks off does so within so long.
BROKEN_OFF_S_MAX = 8.0
SPARES = 2
# An operator gives up when no ledger was moved for so long, and begins again.
STALL_S = (900.0, 2.0)
# In half the seeds others administer the same cluster meanwhile.
ADMINISTERED, ADMINISTRATORS = 0.5, 2


@dataclass(frozen=True, slots=True)
class Told:
    """What a story did, in counts: a story in which nothing happened would prove nothing."""

    confirmed: int
    moved: int
    attempts: int


class Operator:
    """Has a bookie decommissioned, however often that fails."""

    def __init__(self, bookie_id: str, history: History, stall_s: float) -> None:
        self.progress: Progress | None = None
        # The ledgers that there were when the attempt began that succeeded. A writer that has not
        # heard yet that the bookie is gone may name it in a ledger that it makes after that.
        self.known: tuple[int, ...] = ()
        self._history = history
        self.moved = 0
        self.attempts = 0
        self._bookie_id = bookie_id
        self._stall_s = stall_s

    async def run(self, host: Host) -> None:
        """The main of the operator's process; ends when it is done."""
        while self.progress is None:
            self.attempts += 1
            self.known = tuple(self._history.ledgers)
            with suppress(
                CoordinationError, BookieStillThere, DecommissionStalled, RecoveryDisabled
            ):
                async with host.coordination() as session:
                    self.progress = await decommission(
                        self._bookie_id,
                        coordination=session,
                        store=store_of(host, session),
                        clock=host.clock,
                        on_progress=self._saw,
                        stall_s=self._stall_s,
                    )
            await asyncio.sleep(RETRY_S)

    def _saw(self, progress: Progress) -> None:
        self.moved = max(self.moved, progress.done)


def store_of(host: Host, session: Coordination) -> LedgerStore:
    """The metadata of ledgers, for a process on ``host``."""
    return LedgerStore(session, clock=host.clock, random=host.random, config=LedgerConfig())


async def story(menu: FaultMenu, sizes: Sizes) -> Told:
    """Ledgers are written under faults, and one bookie goes for good and is taken out."""
    async with World() as world:
        chance = world.loop.stream("story")
        storage = RecoveringStorage(world, sizes.ensemble + SPARES, EAGER)
        history = History()
        await storage.open()
        doomed, others = storage.bookies[0], storage.bookies[1:]
        operator = Operator(doomed.name, history, chance.choice(STALL_S))
        administration = Administration(storage, history)
        administrators = ADMINISTRATORS if chance.random() < ADMINISTERED else 0
        inspector = world.host("inspector")
        inspector.start(lambda _: asyncio.Event().wait())
        try:
            async with asyncio.timeout(3 * SETTLE_S):
                writing = asyncio.create_task(write(world, storage, history, sizes))
                if sizes.ack_quorum == 1:
                    # What one bookie confirms is lost with it until it is copied.
                    async with FaultInjector(world, menu, storage.bookies):
                        await writing
                    end_owners(world)
                    await inspector.run(close_all(inspector, storage, history))
                    await inspector.run(until_whole(inspector, storage, history))
                async with FaultInjector(world, menu, others):
                    await asyncio.sleep(chance.random() * OWNER_S_MAX)
                    await end_for_good(doomed, chance)
                    for number in range(administrators):
                        world.host(f"owner-admin-{number}").start(administration.run)
                    host = world.host("operator")
                    host.start(operator.run)
                    await asyncio.sleep(chance.random() * BROKEN_OFF_S_MAX)
                    if chance.random() < 0.5 and host.is_running:
                        host.kill()
                        host.start(operator.run)
                    await writing
                end_owners(world)
                await inspector.run(administration.clean_up(inspector))
                while operator.progress is None:  # noqa: ASYNC110 -- it says no other word
                    await asyncio.sleep(RETRY_S)
                await inspector.run(look(inspector, storage, history, doomed, operator.known))
        finally:
            raise_failures(world)
        return Told(
            sum(last + 1 for last in history.confirmed.values()), operator.moved, operator.attempts
        )


async def write(world: World, storage: RecoveringStorage, history: History, sizes: Sizes) -> None:
    """Owners come and take over from each other; some go on when this returns."""
    chance = world.loop.stream("owners")
    for _ in range(OWNERS):
        owner = world.host(f"owner-{len(world.hosts)}")
        owner.start(Owner(storage, history, sizes).run)
        await asyncio.sleep(chance.random() * OWNER_S_MAX)
        if chance.random() < 0.5:
            owner.kill()


def end_owners(world: World) -> None:
    """The writer is done."""
    for name, host in list(world.hosts.items()):
        if name.startswith("owner") and host.is_running:
            host.kill()


async def end_for_good(bookie: Host, chance: Random) -> None:
    """Have it end in order, or not."""
    if chance.random() < 0.5:
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S_MAX):
                await bookie.stop()
    if bookie.is_running:
        bookie.kill()


async def look(
    host: Host,
    storage: RecoveringStorage,
    history: History,
    doomed: Host,
    known: Collection[int],
) -> None:
    """Nothing is left on the bookie, it is not needed, and a new one may have its place."""
    async with host.coordination() as session:
        named = await named_by(doomed.name, session, store_of(host, session))
        left = [ledger_id for ledger_id in named if ledger_id in known]
        if left:
            raise InvariantViolated(f"{doomed.name} was decommissioned and is in ledgers {left}")
        if await session.exists(cookie_path(doomed.name)):
            raise InvariantViolated(f"{doomed.name} was decommissioned and has a cookie")
    wipe(storage, doomed)
    if host.random.random() < 0.5:
        doomed.restart()
    await close_all(host, storage, history)
    await until_whole(host, storage, history)


async def named_by(bookie_id: str, session: Coordination, store: LedgerStore) -> list[int]:
    """The ledgers whose metadata name a bookie, as a client that opens them finds it."""
    return [
        ledger_id
        for directory in await ledger_directories(session)
        for ledger_id in await ledgers_in(session, directory)
        for fragment in (await store.read(ledger_id)).metadata.fragments
        if bookie_id in fragment.ensemble
    ]


def wipe(storage: RecoveringStorage, bookie: Host) -> None:
    """Its machine gets new disks."""
    bookie.devices.clear()
    storage.forget_index(bookie)


def run(seed: int, *, record: bool = False) -> Outcome[Told]:
    """The story of one seed, which also chooses what may go wrong in it."""
    random = Random(seed)
    menu = replace(FULL_MENU.drawn(random), disk_failure_rate=0.0)
    return simulate(seed, partial(story, menu, random.choice(SIZES)), record=record)


@pytest.mark.parametrize("first", first_seeds("decommission", SEEDS_A_TEST))
def test_a_decommissioned_bookie_may_be_wiped(first: int) -> None:
    told = list(results(run, range(first, first + SEEDS_A_TEST)))
    assert sum(each.confirmed for each in told) > 50 * SEEDS_A_TEST
    assert sum(each.moved for each in told), "some have entries on the bookie that goes"


def wait_for_no_worker(patch: pytest.MonkeyPatch) -> None:
    """A decommission is over when all ledgers of the bookie are marked for the workers."""
    honest = decommissioning.still_on
    marked = set[int]()

    async def believe(bookie_id: str, ledger_ids: list[int], store: LedgerStore) -> list[int]:
        if ledger_ids and marked.issuperset(ledger_ids):
            return []
        found = await honest(bookie_id, ledger_ids, store)
        marked.update(found)
        return found

    patch.setattr(decommissioning, "still_on", believe)


@pytest.mark.parametrize("plant", [wait_for_no_worker])
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(run)
    run(seed)  # the same story is clean without the bug
