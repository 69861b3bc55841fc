"""Keeps a topic from storing a message twice, across restarts of broker and topic.

The producers' sequence ids (``sequence_ids`` has the rules) are kept as the position properties
of a cursor ``pulsar.dedup``, as upstream's ``MessageDeduplication`` does: its mark-delete position
says up to where they are true, and what was stored later is read again when the topic is loaded.
The cursor holds back trimming, for as long as one snapshot is old, and is nobody's subscription.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from itertools import groupby

from geminga_broker.errors import NotAllowed, StorageUnavailable
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.reading.log_reader import LogScan
from geminga_broker.managed_ledger.writing.append_request import (
    AppendRequest,
    one_by_one,
    payload_of,
    publisher_of,
    sequence_id_of,
)
from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.policies.publishing import PublishConfig
from geminga_broker.topics.part import OwningTopic, Step, TopicPart, TopicServices
from geminga_broker.topics.producing.producers import Producer
from geminga_broker.topics.producing.publish_path import PublishPath
from geminga_broker.topics.producing.replicated import ReplicatorProducer
from geminga_broker.topics.producing.sequence_ids import (
    SequenceIds,
    Verdict,
    completes_message,
    highest_of,
    number_of_stored,
)
from geminga_broker.topics.producing.source_positions import SourcePositions
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.payload import parse_metadata
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError

log = logging.getLogger(__name__)

CURSOR_NAME = "pulsar.dedup"
# Entries read at once when the numbers are read again.
REPLAY_ENTRIES = 1000
UNKNOWN_REASON = "Cannot determine whether the message is a duplicate at this time"


class DeduplicationStatus(Enum):
    """Whether it works; the values are upstream's."""

    DISABLED = "Disabled"
    RECOVERING = "Recovering"
    ENABLED = "Enabled"
    REMOVING = "Removing"


