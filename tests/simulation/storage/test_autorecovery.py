"""Lost copies come back: bookies die for good, restart, are cut off, while ledgers are written.

In the end every entry is on exactly the bookies that the metadata says, as often as was promised;
nothing is marked any more; no confirmed entry is lost and none was invented.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.simulation.bugs.planted import found_by
from tests.simulation.harm import patience, with_bad_disks
from tests.simulation.seeds import first_seeds
from tests.simulation.storage.administrators import Administration, repair_unlocked
from tests.simulation.storage.history import History
from tests.simulation.storage.owner import RETRY_S, Owner, Witness, take_over

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.replication import copier
from geminga_autorecovery.replication.copies import Copies
from geminga_autorecovery.zookeeper.ledger_list import ledger_directories, ledgers_in
from geminga_autorecovery.zookeeper.underreplication_marks import UnderreplicationMarks
from geminga_ledger import Ledgers, LedgerWriter
from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.metadata.store import LedgerStore
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper.digest import ENTRY_HEADER_BYTES
from geminga_protocol.errors import WireError
from geminga_runtime.coordination import CoordinationError
from geminga_scenarios.cluster import Sizes
from geminga_scenarios.storage import EAGER, RecoveringStorage, Storage
from geminga_scenarios.verdicts import raise_failures, results
from geminga_simulation.conditions import DiskConditions
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FULL_MENU, FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World
from geminga_simulation.zookeeper.server import SESSION_TIMEOUT_S_DEFAULT

SEEDS_A_TEST = 20
OWNERS = 3
OWNER_S_MAX = 2.0
SETTLE_S = 400.0
# Within so long of the last harm, every copy must be where it belongs.
WHOLE_S = 120.0
LOOK_S = 2.0
# Longer than it takes until a bookie is lost, and then an unclosed ledger taken from its writer.
IDLE_S = 120.0
IDLE_LEDGERS = 5
IDLE_ENTRIES = 7
READS_MAX = 200
# In how many seeds there are administrators, and a process of auto-recovery alone.
ADMINISTERED, ALONE = 0.5, 0.3
ADMINISTRATORS = 2
MEDDLING_S_MAX = 8.0
# Two bookies are lost so soon one after the other; reads of what is copied take their time.
LOST, LOST_LEDGERS = 2, 12
APART_S_MAX = 3.0
SLOW_DISK = DiskConditions(access_s_max=0.1, uncached_probability=0.9)
NEVER_LOOKING = replace(
    EAGER, auditor_periodic_bookie_check_interval_s=0.0, auditor_periodic_check_interval_s=0.0
)
SIZES = (
    *(Sizes(2, 2, 1), Sizes(3, 2, 1), Sizes(2, 2, 2)),
    *(Sizes(3, 3, 2), Sizes(3, 2, 2), Sizes(4, 3, 2)),
)
# What a worker has claimed is another's when its session is over: in the middle of a repair, too.
MENU = replace(FULL_MENU, session_expiry_rate=0.5, session_loss_rate=1.0)


@dataclass(frozen=True, slots=True)
class Told:
    """What a story did, in counts: a story in which nothing happened would prove nothing."""

    ledgers: int
    confirmed: int
    copied: int
    faults: int
    administered: Counter[str]


async def story(
    menu: FaultMenu, sizes: Sizes, config: AutoRecoveryConfig, ledgers: LedgerConfig
) -> Told:
    """Ledgers are written under faults and bookies are lost; then all must become whole."""
    async with World() as world:
        chance = world.loop.stream("story")
        is_administered = chance.random() < ADMINISTERED
        doomed_count = 2 if is_administered else chance.choice((1, 1, 2))
        # Where two choose at once, there is a choice.
        bookies = sizes.ensemble + doomed_count + is_administered
        storage = RecoveringStorage(world, bookies, config, ledgers=ledgers)
        history = History()
        administration = Administration(storage, history)
        if chance.random() < ALONE:
            # A process of its own, which is there before the first bookie is.
            world.host("recovery").start(partial(_recover_alone, storage=storage))
            await asyncio.sleep(chance.random())
        await storage.open()
        doomed, others = storage.bookies[:doomed_count], storage.bookies[doomed_count:]
        async with FaultInjector(world, menu, others):
            for number in range(ADMINISTRATORS if is_administered else 0):
                world.host(f"admin-{number}").start(administration.run)
            for _ in range(OWNERS):
                owner = world.host(f"owner-{len(world.hosts)}")
                owner.start(Owner(storage, history, sizes).run)
                await asyncio.sleep(chance.random() * OWNER_S_MAX)
                # Where as many are lost at once as confirm an entry, so are entries: one is lost
                # while ledgers are written, if it may be, and the others when all is whole.
                if len(doomed) == doomed_count and sizes.ack_quorum > 1:
                    _lose(doomed.pop())
                if chance.random() < 0.5:
                    owner.kill()
        for name, host in list(world.hosts.items()):
            if name.startswith(("owner", "admin")):
                host.kill()
        inspector = world.host("inspector")
        inspector.start(lambda _: asyncio.Event().wait())
        try:
            async with asyncio.timeout(SETTLE_S):
                await inspector.run(administration.clean_up(inspector))
                await inspector.run(close_all(inspector, storage, history))
                await inspector.run(until_whole(inspector, storage, history))
                for bookie in doomed:
                    if is_administered and sizes.write_quorum > 2:
                        await _take_off_two(inspector, storage, history, others)
                    _lose(bookie)
                    if is_administered:
                        await _meddle(inspector, administration, others)
                    await inspector.run(until_whole(inspector, storage, history))
        finally:
            _raise_failures(world)
        return Told(
            len(history.ledgers),
            sum(last + 1 for last in history.confirmed.values()),
            storage.copied_entries,
            len(world.events),
            administration.done,
        )


async def _take_off_two(
    inspector: Host, storage: RecoveringStorage, history: History, bookies: Sequence[Host]
) -> None:
    """Two tools that take no locks each take ledgers off a bookie: of three copies one stays."""
    chance = storage.world.loop.stream("taking off")
    repair = partial(repair_unlocked, inspector, history)
    await asyncio.gather(*(inspector.run(repair(each.name)) for each in chance.sample(bookies, 2)))
    await inspector.run(until_whole(inspector, storage, history))


async def _meddle(inspector: Host, administration: Administration, others: Sequence[Host]) -> None:
    """A bookie was just lost: while the workers see to it, administrators do what they do, or tools
    repair ledgers that take no locks.

    Two such tools for the same loss, or one that takes a bookie more for lost: with both, a ledger
    might have all its copies where a garbage collector does not know yet that they are wanted.
    """
    world, history = administration.storage.world, administration.history
    chance = world.loop.stream("meddling")
    if chance.random() < 0.5:
        hosts = [world.host(f"late-admin-{len(world.hosts)}") for _ in range(ADMINISTRATORS)]
        for host in hosts:
            host.start(administration.run)
        await asyncio.sleep(chance.random() * MEDDLING_S_MAX)
        for host in hosts:
            host.kill()
        await inspector.run(administration.clean_up(inspector))
    else:
        lost = chance.choice((("", ""), (chance.choice(others).name,)))
        tools = (
            inspector.run(repair_unlocked(inspector, history, each, waits_for_marks=True))
            for each in lost
        )
        await asyncio.gather(*tools)


async def _recover_alone(host: Host, storage: RecoveringStorage) -> None:
    """The main of a process of auto-recovery alone; a supervisor starts it again."""
    while True:
        with suppress(CoordinationError, WireError):
            async with storage.recovery(host, host.name):
                await asyncio.Event().wait()
        await asyncio.sleep(RETRY_S)


def _lose(bookie: Host) -> None:
    """The bookie's machine burns down."""
    if bookie.is_running:
        bookie.kill()


