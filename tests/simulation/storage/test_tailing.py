"""Proves, over many seeds, that readers who follow an open ledger see all of it, and never more.

One process writes ledgers; others read along from the first entry to the last, waiting at the
bookies for what is confirmed next. Bookies crash, hang, fill up and are replaced while they keep
such questions, links break, ZooKeeper's sessions end. A reader may never be told of an entry that
the writer was not told of before, nor of less than before. When the faults are over, and the writer
says nothing more, the readers get the last entry in bounded time; so they do when the ledger ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest
from tests.simulation.accounts import check_bookies
from tests.simulation.bugs.planted import Plant, found_by
from tests.simulation.harm import with_bad_disks
from tests.simulation.seeds import first_seeds
from tests.simulation.storage.history import History
from tests.simulation.storage.owner import READ_BYTES, RETRY_S, Owner, Witness, keep_up

from geminga_bookie.sessions.long_polls import LongPoll as Waiting
from geminga_bookie.sessions.long_polls import LongPolls
from geminga_ledger import (
    BookieUnavailable,
    LedgerConfig,
    LedgerError,
    LedgerReader,
    Ledgers,
    LedgerWriter,
)
from geminga_ledger.metadata.store import LedgerStore
from geminga_ledger.reading.long_poll import LongPoll, News
from geminga_runtime.coordination import CoordinationError
from geminga_scenarios.cluster import Sizes
from geminga_scenarios.storage import Storage
from geminga_scenarios.verdicts import raise_failures, results
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FULL_MENU, FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

SEEDS_A_TEST = 20
READERS = 2
FAULTS_S_MAX = 4.0
PAUSE_S_MAX = 0.1
FILL_S_MAX = 2.0
WAIT_S_MAX = 5.0
# How often a client asks that does not wait, and how long it stays: about as long as connecting and
# asking take.
HURRIES_S = 1.0
IN_A_HURRY_S_MAX = 0.003
# So often a reader does not wait for news, but asks all bookies at once what there is.
ASKED = 0.1
# With a pause of so long, the writer tells how far its ledger is confirmed.
EXPLICIT_LAC_S = 0.2
# A reader knows of the last entry at the latest so long after the faults: a hung bookie is given up
# and ZooKeeper's session is back by then.
LAST_ENTRY_S = 20.0
SIZES = (Sizes(1, 1, 1), Sizes(2, 2, 1), Sizes(3, 3, 2), Sizes(3, 2, 2), Sizes(5, 3, 2))
# A bookie that stands still for a moment is given up by the second.
CONFIGS = [
    LedgerConfig(explicit_lac_interval_s=EXPLICIT_LAC_S, answer_timeout_s=timeout_s)
    for timeout_s in (3.0, 0.3)
]


@dataclass(slots=True)
class Book:
    """What was written and read so far. ``read`` counts the entries of a ledger that each reader
    has got, by reader and ledger."""

    history: History = field(default_factory=History)
    read: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    # By reader and ledger: what was read to its end, perhaps more than once.
    finished: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    # The writer ends no ledger by itself once this is set; it ends the last one after ``is_over``.
    is_calm: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, reader: LedgerReader, name: object) -> None:
        """A reader was told how far it may read."""
        ledger_id, seen = reader.ledger_id, reader.last_confirmed
        self.history.see(name, ledger_id, seen)
        if seen > self.history.confirmed[ledger_id]:
            confirmed = self.history.confirmed[ledger_id]
            raise InvariantViolated(
                f"a reader of ledger {ledger_id} may read up to {seen}, its writer to {confirmed}"
            )

    def have_all(self, readers: list[str]) -> bool:
        """Whether all that was confirmed was read."""
        confirmed = self.history.confirmed
        return all(
            self.read[name, ledger_id] == confirmed[ledger_id] + 1
            for name in readers
            for ledger_id in self.history.ledgers
        )


class Author(Owner):
    """Writes one ledger after the other. The last one stays open and at rest until all is over."""

    def __init__(self, storage: Storage, book: Book, sizes: Sizes, config: LedgerConfig) -> None:
        super().__init__(storage, book.history, sizes, config)
        self._book = book

    async def run(self, host: Host) -> None:
        """The main of the author's process."""
        await keep_up(lambda: self._write_all(host))

    async def _write_all(self, host: Host) -> None:
        async with self._storage.ledgers(host, self._config) as ledgers:
            while not self._book.is_over.is_set():
                await self.write_one(host, ledgers)
                await asyncio.sleep(RETRY_S)

    async def write_one(self, host: Host, ledgers: Ledgers) -> bool:
        """Write one ledger until its writer fails, it is long enough, or rest is wanted."""
        book, witness = self._book, Witness(self._history)
        try:
            writer = await ledgers.create(
                listener=witness,
                ensemble_size=self._sizes.ensemble,
                write_quorum=self._sizes.write_quorum,
                ack_quorum=self._sizes.ack_quorum,
            )
        except (LedgerError, CoordinationError):
            return True
        witness.ledger_id = writer.ledger_id
        self._history.begin(writer.ledger_id)
        entries_max = host.random.randrange(50, 400)
        while witness.failure is None and writer.last_pushed < entries_max:
            self._append_some(host, writer)
            await asyncio.sleep(host.random.random() * PAUSE_S_MAX)
            if book.is_calm.is_set():
                await _rest(book, writer)
                break
        return await self._close(writer)


