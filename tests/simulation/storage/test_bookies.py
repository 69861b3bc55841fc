"""Proves, over many seeds, that bookies answer any client that speaks their protocol, and end in
order.

Ledgers are written over both protocols, closed and deleted, while garbage is collected; processes
ask the bookies themselves for what tools and Java clients ask for, and use ledgers that were never
made (``asker``). One bookie is told to end again and again: while its journal hangs, while a client
does not take its answers, or while its disk is full, when what its journal has must stay in memory
at the next start. What a client is told must be true, and what was confirmed must be there at the
end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pytest
from tests.simulation.bugs.planted import Plant, found_by
from tests.simulation.harm import with_bad_disks
from tests.simulation.seeds import first_seeds
from tests.simulation.storage.asker import Asker, be_strange
from tests.simulation.storage.history import History
from tests.simulation.storage.owner import Owner
from tests.simulation.storage.raw_bookie_client import connected
from tests.simulation.storage.test_garbage import Deleting, read_what_goes
from tests.simulation.storage.test_ledgers import recover_and_read_all

from geminga_bookie.sessions.v3_reads import V3Reads
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_scenarios.cluster import Sizes
from geminga_scenarios.storage import KIB, SMALL_FILES, Storage
from geminga_scenarios.verdicts import raise_failures, results
from geminga_simulation.conditions import DiskConditions
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FULL_MENU, FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

SEEDS_A_TEST = 10
ENDS = 3
LIFE_S_MAX = 1.5
# Each step of an end in order takes ``close_timeout_s`` at the most; one that is told to end while
# it begins, on a disk that hangs, begins first.
STOP_S_MAX = 60.0
FULL_S = 1.5
UNREAD_REQUESTS = 40
UNREAD_BYTES = 64 * KIB
FORGETFUL_SHARE, SLOW_S_MAX = 0.6, 0.3
HANGING_DISK = DiskConditions(sync_s_min=3.0, sync_s_max=5.0)
SIZES = (Sizes(1, 1, 1), Sizes(2, 2, 2), Sizes(3, 3, 2), Sizes(3, 2, 2))
# Most of what is asked for must be read from a file, which often must be opened for it.
FORGETFUL = replace(
    SMALL_FILES,
    read_cache_bytes_max=1,
    entry_logs_open_max=1,
    entry_log_bytes_max=4 * KIB,
    block_bytes=512,
    write_cache_bytes_max=16 * KIB,
    block_moves_max=1,
    garbage=replace(
        SMALL_FILES.garbage,
        gc_interval_s=0.1,
        minor_compaction_interval_s=0.1,
        major_compaction_interval_s=0.2,
    ),
)


@dataclass(frozen=True, slots=True)
class Told:
    """What a story did, in counts: a story in which nothing happened would prove nothing."""

    confirmed: int
    deleted: int
    answers: Counter[tuple[str, int]]


async def story(menu: FaultMenu, sizes: Sizes, *, is_forgetful: bool) -> Told:
    """Write, delete and ask under faults, and end one bookie again and again; then look."""
    async with World() as world:
        chance = world.loop.stream("story")
        bookie = FORGETFUL if is_forgetful else SMALL_FILES
        storage = Storage(world, sizes.ensemble + 1, bookie=bookie)
        writing = Deleting(storage, History(), sizes)
        java, java_answers = History(), Counter[int]()
        asker = Asker(storage, [writing.history, java])
        await storage.open()
        ended, *others = storage.bookies
        async with FaultInjector(world, menu, others):
            if is_forgetful:
                _slow_reads(storage)
            world.host("owner").start(writing.run)
            world.host("owner-java").start(Owner(storage, java, sizes, None, java_answers).run)
            read = partial(read_what_goes, storage=storage, history=writing.history)
            world.host("reader").start(read)
            world.host("asker").start(asker.run)
            world.host("asker-strange").start(partial(be_strange, storage=storage))
            for _ in range(ENDS):
                await asyncio.sleep(LIFE_S_MAX * chance.random())
                await chance.choice((_end_hanging, _end_unheard, _end_full))(storage, ended)
                if not ended.is_running:
                    ended.restart()
            await asyncio.sleep(LIFE_S_MAX * chance.random())
        for name, host in list(world.hosts.items()):
            if name.startswith(("owner", "reader", "asker")):
                host.kill()
        await storage.check_all_serve()
        await recover_and_read_all(storage, [writing.history, java])
        raise_failures(world)
        confirmed = sum(last + 1 for last in writing.history.confirmed.values())
        return Told(confirmed, len(writing.deleted), asker.answers)


def _slow_reads(storage: Storage) -> None:
    """Files are opened and read slowly: meanwhile another task has time to empty and remove
    them."""
    for bookie in storage.bookies:
        for name, disk in bookie.devices.items():
            if name.startswith("ledgers"):
                disk.conditions = replace(
                    disk.conditions,
                    uncached_probability=1.0,
                    slow_probability=0.1,
                    slow_s_max=SLOW_S_MAX,
                )


async def _end_hanging(storage: Storage, bookie: Host) -> None:
    """The bookie ends in order though its journal never gets done with what was added."""
    for journal in storage.journals(bookie):
        journal.conditions = HANGING_DISK
    await asyncio.sleep(0.1)
    await _stop(bookie)
    for journal in storage.journals(bookie):
        journal.conditions = storage.world.disk_conditions


async def _end_unheard(storage: Storage, bookie: Host) -> None:
    """It ends in order though a client does not take its answers."""
    world = storage.world
    deaf = world.host(f"asker-deaf-{len(world.hosts)}")

    async def be_deaf(host: Host) -> None:
        with suppress(OSError):
            async with connected(host.network, bookie.name) as client:
                for ledger_id in range(UNREAD_REQUESTS):
                    client.ask_and_not_listen(ledger_id, UNREAD_REQUESTS, UNREAD_BYTES)
                await asyncio.Event().wait()

    deaf.start(be_deaf)
    await asyncio.sleep(0.1)
    await _stop(bookie)
    deaf.kill()


async def _end_full(storage: Storage, bookie: Host) -> None:
    """The bookie is killed, and starts again while its ledger disk is full."""
    storage.fill(bookie, FULL_S, "ledgers")
    await asyncio.sleep(FULL_S / 2)
    bookie.kill()
    bookie.restart()
    await asyncio.sleep(FULL_S / 2)


async def _stop(bookie: Host) -> None:
    """It must be over in bounded time."""
    async with asyncio.timeout(STOP_S_MAX):
        await bookie.stop()


def run(seed: int, *, record: bool = False) -> Outcome[Told]:
    """The story of one seed, which also chooses what may go wrong in it."""
    random = Random(seed)
    menu = with_bad_disks(FULL_MENU.drawn(random), random)
    sizes, is_forgetful = random.choice(SIZES), random.random() < FORGETFUL_SHARE
    return simulate(seed, partial(story, menu, sizes, is_forgetful=is_forgetful), record=record)


@pytest.mark.parametrize("first", first_seeds("bookies", SEEDS_A_TEST))
def test_bookies_tell_the_truth_and_end_in_order(first: int) -> None:
    answers = Counter[tuple[str, int]]()
    confirmed = 0
    for told in results(run, range(first, first + SEEDS_A_TEST)):
        confirmed += told.confirmed
        answers += told.answers
    assert confirmed > 20 * SEEDS_A_TEST
    for question in ("room", "read", "batch", "list", "lac", "poll"):
        assert answers[question, pb.EOK] > SEEDS_A_TEST


def tell_what_is_not_confirmed(patch: pytest.MonkeyPatch) -> None:
    """A reader that waits is told of an entry that its writer does not know to be stored."""
    honest = V3Reads._news

    async def news(reads: V3Reads, request: pb.Request, *, is_update: bool = False) -> pb.Response:
        response = await honest(reads, request, is_update=is_update)
        response.readResponse.maxLAC += 1
        return response

    patch.setattr(V3Reads, "_news", news)


@pytest.mark.parametrize("plant", [tell_what_is_not_confirmed])
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(run)
    run(seed)  # the same story is clean without the bug