async def close_all(host: Host, storage: Storage, history: History) -> None:
    """Recover and read all ledgers, as their next owner would, and those no client was told of."""
    async with host.coordination() as session, storage.ledgers(host) as ledgers:
        for directory in await ledger_directories(session):
            for ledger_id in await ledgers_in(session, directory):
                if ledger_id not in history.ledgers:
                    history.begin(ledger_id)
                await take_over(ledgers, history, ledger_id)


async def until_whole(host: Host, storage: RecoveringStorage, history: History) -> None:
    """Return when every copy is where it belongs, and nothing is marked: soon."""
    config = LedgerConfig()
    clock, random = host.clock, host.random
    async with host.coordination() as session:
        registry = BookieRegistry(session, random=random, config=config)
        links = BookieLinks(
            registry.resolve, network=host.network, clock=clock, random=random, config=config
        )
        async with registry, links:
            look = Look(
                history,
                LedgerStore(session, clock=clock, random=random, config=config),
                Copies(links, answer_timeout_s=1.0),
                UnderreplicationMarks(session, clock),
            )
            deadline_s = clock.monotonic() + WHOLE_S
            while what := await look.find_fault():
                storage.world.note(f"not whole: {what}")
                if clock.monotonic() > deadline_s:
                    raise InvariantViolated(f"not whole after {WHOLE_S} s: {what}")
                await asyncio.sleep(LOOK_S)