async def _rest(book: Book, writer: LedgerWriter) -> None:
    await writer.drained()
    if writer.failure is None:
        await book.is_over.wait()


async def follow(host: Host, storage: Storage, book: Book, config: LedgerConfig) -> None:
    """The main of a process that reads every ledger from its first entry to its end."""

    async def run() -> None:
        async with storage.ledgers(host, config) as ledgers:
            position = 0
            while True:
                if position == len(book.history.ledgers):
                    await asyncio.sleep(RETRY_S)
                    continue
                await _follow_one(host, ledgers, book, book.history.ledgers[position])
                position += 1

    await keep_up(run)


async def _follow_one(host: Host, ledgers: Ledgers, book: Book, ledger_id: int) -> None:
    """Read a ledger on from where this host has got to, until it ends."""
    place = host.name, ledger_id
    reader = await ledgers.open(ledger_id, recover=False)
    name = object()
    while True:
        book.see(reader, name)
        if book.read[place] <= reader.last_confirmed:
            payloads = await reader.read(book.read[place], 1 << 40, bytes_max=READ_BYTES)
            book.history.read(ledger_id, book.read[place], payloads)
            book.read[place] += len(payloads)
        elif reader.view.is_closed:
            book.history.end(ledger_id, reader.last_confirmed)
            book.finished.add(place)
            return
        elif host.random.random() < ASKED:
            await reader.view.ask_bookies()
        else:
            timeout_s = WAIT_S_MAX * host.random.random()
            await reader.wait_for_confirmed(reader.last_confirmed, timeout_s=timeout_s)


async def hurry(host: Host, storage: Storage, book: Book, config: LedgerConfig) -> None:
    """The main of a process that asks what is confirmed and ends its part of ledgers at once, while
    bookies are being connected: a client that asks is told all the same, and then refused."""
    while not book.is_over.is_set():
        await asyncio.sleep(HURRIES_S * host.random.random())
        if book.history.ledgers:
            with suppress(LedgerError, CoordinationError):
                await _ask_and_leave(host, storage, book, config)


async def _ask_and_leave(host: Host, storage: Storage, book: Book, config: LedgerConfig) -> None:
    async with storage.ledgers(host, config) as ledgers:
        reader = await ledgers.open(book.history.ledgers[-1], recover=False)
        asking = asyncio.create_task(reader.view.ask_bookies(), name="ask in a hurry")
        await asyncio.sleep(IN_A_HURRY_S_MAX * host.random.random())
    try:
        async with asyncio.timeout(LAST_ENTRY_S):
            await asking
    except TimeoutError as error:
        raise InvariantViolated("a reader whose ledgers were closed is never told") from error
    except BookieUnavailable:
        pass
    book.see(reader, object())
    if not reader.view.is_closed:
        with suppress(BookieUnavailable):
            told = await reader.view.ask_bookies()
            raise InvariantViolated(f"over closed connections a reader was told of {told}")


@dataclass(frozen=True, slots=True)
class Told:
    """What a story was about: entries read, ensembles changed, seconds to the last entry."""

    entries: int
    changes: int
    waited_s: float


