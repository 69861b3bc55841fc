"""Proves, over many seeds, that a log keeps what was published to it, however many own it.

Owners open one log, one after the other and side by side, as brokers do when a topic is loaded
while another one still has it. Each does all that may be done to a log: several things at a time,
while bookies, links and ZooKeeper suffer, ledgers are deleted behind its back, records are written
by others, entries are spoilt on every disk. Then all is well again, and one more owner reads it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.simulation.harm import patience, with_bad_disks
from tests.simulation.seeds import first_seeds
from tests.simulation.storage.log_book import LogBook
from tests.simulation.storage.log_mischief import LogMischief
from tests.simulation.storage.log_owner import (
    DELETE,
    ENTRY_BYTES_MAX,
    ERRANDS,
    FAILURES,
    TERMINATE,
    LogOwner,
    Manners,
    read_all,
)

from geminga_broker.managed_ledger.writing.broker_entry_metadata import BrokerEntryFields
from geminga_scenarios.cluster import SHORT_LEDGERS, Sizes
from geminga_scenarios.storage import Storage
from geminga_scenarios.verdicts import raise_failures, results
from geminga_simulation.conditions import NetworkConditions
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FULL_MENU, FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.tcp.network import SimulatedNetwork
from geminga_simulation.world import World

SEEDS_A_TEST = 10
OWNERS = 3
ROUNDS = 4
REIGN_S_MAX = 2.0
# In so many seeds an owner is there before the cluster is.
EARLY = 0.2
# In so many, a process looks at a whole backlog in the end, over a network that is slow.
AT_LENGTH = 0.4
# Bookies that answer later are given up.
SLOW_NETWORK = NetworkConditions(delay_s_min=3.5, delay_s_max=4.5)
SETTLE_S = 400.0
TIME_LIMIT_S = 3000.0
SIZES = (Sizes(1, 1, 1), Sizes(2, 2, 1), Sizes(3, 3, 2))
Mischief = Callable[[LogMischief], Coroutine[Any, Any, None]]
# What happens in a round, and how often.
MISCHIEF: dict[Mischief, int] = {
    LogMischief.nothing: 4,
    LogMischief.touch_a_record: 2,
    LogMischief.take_ledger_ids: 1,
    LogMischief.rename_a_bookie: 2,
    LogMischief.delete_the_last_ledger: 1,
    LogMischief.delete_a_cursors_ledger: 1,
    LogMischief.spoil_what_is_closed: 2,
    LogMischief.hold: 2,
    LogMischief.hold_a_truncation: 2,
    LogMischief.cut_power: 2,
    LogMischief.slow_down: 1,
}


async def story(menu: FaultMenu, manners: Manners) -> Counter[str]:
    """Owners take a log from each other under faults; then all of it is read. What was done."""
    async with World() as world:
        chance = world.loop.stream("story")
        storage = Storage(world, manners.log.ensemble_size + 1)
        book = LogBook()
        owner = LogOwner(storage, book, manners)
        hosts = [world.host(f"owner-{number}") for number in range(OWNERS)]
        if chance.random() < EARLY:
            hosts[0].start(owner.run)
            await asyncio.sleep(chance.random())
        await storage.open()
        mischief = LogMischief(storage, hosts, book, owner, chance)
        # Owners that the menu kills do not live to see how long a change waits.
        victims = storage.bookies if chance.random() < 0.5 else [*storage.bookies, *hosts]
        async with FaultInjector(world, menu, victims):
            for number in range(ROUNDS):
                host = hosts[number % OWNERS]
                if not host.is_running:
                    host.start(owner.run)
                await asyncio.sleep(chance.random() * REIGN_S_MAX)
                (what,) = chance.choices([*MISCHIEF], [*MISCHIEF.values()])
                await what(mischief)
                await meet_a_fate(chance.choice(hosts), chance)
        for host in hosts:
            host.kill()
        await storage.check_all_serve()
        checker = world.host("checker")
        checker.start(lambda _: asyncio.Event().wait())
        network = world.network if chance.random() < AT_LENGTH else None
        await checker.run(check(LogOwner(storage, book, manners), checker, book, network))
        raise_failures(world)
        return book.deeds


async def meet_a_fate(host: Host, chance: Random) -> None:
    """It is killed, or stands still, or is told to end, or goes on."""
    fate = chance.randrange(4)
    if fate == 0:
        host.kill()
    elif fate == 1:
        host.pause(chance.random() * 2 * REIGN_S_MAX)
    elif fate == 2:
        with suppress(TimeoutError):
            async with asyncio.timeout(REIGN_S_MAX):
                await host.stop()
        host.kill()


async def check(
    owner: LogOwner, host: Host, book: LogBook, slowed: SimulatedNetwork | None
) -> None:
    """All is well: the log opens, takes a message, and has what it must have. Then, where a network
    is ``slowed``, who looks at a backlog that is long does not come to its end."""
    end_s = asyncio.get_running_loop().time() + SETTLE_S
    while True:
        try:
            async with owner.opened(host) as work:
                book.check(await read_all(work, book.deleted), work.log.recorded.store.properties)
                if slowed is not None:
                    slowed.conditions = SLOW_NETWORK
                    with suppress(*FAILURES):  # an entry may be damaged
                        await work.look_at_backlog()
                return
        except FAILURES as error:
            if asyncio.get_running_loop().time() > end_s:
                raise InvariantViolated(f"the log does not open: {error!r}") from error
        await asyncio.sleep(1.0)


def run(seed: int, *, record: bool = False) -> Outcome[Counter[str]]:
    """The story of one seed, which also chooses what may go wrong in it."""
    random = Random(seed)
    menu = with_bad_disks(FULL_MENU.drawn(random), random)
    sizes = random.choice(SIZES)
    log = replace(
        SHORT_LEDGERS,
        ledger_entries_max=random.choice((5, 25)),
        ensemble_size=sizes.ensemble,
        write_quorum=sizes.write_quorum,
        ack_quorum=sizes.ack_quorum,
        entry_bytes_max=ENTRY_BYTES_MAX,
        read_entries_max=random.choice((1, 1000)),
    )
    ledgers = replace(patience(menu, random), pending_bytes_max=random.choice((1000, 2**28)))
    errands = (*ERRANDS, *random.choice(((), (TERMINATE,), (DELETE,))))
    stamps = random.choice((BrokerEntryFields(), BrokerEntryFields(time=True, index=True)))
    told = partial(story, menu, Manners(log, ledgers, stamps, errands))
    return simulate(seed, told, time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("logs", SEEDS_A_TEST))
def test_a_log_keeps_what_was_published_to_it_across_changes_of_its_owner(first: int) -> None:
    deeds = Counter[str]()
    for told in results(run, range(first, first + SEEDS_A_TEST)):
        deeds.update(told)
    assert deeds["append"] > 20 * SEEDS_A_TEST
    assert all(deeds[each] for each in ERRANDS)
