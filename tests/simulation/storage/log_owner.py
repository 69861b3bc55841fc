"""One broker's worth of work on one log: open it, and do all that may be done to a log, several
things at a time, until another one has it or it is given up.

No owner asks whether another process owns the log: what is tried is that its record and its ledgers
keep two writers apart. Cursors are kept apart by ownership besides, so of these only what holds
back ledgers counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from random import Random

from tests.simulation.storage.log_book import DELETION, PROPERTY, TRUNCATION, Deed, LogBook, now_s

from geminga_broker.errors import BrokerError, EntryDamaged
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.config import CacheConfig, ManagedLedgerConfig
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.log_browser import SCAN_S_MAX, last_message, scan_backlog
from geminga_broker.managed_ledger.managed_ledger import CHANGE_DEADLINE_S, ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.reading.payloads import without_broker_entry
from geminga_broker.managed_ledger.records.properties import set_property
from geminga_broker.managed_ledger.writing.append_request import AppendRequest, payload_of
from geminga_broker.managed_ledger.writing.broker_entry_metadata import BrokerEntryFields
from geminga_ledger import LedgerConfig, LedgerError, Ledgers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_payload, open_payload
from geminga_runtime.coordination import CoordinationError
from geminga_scenarios.storage import Storage
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.host import Host

LOG = "public/default/persistent/log"
KEEPER, READER = "keeper", "reader"
BURST_MAX = 6
BODY_BYTES_MAX = 3000
# Some are larger than an entry may be.
ENTRY_BYTES_MAX = 2000
PAUSE_S_MAX = 0.15
# How long an owner works on a log that no other owner takes from it, and on one that was taken.
LIVES_S = (0.5, 2.0, 4.0)
NOTICED_S = 0.3
# So often it does not give the log up before all that is under way has had its time.
PATIENT = 0.75
PATIENCE_S = 2 * CHANGE_DEADLINE_S
# It opens the log so often, after such pauses.
LIVES_MAX = 8
PAUSES_S = (0.1, 0.3, 1.0)
# Changes wait a minute for bookies, one after the other.
TOLD_S_MAX = 400.0
# Within so long a look at a backlog ends that takes too long, though its process stand still.
SCAN_ENDED_S = 10.0
CACHE_BYTES = 20_000
# What the wait for bookies and ZooKeeper ends with.
FAILURES = (BrokerError, LedgerError, CoordinationError)
# What a process may do while another one does it: by its name, and how often.
# What is done to a log, and how often beside the others.
OFTEN = {"append": 12, "read": 4, "acknowledge": 3, "roll_over": 2, "set_property": 2}
ERRANDS = (*OFTEN, "truncate", "trim", "look", "subscribe")
# In a seed one of these is done besides.
TERMINATE, DELETE = "terminate", "delete"


@dataclass(frozen=True, slots=True)
class Manners:
    """How all owners of a log's seed behave, and how patient they are with bookies."""

    log: ManagedLedgerConfig
    ledgers: LedgerConfig
    stamps: BrokerEntryFields
    errands: tuple[str, ...]


class Publisher:
    """Who sends what is appended."""

    name = "owner"
    is_chunking = False
    is_numbering = False
    entries_taken = 0

    def confirm(
        self, ledger_id: int, entries: Sequence[Entry], requests: Sequence[AppendRequest]
    ) -> tuple[int, int]:
        """They are stored."""
        del ledger_id, entries
        return len(requests), 0

    def fail(self, request: AppendRequest, error: BrokerError) -> None:
        """It is not, or that is not known."""


PUBLISHER = Publisher()


class Readers:
    """The cursors of a log, as its topic knows them."""

    def __init__(self) -> None:
        self.all: list[Cursor] = []

    def cursors(self) -> Iterable[Cursor]:
        """As ``Readership``."""
        return self.all

    def reads_from(self) -> Position | None:
        """As ``Readership``: nothing is sent."""
        return None


class Told:
    """Writes down what a log says is stored."""

    def __init__(self, book: LogBook) -> None:
        self.is_fenced = False
        self._book = book

    def run_appended(
        self, ledger_id: int, entries: list[Entry], batch: list[AppendRequest]
    ) -> None:
        """As ``LogListener``."""
        for (entry_id, _, _), request in zip(entries, batch, strict=True):
            self._book.store(Position(ledger_id, entry_id), body_of(payload_of(request)))

    def log_fenced(self) -> None:
        """As ``LogListener``."""
        self.is_fenced = True