async def story(menu: FaultMenu, sizes: Sizes, config: LedgerConfig) -> Told:
    """One writes and others read under faults; then all is calm, and they must have everything."""
    async with World() as world:
        chance = world.loop.stream("story")
        storage = Storage(world, sizes.ensemble + chance.randrange(1, 3))
        book = Book()
        await storage.open()
        readers = [f"reader-{number}" for number in range(READERS)]
        async with FaultInjector(world, menu, storage.bookies):
            world.host("author").start(Author(storage, book, sizes, config).run)
            for name in readers:
                following = partial(follow, storage=storage, book=book, config=config)
                world.host(name).start(following)
            world.host("hasty").start(partial(hurry, storage=storage, book=book, config=config))
            await asyncio.sleep(chance.random() * FAULTS_S_MAX)
            storage.fill(chance.choice(storage.bookies), FILL_S_MAX * chance.random())
            await asyncio.sleep(chance.random() * FAULTS_S_MAX)
        # Some go on to be written to: what the faults left behind must not matter.
        await asyncio.sleep(chance.choice((0.0, 1.0)))
        book.is_calm.set()
        calm_s = world.loop.time()
        await _settled(world, book, lambda: _is_at_rest(book) and book.have_all(readers))
        waited_s = world.loop.time() - calm_s
        book.is_over.set()
        ends = {(reader, ledger) for reader in readers for ledger in book.history.ledgers}
        await _settled(world, book, lambda: book.finished == ends)
        assert book.have_all(readers)
        changes = await _count_changes(world, storage, book)
        check_bookies(storage)
        return Told(sum(book.read.values()), changes, waited_s)


def _is_at_rest(book: Book) -> bool:
    history = book.history
    return bool(history.ledgers) and all(
        history.confirmed[each] == len(history.pushed[each]) - 1 or each in history.ended
        for each in history.ledgers
    )


async def _settled(world: World, book: Book, is_done: Callable[[], bool]) -> None:
    over_at_s = world.loop.time() + LAST_ENTRY_S
    while not is_done():
        await asyncio.sleep(RETRY_S)
        raise_failures(world)
        if world.loop.time() > over_at_s:
            raise InvariantViolated(
                f"readers have not got all: {dict(book.read)} of {book.history.confirmed}"
            )


async def _count_changes(world: World, storage: Storage, book: Book) -> int:
    host = world.host("checker")
    host.start(lambda _: asyncio.Event().wait())

    async def count() -> int:
        async with storage.ledgers(host) as ledgers:
            metadata = [await ledgers.metadata(each) for each in book.history.ledgers]
            return sum(len(each.fragments) - 1 for each in metadata)

    return await host.run(count())


def run(seed: int) -> Outcome[Told]:
    """The story of one seed, which also chooses what may go wrong in it."""
    random = Random(seed)
    menu = with_bad_disks(FULL_MENU.drawn(random), random)
    told = partial(story, menu, random.choice(SIZES), random.choice(CONFIGS))
    return simulate(seed, told)


@pytest.mark.parametrize("first", first_seeds("tailing", SEEDS_A_TEST))
def test_readers_follow_a_writer_through_all_that_happens(first: int) -> None:
    entries = changes = 0
    for told in results(run, range(first, first + SEEDS_A_TEST)):
        entries += told.entries
        changes += told.changes
    assert entries > 100 * SEEDS_A_TEST
    assert changes


def believe_one_more(patch: pytest.MonkeyPatch) -> None:
    """Readers think that an entry is confirmed as soon as a bookie has it."""
    honest = LongPoll.run

    async def boast(poll: LongPoll) -> News:
        news = await honest(poll)
        return news._replace(last_confirmed=news.last_confirmed + 1)

    patch.setattr(LongPoll, "run", boast)


def hear_nothing(patch: pytest.MonkeyPatch) -> None:
    """Readers are not told that the metadata of a ledger have changed."""

    def ignore(*_: object) -> None:
        pass

    patch.setattr(LedgerStore, "_changed", ignore)


def stay_silent(patch: pytest.MonkeyPatch) -> None:
    """Bookies never learn of the last entry, and the ledger is not closed."""

    async def tell_nobody(*_: object) -> bool:
        return True

    patch.setattr("geminga_ledger.writing.explicit_lac.ExplicitLac._tell", tell_nobody)


def count_the_last_alone_down(patch: pytest.MonkeyPatch) -> None:
    """Of the readers that wait for a ledger, bookies count down only the last one that leaves."""
    honest = LongPolls.cancel

    def cancel(polls: LongPolls, poll: Waiting) -> None:
        count = polls.count
        honest(polls, poll)
        if poll.ledger_id in polls.waiting:
            polls.count = count

    patch.setattr(LongPolls, "cancel", cancel)


@pytest.mark.parametrize(
    "plant", [believe_one_more, hear_nothing, stay_silent, count_the_last_alone_down]
)
def test_a_planted_bug_is_found_by_a_checker(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(run)
    run(seed)  # the same story under the same faults is clean without the bug