class TopicDeduplication(TopicPart):
    """Deduplicates messages while the topic's policies ask for it.

    ``deduplication`` does the work. It exists while deduplication is on, and while it is turned on
    or off in the background; most topics never have one.
    """

    __slots__ = ("_found", "_is_open", "_services", "deduplication")

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        super().__init__(topic, services)
        self.deduplication: Deduplication | None = None
        self._services = services
        # The stored cursor, from ``adopt`` to ``opened``.
        self._found: Cursor | None = None
        self._is_open = False

    # Turning it on and off

    def claims(self, cursor_name: str) -> bool:
        """The cursor that upstream names so."""
        return cursor_name == CURSOR_NAME

    async def adopt(self, cursor: Cursor) -> None:
        """Keep the cursor; the policies at the end of loading decide what becomes of it."""
        self._found = cursor

    async def opened(self) -> None:
        """Continue from the cursor's snapshot, or delete the cursor where deduplication is off."""
        found, self._found = self._found, None
        if self._is_wanted:
            await self._begin(found)
        elif found is not None:
            await delete_cursor(found)
        self._is_open = True

    @property
    def _is_wanted(self) -> bool:
        return self._topic.policies.publishing.deduplicates

    @property
    def is_behind(self) -> bool:
        """Whether the policies ask for the opposite of what is."""
        present = self.deduplication
        return self._is_wanted is not (present is not None and present.is_enabled)

    def apply(self, policies: EffectivePolicies) -> None:
        """Turn deduplication on or off in the background; ``opened`` does so while loading."""
        del policies
        if self._is_open and self.is_behind:
            self._topic.spawn(self._catch_up(), name=f"follow the policies of {self._topic.name}")

    async def _catch_up(self) -> None:
        """Turn deduplication on or off. After an error the next maintenance tries again."""
        try:
            while self.is_behind:
                if self._is_wanted:
                    present = self.deduplication
                    await self._begin(None if present is None else present.cursor)
                else:
                    await self._end()
        except GemingaError as error:
            log.warning(
                "deduplication not changed",
                extra={"log": self._topic.managed_ledger.name, "error": str(error)},
            )

    async def _begin(self, cursor: Cursor | None) -> None:
        topic, services = self._topic, self._services
        if self.deduplication is None:
            self.deduplication = Deduplication(
                topic.managed_ledger,
                services.factory,
                services.clock,
                services.config.publishing,
                cluster=services.cluster,
                enter=topic.enter_cursor,
            )
        await self.deduplication.enable(cursor)
        publishing = topic.part(PublishPath)
        for producer in publishing.producers:
            self.deduplication.connected(producer)
        publishing.rearrange()

    async def _end(self) -> None:
        if self.deduplication is not None:
            self._topic.part(PublishPath).rearrange()
            await self.deduplication.disable()
            self.deduplication = None

    def cursors(self) -> list[Cursor]:
        """The cursor that keeps the snapshots, where deduplication is on."""
        present = self.deduplication
        return [] if present is None or present.cursor is None else [present.cursor]

    # Publishing

    def step_before(self, following: Step) -> Step:
        """While deduplication is on, only new messages go on to ``following``."""
        present = self.deduplication
        if present is None or not present.is_enabled or not self._is_wanted:
            return following
        present.following = following
        return present.take

    def producer_connected(self, producer: Producer) -> None:
        """Keep its sequence ids while it is connected."""
        if self.deduplication is not None:
            self.deduplication.connected(producer)

    def producer_disconnected(self, producer: Producer) -> None:
        """Keep its sequence ids for a while, in case it comes back."""
        if self.deduplication is not None:
            self.deduplication.disconnected(producer)

    def last_sequence_id(self, producer_name: str) -> int | None:
        """The last sequence id under that name, while deduplication is on."""
        present = self.deduplication
        return None if present is None else present.last_sequence_id(producer_name)

    async def settled(self, producer_name: str) -> None:
        """Return when ``last_sequence_id`` is that of a durable message."""
        if self.deduplication is not None:
            await self.deduplication.settled(producer_name)

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """Confirm repeats of these messages from now on."""
        if self.deduplication is not None:
            self.deduplication.stored(Position(ledger_id, entries[-1][0]), batch)

    # Maintenance

    @classmethod
    def maintenance_period_s(cls, services: TopicServices) -> float:
        """How often snapshots are looked at whether they are due."""
        return services.config.publishing.deduplication_check_s

    @property
    def needs_maintenance(self) -> bool:
        """Whether deduplication is on, or should be."""
        return self.deduplication is not None or self.is_behind

    async def maintain(self) -> None:
        """Take a snapshot that is due, forget producers that are long gone, try again to turn
        deduplication on or off."""
        policies = self._topic.policies
        if self.deduplication is not None:
            self.deduplication.sweep(policies.publishing.snapshot_interval_s)
        self.apply(policies)

    # Ending

    async def close(self) -> None:
        """Store a last snapshot."""
        if self.deduplication is not None:
            await self.deduplication.close()

    def release(self) -> None:
        """The cursor refers to the topic."""
        self.deduplication = None

    async def delete(self) -> None:
        """Delete the cursor."""
        if self.deduplication is not None:
            await self.deduplication.disable()
            self.deduplication = None