def body_of(payload: bytes) -> bytes:
    """What its sender put into an entry."""
    payload = without_broker_entry(payload)
    _, start = open_payload(payload, 0, len(payload))
    return payload[start:]


class LogOwner:
    """``run`` is the main of a process; the log's history is written into ``book``."""

    def __init__(self, storage: Storage, book: LogBook, manners: Manners) -> None:
        self._storage = storage
        self._book = book
        self._manners = manners

    async def run(self, host: Host) -> None:
        """Open the log, work with it, lose it or give it up; then again, some times."""
        for _ in range(LIVES_MAX):
            work: Work | None = None
            try:
                async with self.opened(host) as work:
                    await work.live(host)
            except FAILURES:
                self._book.deeds["not opened"] += work is None
            if work is not None:
                await work.finish()
            await asyncio.sleep(host.random.choice(PAUSES_S))
            if host.is_stopping:
                return

    @asynccontextmanager
    async def opened(self, host: Host) -> AsyncGenerator[Work]:
        """The log as a broker has it when a topic is loaded."""
        manners = self._manners
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(host.coordination())
            ledgers = await stack.enter_async_context(
                Ledgers(session, host.network, host.clock, host.random, manners.ledgers)
            )
            factory = await stack.enter_async_context(
                ManagedLedgerFactory(
                    coordination=session,
                    ledgers=ledgers,
                    cache=EntryCache(replace(CacheConfig(), cache_bytes_max=CACHE_BYTES)),
                    clock=host.clock,
                    random=host.random,
                    config=manners.log,
                    stamps=manners.stamps,
                )
            )
            told = Told(self._book)
            log = await stack.enter_async_context(factory.log(LOG, told, create_with={}))
            work = Work(factory, log, told, self._book, manners)
            await work.load_cursors(stack)
            yield work


