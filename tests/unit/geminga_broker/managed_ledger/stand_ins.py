"""Stand-ins for what logs stand on: ledgers in memory that confirm when they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import cast

from geminga_broker.errors import BrokerError
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.config import CacheConfig, ManagedLedgerConfig
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.writing.append_request import AppendRequest, payload_of
from geminga_ledger import (
    EntryTooLarge,
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    LedgerListener,
    Ledgers,
    NoSuchEntry,
    NoSuchLedger,
)
from geminga_ledger.writing.listener import NO_LISTENER
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination, CoordinationError
from geminga_simulation.event_loop.clock import SimulatedClock

LOG = "t/n/persistent/topic"


class MemoryWriter:
    """The writer of one ledger; entries wait for ``confirm`` unless the ledgers are prompt."""

    def __init__(self, ledgers: MemoryLedgers, ledger_id: int, listener: LedgerListener) -> None:
        self.ledger_id = ledger_id
        self.last_pushed = -1
        self.last_confirmed = -1
        self.is_closed = False
        self.is_detached = False
        self._ledgers = ledgers
        self._listener: LedgerListener = listener
        self._refusal: LedgerError | None = None
        self._drained = asyncio.Event()
        self._drained.set()

    def append(self, payload: bytes) -> int:
        self.append_all((payload,))
        return self.last_pushed

    def append_all(self, payloads: Sequence[bytes]) -> None:
        if self._refusal is not None:
            raise self._refusal
        largest, limit = max(map(len, payloads)), self._ledgers.entry_bytes_max
        if largest > limit:
            raise EntryTooLarge(largest, limit)
        self._ledgers.entries[self.ledger_id].extend(payloads)
        self.last_pushed += len(payloads)
        self._drained.clear()
        if self._ledgers.is_prompt:
            asyncio.get_running_loop().call_soon(self.confirm)

    def confirm(self) -> None:
        """Everything appended is durable."""
        if self.is_detached:
            return
        if self.last_confirmed < self.last_pushed and self._refusal_is_none_or_closed():
            self.last_confirmed = self.last_pushed
            self._listener.entries_confirmed(self.last_confirmed)
        self._drained.set()

    def _refusal_is_none_or_closed(self) -> bool:
        return self._refusal is None or isinstance(self._refusal, LedgerClosed)

    def fail(self, error: LedgerError) -> None:
        """The bookies take no more."""
        self._refusal = error
        del self._ledgers.entries[self.ledger_id][self.last_confirmed + 1 :]
        self._listener.writer_failed(error)
        self._drained.set()

    def fence(self) -> None:
        """Another writer recovers the ledger: this one finds it closed to it."""
        if not self.is_closed:
            self._refusal = self._refusal or LedgerFenced(self.ledger_id)
            self.is_closed = True

    def detach(self) -> None:
        """What is on its way is never heard of."""
        self._refusal = self._refusal or LedgerClosed(self.ledger_id)
        self.is_detached = True
        self._listener = NO_LISTENER

    async def close(self) -> None:
        if self._refusal is None:
            self._refusal = LedgerClosed(self.ledger_id)
        await self._drained.wait()
        self.is_closed = True
        self._listener = NO_LISTENER


class MemoryReader:
    """Reads what a ledger holds."""

    def __init__(self, ledger_id: int, entries: list[bytes]) -> None:
        self.ledger_id = ledger_id
        self._entries = entries
        self.last_confirmed = len(entries) - 1
        self.length_bytes = sum(map(len, entries))

    def advance(self, last_confirmed: int, length_bytes: int = 0) -> None:
        del length_bytes
        self.last_confirmed = max(self.last_confirmed, last_confirmed)

    async def read(self, first: int, last: int, *, bytes_max: int) -> list[bytes]:
        return await self.read_entries(range(first, last + 1), bytes_max=bytes_max)

    async def read_entries(self, entry_ids: Sequence[int], *, bytes_max: int) -> list[bytes]:
        del bytes_max
        if entry_ids[0] > self.last_confirmed:
            raise NoSuchEntry(self.ledger_id, entry_ids[0])
        return [self._entries[each] for each in entry_ids if each <= self.last_confirmed]

    async def peek(self, entry_id: int) -> list[bytes]:
        return await self.read(entry_id, entry_id, bytes_max=0)


class MemoryLedgers:
    """``Ledgers`` in memory; opening and creating one meet with these errors where one is set."""

    def __init__(self, *, is_prompt: bool = True) -> None:
        self.is_prompt = is_prompt
        self.entry_bytes_max = 5 * 1024 * 1024
        self.entries: dict[int, list[bytes]] = {}
        self.writers: list[MemoryWriter] = []
        self.opened: list[int] = []
        self.quorums: list[tuple[int, int, int]] = []
        self.open_error: LedgerError | CoordinationError | None = None
        self.create_error: LedgerError | None = None

    async def create(
        self,
        *,
        listener: LedgerListener,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        custom: Mapping[str, bytes],
    ) -> MemoryWriter:
        del custom
        await asyncio.sleep(0)
        if self.create_error is not None:
            raise self.create_error
        ledger_id = len(self.writers)
        self.entries[ledger_id] = []
        self.quorums.append((ensemble_size, write_quorum, ack_quorum))
        self.writers.append(self.new_writer(ledger_id, listener))
        return self.writers[-1]

    def new_writer(self, ledger_id: int, listener: LedgerListener) -> MemoryWriter:
        """For ledgers whose writers behave otherwise."""
        return MemoryWriter(self, ledger_id, listener)

    async def open(self, ledger_id: int, *, recover: bool) -> MemoryReader:
        await asyncio.sleep(0)
        if self.open_error is not None:
            raise self.open_error
        if ledger_id not in self.entries:
            raise NoSuchLedger(ledger_id)
        self.opened.append(ledger_id)
        if recover:
            self.writers[ledger_id].fence()
        return MemoryReader(ledger_id, self.entries[ledger_id])

    async def delete(self, ledger_id: int) -> None:
        await asyncio.sleep(0)
        self.entries.pop(ledger_id, None)


class NotedListener:
    """Notes what a log tells it."""

    def __init__(self) -> None:
        self.appended: list[tuple[Position, bytes]] = []
        self.is_fenced = False

    def run_appended(
        self, ledger_id: int, entries: list[Entry], batch: list[AppendRequest]
    ) -> None:
        del batch
        self.appended += [(Position(ledger_id, each[0]), each[1]) for each in entries]

    def log_fenced(self) -> None:
        self.is_fenced = True


class QuietPublisher:
    """A publisher that wants to know nothing."""

    name = "quiet"
    is_chunking = False
    is_numbering = True
    entries_taken = 0

    def confirm(
        self, ledger_id: int, entries: Sequence[Entry], requests: Sequence[AppendRequest]
    ) -> tuple[int, int]:
        del ledger_id, entries
        return len(requests), sum(map(len, map(payload_of, requests)))

    def fail(self, request: AppendRequest, error: BrokerError) -> None:
        del request
        raise error


QUIET = QuietPublisher()


def pending(*payloads: bytes) -> list[AppendRequest]:
    """Entries of one message each."""
    return [(payload, 1, QUIET, number, 0) for number, payload in enumerate(payloads)]


def logs_over(
    coordination: Coordination,
    ledgers: MemoryLedgers,
    *,
    config: ManagedLedgerConfig | None = None,
    cache: EntryCache | None = None,
    clock: Clock | None = None,
) -> ManagedLedgerFactory:
    """The broker's logs over memory."""
    return ManagedLedgerFactory(
        coordination=coordination,
        ledgers=cast(Ledgers, ledgers),
        cache=cache or EntryCache(CacheConfig()),
        clock=clock or SimulatedClock(),
        random=Random(1),
        config=config or ManagedLedgerConfig(retry_first_s=0.1, retry_limit_s=0.1),
    )


def log_over(factory: ManagedLedgerFactory, listener: NotedListener | None = None) -> ManagedLedger:
    """One log, to be entered."""
    return factory.log(LOG, listener or NotedListener(), create_with={})
