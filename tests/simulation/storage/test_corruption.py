"""Proves, over many seeds, that what few bookies lose or spoil is not lost to any client.

Ledgers are written under faults, and deleted in half the seeds, so that bookies compact logs that
are spoilt. As many bookies as may be lost (one fewer than confirm an entry) are harmed besides, at
moments of chance, while they are down or while they run: bits flip in their files, pages hold
something else, files are cut, gone or there twice, the index is gone, the disks are empty, syncs
make nothing safe until the power fails. Then all faults end, the ledgers are recovered and read,
and auto-recovery makes every copy whole: on the harmed bookies, or on others where these do not
come back. A copy that is spoilt is never taken for a good one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pytest
from tests.simulation.bugs.planted import believe_enough_absences, found_by
from tests.simulation.seeds import first_seeds
from tests.simulation.storage.history import History
from tests.simulation.storage.owner import Owner
from tests.simulation.storage.spoiling import AT_REST_S, cut_entries_short, spoil_last_entry
from tests.simulation.storage.test_autorecovery import close_all, until_whole
from tests.simulation.storage.test_garbage import Deleting

from geminga_bookie.decisions.garbage import logs_to_compact
from geminga_bookie.formats import entry_log_v1, journal_v1, log_list_v1
from geminga_bookie.index.index import Index
from geminga_ledger import LedgerError
from geminga_runtime.coordination import CoordinationError
from geminga_scenarios.cluster import Sizes
from geminga_scenarios.storage import EAGER, KIB, SMALL_FILES, RecoveringStorage
from geminga_scenarios.verdicts import raise_failures, results
from geminga_simulation.conditions import DiskConditions
from geminga_simulation.disk import SimulatedDisk
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FULL_MENU, FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

SEEDS_A_TEST = 20
OWNERS = 3
OWNER_S_MAX = 2.0
DOWN_S_MAX = 1.0
SETTLE_S = 400.0
SIZES = (Sizes(2, 2, 2), Sizes(3, 3, 2), Sizes(3, 3, 3), Sizes(3, 2, 2), Sizes(4, 3, 2))
# What a harmed bookie may lose without knowing it: up to so much of the end of its journal.
TAIL_BYTES_MAX = 2048
# What a device loses at a time: a sector, or a page.
UNITS_BYTES = (512, 4096)
# So small that there are several of each when something happens to them.
MANY_FILES = replace(
    SMALL_FILES,
    entry_log_bytes_max=16 * KIB,
    journal_file_bytes_max=8 * KIB,
    checkpoint_interval_s=1.5,
    block_bytes=KIB,
)
COMPACTED_BELOW = SMALL_FILES.garbage.major_compaction_threshold
# So many things happen to a bookie at once: what one of them is to be mended with, the other takes.
HARMS_AT_ONCE = (1, 1, 2, 3)
MEANWHILE_PROBABILITY = 0.5
# A bookie that lost confirmed entries unawares denies them: the others must be asked, and can be.
ALL_STAY = FaultMenu(
    session_loss_rate=FULL_MENU.session_loss_rate,
    session_expiry_rate=FULL_MENU.session_expiry_rate,
    zookeeper_restart_rate=FULL_MENU.zookeeper_restart_rate,
    clock_jump_rate=FULL_MENU.clock_jump_rate,
    coordination=FULL_MENU.coordination,
)
# The harmed ones tell that they have made safe what they lose when their power fails.
SYNCS_LIE = replace(ALL_STAY, lying_sync_rate=1.0, down_s_max=1.0)

# So slow that it has little of what the others have confirmed.
VERY_SLOW_DISK = DiskConditions(sync_s_min=0.1, sync_s_max=0.2)
# Bookies that were started again can be asked after so long.
REGISTERED_S = 0.2
# So long a ledger is written that is never closed.
WRITTEN_S = 0.2
PAUSED_S = 0.05


class Harm:
    """What happens to one bookie's disks. Each method harms, and says whether there was anything to
    be harmed."""

    def __init__(self, storage: RecoveringStorage, bookie: Host, chance: Random) -> None:
        self._storage = storage
        self._bookie = bookie
        self._chance = chance

    def flip_a_bit_of_an_entry_log(self) -> bool:
        return self._flip("ledgers", self._files("ledgers", entry_log_v1.SUFFIX))

    def spoil_a_page_of_an_entry_log(self) -> bool:
        return self._spoil("ledgers", self._files("ledgers", entry_log_v1.SUFFIX))

    def flip_a_bit_of_a_closed_entry_log(self) -> bool:
        return self._flip("ledgers", self._closed_logs())

    def spoil_a_page_of_a_closed_entry_log(self) -> bool:
        return self._spoil("ledgers", self._closed_logs())

    def cut_entries_short(self) -> bool:
        paths = self._files("ledgers", entry_log_v1.SUFFIX)
        self._chance.shuffle(paths)
        return any(cut_entries_short(self._disk("ledgers"), each, self._chance) for each in paths)

    def cut_a_closed_entry_log(self) -> bool:
        return self._cut("ledgers", self._closed_logs())

    def lose_a_closed_entry_log(self) -> bool:
        return self._remove("ledgers", self._closed_logs())

    def copy_an_entry_log_to_the_other_disk(self) -> bool:
        """An operator restores a file from a copy, and takes the wrong directory."""
        paths = self._files("ledgers", entry_log_v1.SUFFIX)
        other = self._bookie.devices.get("ledgers-1")
        if not paths or other is None:
            return False
        self._disk("ledgers").copy(self._chance.choice(paths), other)
        return True

    def flip_a_bit_of_the_list_of_entry_logs(self) -> bool:
        return self._flip("ledgers", self._files("ledgers", log_list_v1.NAME))

    def flip_a_bit_of_another_file(self) -> bool:
        others = [
            path
            for path in self._files("ledgers", "")
            if not path.endswith((entry_log_v1.SUFFIX, journal_v1.SUFFIX))
        ]
        return self._flip("ledgers", others)

    def cut_an_entry_log(self) -> bool:
        return self._cut("ledgers", self._files("ledgers", entry_log_v1.SUFFIX))

    def lose_an_entry_log(self) -> bool:
        return self._remove("ledgers", self._files("ledgers", entry_log_v1.SUFFIX))

    def flip_a_bit_within_the_journal(self) -> bool:
        """Before its last file, whose end may never have been written, as far as bookies know."""
        return self._flip("journal", self._files("journal", journal_v1.SUFFIX)[:-1])

    def cut_a_file_of_the_journal(self) -> bool:
        return self._cut("journal", self._files("journal", journal_v1.SUFFIX)[:-1])

    def lose_a_file_of_the_journal(self) -> bool:
        return self._remove("journal", self._files("journal", journal_v1.SUFFIX)[1:-1])

    def lose_the_file_of_the_journal_that_is_replayed_first(self) -> bool:
        marks = self._index().journal_marks() or ()
        names = {journal_v1.file_name(mark.file_number) for mark in marks[:1]}
        return self._remove("journal", sorted(names & self._disk("journal").files.keys()))

    def lose_the_index(self) -> bool:
        self._storage.forget_index(self._bookie)
        return True

    def lose_all_disks(self) -> bool:
        for disk in self._bookie.devices.values():
            disk.clear()
        self._storage.forget_index(self._bookie)
        return True

    def lose_the_end_of_the_journal(self) -> bool:
        """No bookie can tell this from an end that was never written."""
        files = self._files("journal", journal_v1.SUFFIX)[-1:]
        return self._cut("journal", files, at_most=TAIL_BYTES_MAX)

    def _closed_logs(self) -> list[str]:
        """All but the one that is being written: of a running bookie, these are read only. Those
        alone, if there are any, that will be read soon, since most in them is garbage."""
        logs = self._index().logs
        paths = self._files("ledgers", entry_log_v1.SUFFIX)[:-1]
        due = logs_to_compact(logs, max(logs, default=0), COMPACTED_BELOW)
        return [path for path in paths if entry_log_v1.file_number(path) in due] or paths

    def _index(self) -> Index:
        return self._storage.indexes()[self._storage.bookies.index(self._bookie)]

    def _disk(self, name: str) -> SimulatedDisk:
        return self._bookie.device(name)

    def _files(self, name: str, suffix: str) -> list[str]:
        """The files of a disk that have anything in them, in the order of their names."""
        files = sorted(self._disk(name).files.items())
        return [path for path, file in files if path.endswith(suffix) and file.content]

    def _flip(self, name: str, paths: list[str]) -> bool:
        if paths:
            self._disk(name).flip_bit(self._chance.choice(paths))
        return bool(paths)

    def _spoil(self, name: str, paths: list[str]) -> bool:
        if paths:
            # Of the last one a start takes the end for one that a crash tore.
            path = self._chance.choice(self._chance.choice((paths, paths[-1:])))
            disk, unit = self._disk(name), self._chance.choice(UNITS_BYTES)
            start = unit * self._chance.randrange(1 + (len(disk.files[path].content) - 1) // unit)
            disk.files[path].spoil(disk.random, start, start + unit)
        return bool(paths)

    def _cut(self, name: str, paths: list[str], at_most: int | None = None) -> bool:
        if paths:
            path = self._chance.choice(paths)
            # Zeros at the end are space that was reserved.
            content = self._disk(name).files[path].content
            size = len(content.rstrip(b"\0")) or len(content)
            cut = self._chance.randrange(1, 1 + min(size, at_most or size))
            self._disk(name).cut(path, size - cut)
        return bool(paths)

    def _remove(self, name: str, paths: list[str]) -> bool:
        if paths:
            self._disk(name).lose(self._chance.choice(paths))
        return bool(paths)


LOUD: tuple[Callable[[Harm], bool], ...] = (
    Harm.flip_a_bit_of_an_entry_log,
    Harm.spoil_a_page_of_an_entry_log,
    Harm.cut_entries_short,
    Harm.copy_an_entry_log_to_the_other_disk,
    Harm.flip_a_bit_of_the_list_of_entry_logs,
    Harm.flip_a_bit_of_another_file,
    Harm.cut_an_entry_log,
    Harm.lose_an_entry_log,
    Harm.flip_a_bit_within_the_journal,
    Harm.cut_a_file_of_the_journal,
    Harm.lose_a_file_of_the_journal,
    Harm.lose_the_file_of_the_journal_that_is_replayed_first,
    Harm.lose_the_index,
    Harm.lose_all_disks,
)
# They need files that are not always there.
SELDOM_POSSIBLE = frozenset(
    {
        Harm.copy_an_entry_log_to_the_other_disk,
        Harm.lose_a_file_of_the_journal,
        Harm.spoil_a_page_of_an_entry_log,
    }
)
# What may happen to a bookie that runs.
MEANWHILE = (
    Harm.flip_a_bit_of_a_closed_entry_log,
    Harm.spoil_a_page_of_a_closed_entry_log,
    Harm.cut_a_closed_entry_log,
    Harm.lose_a_closed_entry_log,
)
SILENT = (Harm.lose_the_end_of_the_journal,)


@dataclass(frozen=True, slots=True)
class Told:
    """What a story did, in counts: a story in which nothing happened would prove nothing."""

    confirmed: int
    copied: int
    harms: tuple[str, ...]
    refused: tuple[str, ...]
    lies: int


async def story(menu: FaultMenu, sizes: Sizes, harms: tuple[Callable[[Harm], bool], ...]) -> Told:
    """Ledgers are written while few bookies are harmed; then all must become whole.

    Without ``harms`` it is the syncs of these bookies that lie.
    """
    async with World() as world:
        chance = world.loop.stream("story")
        few = sizes.ack_quorum - 1
        storage = RecoveringStorage(world, sizes.ensemble + few, EAGER, bookie=MANY_FILES)
        history = History()
        await storage.open()
        harmed = chance.sample(storage.bookies, few)
        others = [each for each in storage.bookies if each not in harmed]
        done: list[str] = []
        writing = Deleting(storage, history, sizes) if chance.random() < 0.5 else None
        async with FaultInjector(world, menu, others, liars=() if harms else harmed) as injector:
            for _ in range(OWNERS):
                owner = world.host(f"owner-{len(world.hosts)}")
                owner.start((writing or Owner(storage, history, sizes)).run)
                await asyncio.sleep(chance.random() * OWNER_S_MAX)
                if harms:
                    done += await _harm(storage, chance.choice(harmed), harms, chance)
                if chance.random() < 0.5:
                    owner.kill()
        for name, host in list(world.hosts.items()):
            if name.startswith("owner"):
                host.kill()
        if harms and chance.random() < 0.5:
            await _ask_of_an_open_one(storage, history, sizes, harmed)
        await make_whole(storage, history, [] if writing is None else writing.doomed)
        return Told(
            sum(last + 1 for last in history.confirmed.values()),
            storage.copied_entries,
            tuple(done),
            tuple(each.status for each in harmed if "could not start" in each.status),
            0 if harms else injector.orders["lying_sync"],
        )


async def _ask_of_an_open_one(
    storage: RecoveringStorage, history: History, sizes: Sizes, harmed: Sequence[Host]
) -> None:
    """The last entry of a ledger that is not closed is spoilt on few bookies, and others before it;
    a reader who asks up to where it is confirmed is told what its writer knew."""

    async def write(host: Host) -> None:
        async with storage.ledgers(host) as ledgers:
            await Owner(storage, history, sizes).write_one(host, ledgers)

    await asyncio.sleep(DOWN_S_MAX)
    author = storage.world.host("author")
    author.start(write)
    await asyncio.sleep(WRITTEN_S)
    author.kill()
    ledger_id = history.ledgers[-1]
    await asyncio.sleep(AT_REST_S)
    for bookie in harmed:
        bookie.kill()
        if spoil_last_entry(bookie, ledger_id, len(history.pushed[ledger_id]) - 1):
            storage.world.note(f"{bookie.name}: the last entry of ledger {ledger_id} is spoilt")
        Harm(storage, bookie, storage.world.loop.stream("open ledger")).cut_entries_short()
        bookie.restart()
    await asyncio.sleep(REGISTERED_S)
    asker = storage.world.host("asker")
    asker.start(lambda _: asyncio.Event().wait())

    async def ask() -> None:
        async with storage.ledgers(asker) as ledgers:
            reader = await ledgers.open(ledger_id, recover=False)
            for bookie in storage.bookies:  # those that are spoilt are heard first
                if bookie not in harmed and bookie.is_running:
                    bookie.pause(PAUSED_S)
            told = await reader.view.ask_bookies()
            history.see(reader, ledger_id, told)
            if told > (confirmed := history.confirmed[ledger_id]) and not reader.view.is_closed:
                raise InvariantViolated(f"{told} is said to be confirmed, known is {confirmed}")

    with suppress(LedgerError, CoordinationError):
        await asker.run(ask())


async def make_whole(
    storage: RecoveringStorage, history: History, doomed: Sequence[int] = ()
) -> None:
    """Recover and read all ledgers but the ``doomed`` ones, and return when every copy is there
    again. What was to be deleted is deleted."""
    inspector = storage.world.host("inspector")
    inspector.start(lambda _: asyncio.Event().wait())
    async with asyncio.timeout(SETTLE_S):
        await inspector.run(_delete(inspector, storage, doomed))
        await inspector.run(close_all(inspector, storage, history))
        await inspector.run(until_whole(inspector, storage, history))
    raise_failures(storage.world)


async def _delete(host: Host, storage: RecoveringStorage, ledger_ids: Sequence[int]) -> None:
    async with storage.ledgers(host) as ledgers:
        for ledger_id in ledger_ids:
            await ledgers.delete(ledger_id)


async def _harm(
    storage: RecoveringStorage,
    bookie: Host,
    harms: Sequence[Callable[[Harm], bool]],
    chance: Random,
) -> list[str]:
    """Have one thing happen to a bookie that runs, or several to one that is down; their names."""
    harm = Harm(storage, bookie, chance)
    happens_meanwhile = harms is LOUD and bookie.is_running
    if happens_meanwhile and chance.random() < MEANWHILE_PROBABILITY:
        done = _happen(harm, MEANWHILE, 1, chance)
    else:
        await _go_down(bookie, chance)
        done = _happen(harm, harms, chance.choice(HARMS_AT_ONCE), chance)
        bookie.restart()
    storage.world.note(f"{bookie.name}: {', '.join(done) or 'there is nothing to harm'}")
    return done


def _happen(
    harm: Harm, harms: Sequence[Callable[[Harm], bool]], count: int, chance: Random
) -> list[str]:
    """Do so many of these, as far as there is anything to be harmed; their names.

    Half the time those come first that seldom find anything; and where several things happen, the
    index is lost first, so that it has to be made again of what else is spoilt.
    """
    drawn = chance.sample(harms, len(harms))
    if chance.random() < 0.5:
        drawn.sort(key=lambda each: each not in SELDOM_POSSIBLE)
        if count > 1 and Harm.lose_the_index in drawn:
            drawn.insert(0, Harm.lose_the_index)
    done: list[str] = []
    for each in drawn:
        if len(done) < count and each(harm):
            done.append(each.__name__)
    return done


async def _go_down(bookie: Host, chance: Random) -> None:
    """It crashes or is killed, and is down for a while."""
    if chance.random() < 0.5:
        bookie.crash()
    else:
        bookie.kill()
    await asyncio.sleep(chance.random() * DOWN_S_MAX)


# What happens to the harmed ones, under which menu: to most, what they notice.
LOUDLY, SILENTLY, LYING = (FULL_MENU, LOUD), (ALL_STAY, SILENT), (SYNCS_LIE, ())
Kind = tuple[FaultMenu, tuple[Callable[[Harm], bool], ...]]


def run(seed: int, *, kind: Kind | None = None, record: bool = False) -> Outcome[Told]:
    """The story of one seed, which also chooses what may go wrong in it."""
    random = Random(seed)
    drawn = random.choices((LOUDLY, SILENTLY, LYING), (6, 1, 1))[0]
    menu, harms = kind or drawn
    menu = menu.drawn(random)
    if not harms:
        menu = replace(menu, lying_sync_rate=SYNCS_LIE.lying_sync_rate)
    sizes = random.choice(SIZES)
    return simulate(seed, partial(story, menu, sizes, harms), record=record)


@pytest.mark.parametrize("first", first_seeds("corruption", SEEDS_A_TEST))
def test_entries_that_few_bookies_lose_or_damage_stay_readable(first: int) -> None:
    confirmed = copied = 0
    harms = Counter[str]()
    for told in results(run, range(first, first + SEEDS_A_TEST)):
        confirmed += told.confirmed
        copied += told.copied
        harms.update(told.harms)
    assert confirmed > 50 * SEEDS_A_TEST
    assert copied
    assert len(harms) > len(LOUD) // 2


def test_entries_that_few_disks_falsely_report_as_synced_stay_readable() -> None:
    lies = 0
    for told in results(partial(run, kind=LYING), range(SEEDS_A_TEST)):
        lies += told.lies
    assert lies > SEEDS_A_TEST


async def denials(rounds: int) -> None:
    """A bookie loses the end of its journal and does not know it, another one was too slow to have
    what it lost, and the owner goes: only the third bookie still has what two had confirmed."""
    async with World() as world:
        chance = world.loop.stream("denials")
        storage = RecoveringStorage(world, 4, EAGER)  # one to copy to where it notices its loss
        history = History()
        await storage.open()
        harmed, *others = storage.bookies
        for number in range(rounds):
            owner = world.host(f"owner-{number}")
            # It takes the ledger of the one before over, and writes a new one.
            owner.start(Owner(storage, history, Sizes(3, 3, 2)).run)
            await asyncio.sleep(0.3 + 0.2 * chance.random())
            slow = chance.choice(others)
            for journal in storage.journals(slow):
                journal.conditions = VERY_SLOW_DISK
            await asyncio.sleep(0.1 * chance.random())
            for host in (owner, slow, harmed):
                host.kill()
            Harm(storage, harmed, chance).lose_the_end_of_the_journal()
            for journal in storage.journals(slow):
                journal.conditions = world.disk_conditions
            for bookie in (slow, harmed):
                bookie.restart()
            await asyncio.sleep(REGISTERED_S)
        await make_whole(storage, history)


def run_denials(seed: int) -> Outcome[None]:
    return simulate(seed, partial(denials, 5))


@pytest.mark.parametrize("first", first_seeds("corruption: denials", SEEDS_A_TEST))
def test_what_a_bookie_denies_that_has_lost_it_is_taken_from_another(first: int) -> None:
    list(results(run_denials, range(first, first + SEEDS_A_TEST)))


def test_a_planted_bug_is_found_by_a_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        believe_enough_absences(patch)
        seed = found_by(run_denials)
    run_denials(seed)