class Work:
    """One open log, and what is done to it."""

    def __init__(
        self,
        factory: ManagedLedgerFactory,
        log: ManagedLedger,
        told: Told,
        book: LogBook,
        manners: Manners,
    ) -> None:
        self.log = log
        self._factory = factory
        self._told = told
        self._book = book
        self._readers = Readers()
        self._errands = [name for name in manners.errands for _ in range(OFTEN.get(name, 1))]
        self._under_way = set[asyncio.Task[None]]()

    async def load_cursors(self, stack: AsyncExitStack) -> None:
        """Those that are stored; the first owner makes them."""
        log, factory = self.log, self._factory
        await log.begin()
        cursors = await factory.load_cursors(LOG, log.chain)
        for name in {KEEPER, READER} - {each.name for each in cursors}:
            before = log.chain.before_first
            cursors.append(await factory.create_cursor(LOG, name, log.chain, before, {}))
        for cursor in cursors:
            cursor.on_lost, cursor.on_ledger_left = log.fence, log.trimmer.trim_soon
            self._readers.all.append(await stack.enter_async_context(cursor))
        log.trimmer.readership = self._readers
        log.trimmer.trim_soon()

    async def live(self, host: Host) -> None:
        """Do this and that for a while, or until the log is lost. What is under way then goes on
        while the log is closed."""
        chance = Random(host.random.random())
        end_s = now_s() + chance.choice(LIVES_S)
        is_patient = chance.random() < PATIENT
        while now_s() < end_s and not host.is_stopping:
            name = chance.choice(self._errands)
            errand = getattr(self, f"_{name}")(Random(chance.random()))
            if name == DELETE:
                await self._try(name, errand)
                return
            self._under_way.add(asyncio.create_task(self._try(name, errand), name=name))
            if self._told.is_fenced:
                end_s = min(end_s, now_s() + NOTICED_S)
            await asyncio.sleep(chance.random() * PAUSE_S_MAX)
        if is_patient and self._under_way and not host.is_stopping:
            await asyncio.wait(self._under_way, timeout=PATIENCE_S)

    async def finish(self) -> None:
        """A client that asked for something is told in the end, whatever became of the log."""
        if self._under_way:
            _, left = await asyncio.wait(self._under_way, timeout=TOLD_S_MAX)
            if left:
                raise InvariantViolated(f"never told: {sorted(map(str, left))}")
        for each in self._under_way:
            each.result()

    async def _try(self, name: str, errand: Awaitable[None]) -> None:
        try:
            await errand
        except FAILURES as error:
            self._book.deeds[f"{name}: {type(error).__name__}"] += 1
        else:
            self._book.deeds[name] += 1

    # Errands

    async def _append(self, chance: Random) -> None:
        requests: list[AppendRequest] = []
        for _ in range(chance.randint(1, BURST_MAX)):
            body = b"%d " % len(self._book.pushed_s)
            body += bytes(int(BODY_BYTES_MAX * chance.random() ** 8))
            self._book.push(body)
            metadata = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
            requests.append((encode_payload(metadata, body), 1, PUBLISHER, 0, 0))
        self.log.append_all(requests)

    async def _terminate(self, chance: Random) -> None:
        del chance
        self._book.terminated(await self.log.termination.terminate())

    async def _truncate(self, chance: Random) -> None:
        del chance
        await self._remove(TRUNCATION, self.log.truncate)

    async def _delete(self, chance: Random) -> None:
        """As a topic is deleted: its subscriptions go first."""
        del chance

        async def delete() -> None:
            for cursor in self._readers.all:
                await cursor.delete()
            await self.log.delete()

        await self._remove(DELETION, delete)

    async def _remove(self, what: str, remove: Callable[[], Awaitable[None]]) -> None:
        deed = Deed(now_s(), what)
        self._book.removals.append(deed)
        await remove()
        deed.end_s, deed.is_done = now_s(), True

    async def _trim(self, chance: Random) -> None:
        del chance
        await self.log.trimmer.trim()

    async def _roll_over(self, chance: Random) -> None:
        del chance
        await self.log.roll_over()

    async def _set_property(self, chance: Random) -> None:
        del chance
        deed = Deed(now_s(), str(len(self._book.settings)))
        self._book.settings.append(deed)
        await set_property(self.log, PROPERTY, deed.value)
        deed.end_s, deed.is_done = now_s(), True

    async def _read(self, chance: Random) -> None:
        """Read something that was stored, which may be trimmed by now, or soon."""
        end_of = self.log.reader.readable_end
        stored = [each for each, _ in self._book.stored.values() if each[1] < end_of(each[0])]
        if stored:
            position = chance.choice(stored)
            await asyncio.sleep(chance.random() * PAUSE_S_MAX)
            ids = [position.entry_id]
            for entry_id, payload, _ in await self.log.reader.fetch(position.ledger_id, ids):
                self._book.read(Position(position.ledger_id, entry_id), body_of(payload))

    async def _acknowledge(self, chance: Random) -> None:
        """As a producer that wants to know when it is stored, and what is to be stored with it."""
        cursor = next(each for each in self._readers.all if each.name == READER)
        cursor.acknowledged.acknowledge_upto(self.log.chain.last_confirmed)
        await cursor.change_properties({"number": str(chance.randrange(100))})

    async def _look(self, chance: Random) -> None:
        """Do as a client does that asks for the last message id, and for a backlog."""
        del chance
        await last_message(self.log.reader)
        await self.look_at_backlog()

    async def look_at_backlog(self) -> None:
        """Count what the keeper has not acknowledged, unless that takes too long."""
        began_s = now_s()
        cursor = next(each for each in self._readers.all if each.name == KEEPER)
        scan = await scan_backlog(self.log.reader, cursor)
        if scan.entries != scan.messages:
            raise InvariantViolated(f"of one message each: {scan}")
        if now_s() > began_s + SCAN_S_MAX + SCAN_ENDED_S or (
            scan.is_aborted and now_s() < began_s + SCAN_S_MAX
        ):
            raise InvariantViolated(f"a scan took {now_s() - began_s} s: {scan}")

    async def _subscribe(self, chance: Random) -> None:
        """A subscription comes, and goes."""
        log = self.log
        name = f"guest-{chance.randrange(3)}"
        if name in await self._factory.cursor_names(LOG):
            return
        before = log.chain.before_first
        async with await self._factory.create_cursor(LOG, name, log.chain, before, {}) as cursor:
            await asyncio.sleep(chance.random() * PAUSE_S_MAX)
            await cursor.delete()


async def read_all(work: Work, deleted: Collection[int]) -> dict[Position, bytes | None]:
    """What an open log has: None for an entry that is damaged. Of ledgers that were deleted
    nothing is read. Raises ``StorageUnavailable``."""
    reader, found = work.log.reader, dict[Position, bytes | None]()
    for span in work.log.chain.spans:
        entry_id = 0 if span.ledger_id not in deleted else span.entries
        while entry_id < span.entries:
            try:
                run = await reader.read(Position(span.ledger_id, entry_id), span.entries - entry_id)
            except EntryDamaged:
                found[Position(span.ledger_id, entry_id)] = None
                entry_id += 1
            else:
                found |= {Position(span.ledger_id, each): body_of(it) for each, it, _ in run}
                entry_id += len(run)
    return found