class Look:
    """Looks from outside whether all copies are where they belong."""

    def __init__(
        self, history: History, store: LedgerStore, copies: Copies, marks: UnderreplicationMarks
    ) -> None:
        self._history = history
        self._store = store
        self._copies = copies
        self._marks = marks

    async def find_fault(self) -> str:
        """What is wrong with the first ledger that is not whole; empty where all are."""
        marked = await self._marks.ledgers()
        if marked:
            return f"ledgers {marked} are marked"
        for ledger_id in self._history.ledgers:
            what = await self._fault_of(ledger_id)
            if what:
                return f"ledger {ledger_id}: {what}"
        return ""

    async def _fault_of(self, ledger_id: int) -> str:
        stored = await self._store.read(ledger_id)
        metadata = stored.metadata
        last = self._history.ended[ledger_id]
        if metadata.last_entry != last:
            raise InvariantViolated(f"ledger {ledger_id} ends at {metadata.last_entry}, not {last}")
        quorum = Quorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        for fragment in metadata.fragments:
            if len(set(fragment.ensemble)) < metadata.ensemble_size:
                raise InvariantViolated(f"ledger {ledger_id} is twice on one bookie")
        wanted = [
            (metadata.ensemble_of(entry_id)[index], entry_id)
            for entry_id in range(last + 1)
            for index in quorum.write_set(entry_id)
        ]
        for start in range(0, len(wanted), READS_MAX):
            some = wanted[start : start + READS_MAX]
            for (bookie, entry_id), copy in zip(
                some, await self._copies.read(ledger_id, metadata, some), strict=True
            ):
                if copy.flaw is not None:
                    return f"entry {entry_id} on {bookie}: {copy.flaw.value}"
                if copy.content[ENTRY_HEADER_BYTES:] != self._history.pushed[ledger_id][entry_id]:
                    raise InvariantViolated(f"entry {entry_id} of ledger {ledger_id} is another")
        return ""


def _raise_failures(world: World) -> None:
    """As ``raise_failures``; and no task of a service may have failed."""
    raise_failures(world)
    for _, host_name, text in world.errors:
        if "task failed" in text:
            raise InvariantViolated(f"{host_name}: {text}")


def run(seed: int, *, record: bool = False) -> Outcome[Told]:
    """The story of one seed, which also chooses what may go wrong in it."""
    random = Random(seed)
    menu = with_bad_disks(MENU.drawn(random), random)
    sizes = random.choice(SIZES)
    config = replace(EAGER, lost_bookie_recovery_delay_s=random.choice((0, 0, 2)))
    ledgers = patience(menu, random)
    return simulate(seed, partial(story, menu, sizes, config, ledgers), record=record)


@pytest.mark.parametrize("first", first_seeds("autorecovery", SEEDS_A_TEST))
def test_lost_copies_come_back(first: int) -> None:
    confirmed = copied = 0
    for told in results(run, range(first, first + SEEDS_A_TEST)):
        confirmed += told.confirmed
        copied += told.copied
    assert confirmed > 50 * SEEDS_A_TEST
    assert copied > 20 * SEEDS_A_TEST


async def idleness(harm: Callable[[Host], None], config: LedgerConfig) -> None:
    """A bookie goes for good while the writer of ledgers on it has nothing to send, for longer than
    auto-recovery lets an unclosed ledger be. Then the writer goes on."""
    async with World() as world:
        storage = RecoveringStorage(world, 4, AutoRecoveryConfig())
        history = History()
        await storage.open()
        broker = world.host("broker")
        broker.start(lambda _: asyncio.Event().wait())
        async with asyncio.timeout(SETTLE_S):
            await broker.run(_write_rarely(broker, storage, history, harm, config))
            await broker.run(until_whole(broker, storage, history))
        _raise_failures(world)