class Deduplication:
    """Of one topic, whose log is ``managed_ledger``. ``cursor`` is there from when it is enabled
    until it is disabled; ``enter`` ties it to the topic and enters it. What is new goes on to
    ``following``."""

    following: Step

    def __init__(
        self,
        managed_ledger: ManagedLedger,
        factory: ManagedLedgerFactory,
        clock: Clock,
        config: PublishConfig,
        *,
        cluster: str,
        enter: Callable[[Cursor], Awaitable[None]],
    ) -> None:
        self.status = DeduplicationStatus.DISABLED
        self.cursor: Cursor | None = None
        self._log = managed_ledger
        self._factory = factory
        self._clock = clock
        self._config = config
        self._cluster = cluster
        self._enter = enter
        self._forget_all()
        self._entries_since_snapshot = 0
        self._snapshot_at_s = clock.monotonic()
        # Guards the cursor while it is made or deleted.
        self._changing = asyncio.Lock()
        # Those who wait until nothing of theirs is under way.
        self._waiting: list[asyncio.Future[None]] = []
        self._is_closed = False

    @property
    def is_enabled(self) -> bool:
        """Whether repeats are recognized."""
        return self.status is DeduplicationStatus.ENABLED

    def last_sequence_id(self, name: str) -> int:
        """The last number that this producer sent; -1 for none that is known."""
        return self._numbers.last_of(name)

    async def settled(self, name: str) -> None:
        """Return when nothing of this producer is under way: whoever goes on behind the last number
        that it sent would leave a hole where that is lost. Also when all is over here."""
        while self.is_enabled and not self._is_closed and self._is_under_way(name):
            woken = asyncio.get_running_loop().create_future()
            self._waiting.append(woken)
            await woken

    def _is_under_way(self, name: str) -> bool:
        return self._numbers.is_under_way(name) or self._positions.is_under_way(name)

    def _wake(self) -> None:
        woken, self._waiting = self._waiting, []
        for each in woken:
            if not each.done():
                each.set_result(None)

    # Turning it on and off

    async def enable(self, cursor: Cursor | None = None) -> None:
        """From now on recognize repeats: as ``cursor`` tells, loaded and not yet entered, or of
        what comes from here on. Raises ``GemingaError``."""
        async with self._changing:
            if self.is_enabled:
                return
            self.status = DeduplicationStatus.RECOVERING
            try:
                if cursor is None:
                    cursor = await self._new_cursor()
                if cursor is not self.cursor:
                    await self._enter(cursor)
                    self.cursor = cursor
                self._forget_all()
                numbers = self._positions.restore(cursor.position_properties)
                self._numbers.restore(numbers, self._clock.monotonic())
                replayed = await self._replay(cursor.mark_delete)
                # Nothing was awaited since the last entry was seen: none is missed.
                self.status = DeduplicationStatus.ENABLED
            finally:
                if not self.is_enabled:
                    self.status = DeduplicationStatus.DISABLED
            self._entries_since_snapshot = replayed
            if replayed >= self._config.deduplication_snapshot_entries:
                self._take_snapshot(self._log.chain.last_confirmed)

    async def _new_cursor(self) -> Cursor:
        await self._log.begin()
        chain = self._log.chain
        return await self._factory.create_cursor(
            self._log.name, CURSOR_NAME, chain, chain.last_confirmed, {}
        )

    async def _replay(self, after: Position) -> int:
        """Read again what was stored behind ``after``; how many entries that were."""
        scan, now_s, count = LogScan(self._log.reader, after), self._clock.monotonic(), 0
        while found := await scan.next_run(REPLAY_ENTRIES):
            _, run = found
            for _, payload, _ in run:
                self._restore_stored(payload, now_s)
            count += len(run)
        return count

    def _restore_stored(self, payload: bytes, now_s: float) -> None:
        try:
            metadata = parse_metadata(payload)
        except WireError:
            return
        if not self._positions.found_stored(metadata, self._cluster):
            number = number_of_stored(metadata)
            if number is not None:
                self._numbers.restore(dict([number]), now_s)

    async def disable(self) -> None:
        """Store repeats again, and delete what was kept."""
        async with self._changing:
            cursor, self.cursor = self.cursor, None
            self.status = DeduplicationStatus.REMOVING
            try:
                if cursor is not None:
                    await delete_cursor(cursor)
            finally:
                self.status = DeduplicationStatus.DISABLED
                self._forget_all()
                self._wake()

    def _forget_all(self) -> None:
        self._numbers = SequenceIds()
        self._positions = SourcePositions()

    async def close(self) -> None:
        """Keep the newest numbers, so that the next owner has nothing to read again."""
        self._is_closed = True
        self._wake()
        async with self._changing:
            cursor = self.cursor
            if cursor is not None:
                if self.is_enabled and self._entries_since_snapshot:
                    self._take_snapshot(self._log.chain.last_confirmed)
                await cursor.__aexit__(None, None, None)

    # Publishing

    def take(self, producer: Producer, requests: Sequence[AppendRequest]) -> None:
        """Append those of a run of ``producer`` that are not stored yet; answer the others. Raises
        what the log raises, then none was taken."""
        if not producer.is_numbering:
            self._take_replicated(producer, requests)
            return
        if not producer.is_chunking:
            last = self._numbers.all_new(producer.name, requests)
            if last is not None:
                self.following(producer, requests)
                self._numbers.taken(producer.name, last)
                return
        for request in one_by_one(requests):
            self._take_one(producer, request)

    def _take_one(self, producer: Producer, request: AppendRequest) -> None:
        counts = not producer.is_chunking or completes_message(payload_of(request))
        verdict = Verdict.NEW
        if counts:
            verdict = self._numbers.judge(producer.name, sequence_id_of(request))
        if verdict is Verdict.STORED:
            producer.confirm_repeat(request)
        elif verdict is Verdict.UNKNOWN:
            producer.fail(request, StorageUnavailable(UNKNOWN_REASON))
        else:
            try:
                self.following(producer, [request])
            except NotAllowed as error:
                producer.fail(request, error)
                return
            if counts:
                self._numbers.taken(producer.name, highest_of(request))

    def _take_replicated(self, producer: Producer, requests: Sequence[AppendRequest]) -> None:
        """The same by source positions, of a replicator whose requests are numbered by them. The
        first entry that is refused ends it, so that none behind that one is taken."""
        if not isinstance(producer, ReplicatorProducer) or not producer.is_positioned:
            self.following(producer, requests)
            return
        positions, name = self._positions, producer.name
        if positions.all_new(name, [each[3:] for each in requests]):
            self.following(producer, requests)
            positions.taken(name, requests[-1][3:])
            return
        for request in one_by_one(requests):
            verdict = positions.judge(name, request[3:])
            if producer.is_closed:
                return
            if verdict is Verdict.STORED:
                producer.confirm_repeat(request)
            elif verdict is Verdict.UNKNOWN:
                producer.fail(request, StorageUnavailable(UNKNOWN_REASON))
            else:
                self.following(producer, [request])
                positions.taken(name, request[3:])

    def stored(self, last: Position, batch: Sequence[AppendRequest]) -> None:
        """``batch`` is durable up to ``last``."""
        if not self.is_enabled:
            return
        for publisher, run in groupby(batch, key=publisher_of):
            if publisher.is_numbering:
                self._numbers.stored(publisher.name, run, is_chunking=publisher.is_chunking)
            elif isinstance(publisher, ReplicatorProducer) and publisher.is_positioned:
                *_, newest = run
                self._positions.stored(publisher.name, newest[3:])
        if self._waiting:
            self._wake()
        self._entries_since_snapshot += len(batch)
        if self._entries_since_snapshot >= self._config.deduplication_snapshot_entries:
            self._take_snapshot(last)

    # Keeping

    def _take_snapshot(self, position: Position) -> None:
        assert self.cursor is not None
        self._entries_since_snapshot = 0
        self._snapshot_at_s = self._clock.monotonic()
        producers_max = self._config.deduplication_producers_max
        self.cursor.position_properties = {
            **self._numbers.snapshot(producers_max),
            **self._positions.snapshot(),
        }
        self.cursor.acknowledged.acknowledge_upto(position)
        self.cursor.changed()

    def sweep(self, snapshot_interval_s: int) -> None:
        """Once in a while: forget who is gone for long, keep the numbers that changed."""
        if not self.is_enabled:
            return
        now_s = self._clock.monotonic()
        is_due = 0 < snapshot_interval_s <= now_s - self._snapshot_at_s
        if is_due and self._entries_since_snapshot:
            self._take_snapshot(self._log.chain.last_confirmed)
        if self._numbers.forget_idle(now_s - self._config.deduplication_producer_idle_s):
            self._take_snapshot(self._log.chain.last_confirmed)

    def connected(self, producer: Producer) -> None:
        """One more producer."""
        if producer.is_numbering:
            self._numbers.connected(producer.name)

    def disconnected(self, producer: Producer) -> None:
        """A producer has gone."""
        if self.is_enabled and producer.is_numbering:
            self._numbers.disconnected(producer.name, self._clock.monotonic())


async def delete_cursor(cursor: Cursor) -> None:
    """Delete the cursor, entered or not, of a topic that needs it no more."""
    try:
        await cursor.delete()
    finally:
        await cursor.__aexit__(None, None, None)