async def _write_rarely(
    host: Host,
    storage: Storage,
    history: History,
    harm: Callable[[Host], None],
    config: LedgerConfig,
) -> None:
    """The bookie suffers ``harm`` once all that was written is confirmed."""
    async with storage.ledgers(host, config) as ledgers:
        writers = [await _begin(ledgers, history) for _ in range(IDLE_LEDGERS)]
        await _write_to_all(writers, history)
        harm(storage.bookies[0])
        await asyncio.sleep(IDLE_S)
        await _write_to_all(writers, history)
        for writer in writers:
            await writer.close()
            history.end(writer.ledger_id, writer.last_confirmed)


async def _begin(ledgers: Ledgers, history: History, *, ack_quorum: int = 2) -> LedgerWriter:
    witness = Witness(history)
    writer = await ledgers.create(
        listener=witness, ensemble_size=3, write_quorum=3, ack_quorum=ack_quorum
    )
    witness.ledger_id = writer.ledger_id
    history.begin(writer.ledger_id)
    return writer


async def _write_to_all(writers: Sequence[LedgerWriter], history: History) -> None:
    for writer in writers:
        for _ in range(IDLE_ENTRIES):
            payload = b"%d/%d" % (writer.ledger_id, writer.last_pushed + 1)
            history.pushed[writer.ledger_id].append(payload)
            writer.append(payload)
        await writer.drained()
        if writer.failure is not None:
            raise InvariantViolated(f"a living writer was stopped: {writer.failure}")


async def two_losses() -> None:
    """Two bookies go for good, one soon after the other: the second one while what was on the first
    is being copied. No auditor looks everything through, which would find what was overlooked."""
    async with World(disk=SLOW_DISK) as world:
        chance = world.loop.stream("losses")
        storage = RecoveringStorage(world, LOST + 4, NEVER_LOOKING)
        history = History()
        await storage.open()
        host = world.host("inspector")
        host.start(lambda _: asyncio.Event().wait())
        async with asyncio.timeout(SETTLE_S):
            await host.run(_write_and_close(host, storage, history))
            await host.run(until_whole(host, storage, history))
            for bookie in chance.sample(storage.bookies, LOST):
                _lose(bookie)
                await asyncio.sleep(chance.random() * APART_S_MAX)
            # A session that fell silent is over by then, and its ledgers are marked.
            await asyncio.sleep(2 * SESSION_TIMEOUT_S_DEFAULT)
            await host.run(until_whole(host, storage, history))
        _raise_failures(world)


async def _write_and_close(host: Host, storage: Storage, history: History) -> None:
    async with storage.ledgers(host) as ledgers:
        # Each entry is on all three bookies when it is confirmed. A third copy that is still on its
        # way when the writer closes may be lost, and here no auditor looks for such.
        writers = [await _begin(ledgers, history, ack_quorum=3) for _ in range(LOST_LEDGERS)]
        await _write_to_all(writers, history)
        for writer in writers:
            await writer.close()
            history.end(writer.ledger_id, writer.last_confirmed)


def run_losses(seed: int) -> Outcome[None]:
    return simulate(seed, two_losses)


@pytest.mark.parametrize("first", first_seeds("autorecovery: losses", SEEDS_A_TEST))
def test_what_is_lost_while_other_copies_are_made_is_copied_too(first: int) -> None:
    list(results(run_losses, range(first, first + SEEDS_A_TEST)))


def _crash_silently(bookie: Host) -> None:
    bookie.crash(is_silent=True)


def _stand_still(bookie: Host) -> None:
    bookie.pause(SETTLE_S)


HARMS = (_lose, _crash_silently, _stand_still)


def tell_idleness(seed: int, config: LedgerConfig | None = None) -> Outcome[None]:
    harm = HARMS[seed % len(HARMS)]
    return simulate(seed, partial(idleness, harm, config or LedgerConfig()))


def test_a_writer_that_has_nothing_to_send_keeps_its_ledger_when_a_bookie_is_lost() -> None:
    for seed in range(2 * len(HARMS)):
        try:
            tell_idleness(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("seed", range(len(HARMS)))
def test_a_writer_that_looks_when_it_sends_is_too_late(seed: int) -> None:
    with pytest.raises(InvariantViolated, match="a living writer was stopped"):
        tell_idleness(seed, LedgerConfig(absent_replace_s=10 * SETTLE_S))


def test_a_copier_that_forgets_an_entry_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_but_the_last(*told: Any) -> Iterator[int]:
        entry_ids = list(copied(*told))
        return iter(entry_ids[:-1])

    copied = copier._entries_of
    with monkeypatch.context() as patch:
        patch.setattr(copier, "_entries_of", all_but_the_last)
        seed = found_by(run)
    run(seed)
