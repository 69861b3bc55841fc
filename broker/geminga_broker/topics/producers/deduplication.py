"""Keeps a topic from storing a message twice, across restarts of broker and topic.

The producers' sequence ids (``sequence_ids`` has the rules) are kept as the position properties
of a cursor ``pulsar.dedup``, as upstream's ``MessageDeduplication`` does. The cursor's mark-delete
position says up to where this snapshot is valid; entries stored later are read again when the topic
is loaded. Until the next snapshot the cursor keeps the log from being trimmed. It belongs to no
subscription.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from itertools import groupby

from geminga_broker.errors import NotAllowed, StorageUnavailable
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.reading.log_reader import LogScan
from geminga_broker.managed_ledger.writing.append_request import (
    AppendRequest,
    one_by_one,
    payload_of,
    publisher_of,
    sequence_id_of,
)
from geminga_broker.policies.publish import PublishConfig
from geminga_broker.topics.decisions.sequence_ids import (
    SequenceIds,
    Verdict,
    completes_message,
    highest_of,
    number_of_stored,
)
from geminga_broker.topics.decisions.source_positions import SourcePositions
from geminga_broker.topics.producers.producer import Producer, Step
from geminga_broker.topics.producers.replicator_producer import ReplicatorProducer
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.messages.payload import parse_metadata
from geminga_runtime.clock import Clock

CURSOR_NAME = "pulsar.dedup"
# Entries read at once when the log behind the last snapshot is replayed. Between two such reads
# other tasks run: they may append entries, which the replay then reads too, as it goes on until
# nothing is left.
REPLAY_ENTRIES = 1000
UNKNOWN_REASON = "Cannot determine whether the message is a duplicate at this time"


class DeduplicationStatus(Enum):
    """Whether repeats are recognized; the values are upstream's."""

    DISABLED = "Disabled"
    RECOVERING = "Recovering"
    ENABLED = "Enabled"
    REMOVING = "Removing"


# The states, with what leads from one to the next:
#
#     DISABLED ──enable──▶ RECOVERING ──replayed──▶ ENABLED ──disable──▶ REMOVING ──▶ DISABLED
#         ▲                    │ an error
#         └────────────────────┘
#
# Only in ENABLED are messages judged, noted when they are durable, and put into snapshots.
class Deduplication:
    """The deduplication of one topic, whose log is ``managed_ledger``.

    ``enter`` connects a cursor with the topic and opens it. New messages go on to ``following``.
    """

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
        # There from ``enable`` to ``disable``. Also after an attempt of ``enable`` that failed: it
        # is open then, and keeps the log from being trimmed, until another attempt succeeds.
        self.cursor: Cursor | None = None
        self._log = managed_ledger
        self._factory = factory
        self._clock = clock
        self._config = config
        # This cluster's name, which replicators have in the names of their producers.
        self._cluster = cluster
        self._enter = enter
        # What is known of clients' producers, and of replicators. Replaced as a whole when
        # deduplication is turned on or off. Code that waits reads the attributes anew.
        self.numbers = SequenceIds()
        self._positions = SourcePositions()
        # A snapshot is due after so many entries, and after some time if there were any. Entries
        # after the snapshot are what the next owner has to replay: their number bounds the time of
        # loading the topic after a crash.
        self._entries_since_snapshot = 0
        self._snapshot_at_s = clock.monotonic()
        # Held while the cursor is created, deleted or closed. ``enable``, ``disable`` and ``close``
        # may be called at the same time: by loading or a change of policies, and by the topic's
        # end.
        self._changing = asyncio.Lock()
        # One future for each producer that ``settled`` keeps waiting.
        self._waiting: list[asyncio.Future[None]] = []
        self._is_closed = False

    @property
    def is_enabled(self) -> bool:
        """Whether repeats are recognized."""
        return self.status is DeduplicationStatus.ENABLED

    # Turning it on and off

    async def enable(self, cursor: Cursor | None = None) -> None:
        """Recognize repeats from now on. Raises ``GemingaError``.

        A stored ``cursor``, which is not open yet, has the snapshot to begin with. Without one,
        only messages that are published from now on are known.
        """
        async with self._changing:
            if self.is_enabled:
                return
            # In this state messages of connected producers pass this step by
            # (``PublishPath._lead_in``).
            self.status = DeduplicationStatus.RECOVERING
            try:
                if cursor is None:
                    # A cursor is stored with a position, which needs a ledger.
                    await self._log.begin()
                    # Read after the wait. At the end of the log: what is stored already is not
                    # compared, as nothing is known of it.
                    chain = self._log.chain
                    cursor = await self._factory.create_cursor(
                        self._log.name, CURSOR_NAME, chain, chain.last_confirmed, {}
                    )
                # Kept from an attempt that failed: then the topic knows it already.
                if cursor is not self.cursor:
                    # Connects it with the topic: if another broker takes the cursor over, the whole
                    # topic is fenced.
                    await self._enter(cursor)
                    self.cursor = cursor
                # Begin with empty tables: an attempt that failed may have filled them in part.
                self.numbers, self._positions = SequenceIds(), SourcePositions()
                # Positions first: they take their numbers out, and leave the sequence ids.
                numbers = self._positions.restore(cursor.position_properties)
                self.numbers.restore(numbers, self._clock.monotonic())
                replayed = await self._replay(cursor.mark_delete)
                # No await since the last entry was read: each entry is among those that are
                # confirmed, and were read, or pending.
                self._find_pending()
                self.status = DeduplicationStatus.ENABLED
            finally:
                if not self.is_enabled:
                    self.status = DeduplicationStatus.DISABLED
            # The replayed entries are behind the stored snapshot still.
            self._entries_since_snapshot = replayed
            # At once, not after the next messages: a crash until then would cost the same replay.
            if replayed >= self._config.deduplication_snapshot_entries:
                self._take_snapshot(self._log.chain.last_confirmed)

    async def _replay(self, after: Position) -> int:
        """Learn from the entries behind ``after``, the snapshot's position; return their number."""
        # The mark-delete position is that of the snapshot: ``_take_snapshot`` moves both with one
        # write.
        scan, now_s, count = LogScan(self._log.reader, after), self._clock.monotonic(), 0
        while found := await scan.next_run(REPLAY_ENTRIES):
            _, run = found
            for _, payload, _ in run:
                try:
                    metadata = parse_metadata(payload)
                except WireError:
                    continue  # such an entry names no producer
                # In the order of the log: a later number of a producer replaces an earlier one.
                if not self._positions.found_stored(metadata, self._cluster):
                    number = number_of_stored(metadata)
                    if number is not None:
                        self.numbers.restore(dict([number]), now_s)
            count += len(run)
        return count

    def _find_pending(self) -> None:
        """Learn from the entries that were appended past this step, and are not confirmed yet."""
        # As taken, not as stored: they can still be lost. A repeat of them is refused until then,
        # and a producer that connects waits for them (``settled``).
        now_s = self._clock.monotonic()
        for request in self._log.pending():
            publisher = publisher_of(request)
            if publisher.is_numbering:
                self.numbers.found_pending(request, now_s)
            elif isinstance(publisher, ReplicatorProducer) and publisher.is_positioned:
                self._positions.taken(publisher.name, request[3:])

    async def disable(self) -> None:
        """Store repeats again, and delete the cursor."""
        async with self._changing:
            # Not enabled from here on: messages that become durable meanwhile are not noted. Taken
            # out of ``self.cursor`` at once, so that ``cursors`` of the topic does not name a
            # cursor that is being deleted.
            cursor, self.cursor = self.cursor, None
            self.status = DeduplicationStatus.REMOVING
            try:
                if cursor is not None:
                    await delete_cursor(cursor)
            finally:
                # Also if the deletion fails: messages pass by all the same. The cursor is then
                # deleted when the topic is loaded the next time (``TopicDeduplication.opened``).
                self.status = DeduplicationStatus.DISABLED
                self.numbers, self._positions = SequenceIds(), SourcePositions()
                # Producers that wait in ``settled`` have nothing to wait for any more.
                self._wake()

    async def close(self) -> None:
        """Take a last snapshot, so that the next owner has no entries to replay."""
        # Producers that wait in ``settled`` are answered at once. They find the topic fenced then,
        # and their clients look it up again.
        self._is_closed = True
        self._wake()
        async with self._changing:
            cursor = self.cursor
            if cursor is not None:
                if self.is_enabled and self._entries_since_snapshot:
                    # Everything up to here is noted: ``stored`` runs in the same turn in which an
                    # entry is confirmed.
                    self._take_snapshot(self._log.chain.last_confirmed)
                await cursor.__aexit__(None, None, None)

    # Producers

    def connected(self, producer: Producer) -> None:
        """Keep what is known of ``producer`` as long as it is connected."""
        # Replicators have positions instead, which are never forgotten.
        if producer.is_numbering:
            self.numbers.connected(producer.name)

    def disconnected(self, producer: Producer) -> None:
        """Let ``sweep`` forget ``producer`` if it stays away."""
        if self.is_enabled and producer.is_numbering:
            self.numbers.disconnected(producer.name, self._clock.monotonic())

    async def settled(self, name: str) -> None:
        """Return when no message of this producer is pending, or when deduplication ends.

        A producer continues behind the last number that the broker names. If that message were
        still pending and then lost, the producer would leave a hole.
        """
        # Checked again after each wait: more messages may have been sent meanwhile. A producer of
        # the same name may be on its way out, or its earlier connection's messages still pending.
        # The new one gets its number only after these.
        while self.is_enabled and not self._is_closed:
            numbers, positions = self.numbers, self._positions
            if not (numbers.has_pending(name) or positions.has_pending(name)):
                return
            woken = asyncio.get_running_loop().create_future()
            # One that is cancelled leaves its future here until the next wake-up, which skips it.
            self._waiting.append(woken)
            await woken

    def _wake(self) -> None:
        """Let every ``settled`` check again."""
        woken, self._waiting = self._waiting, []
        for each in woken:
            if not each.done():
                each.set_result(None)

    # Publishing

    def take(self, producer: Producer, requests: Sequence[AppendRequest]) -> None:
        """Append those of a run of ``producer`` that are not stored yet, and answer the others.
        Raises what the log raises; then no request of the run was taken."""
        if not producer.is_numbering:
            self._take_replicated(producer, requests)
            return
        # Two ways. A run without chunks and repeats is one call; any other is judged entry by
        # entry, in order, so that receipts of repeats do not overtake those of new messages.
        name, is_chunking = producer.name, producer.is_chunking
        if not is_chunking:
            # HOT: the usual run is all new and goes on as one.
            last = self.numbers.all_new(name, requests)
            if last is not None:
                # First handed on: if the log refuses the run, none of it counts as taken.
                self.following(producer, requests)
                self.numbers.taken(name, last)
                return
        for request in one_by_one(requests):
            # All chunks of a message have its number: only the last one is judged and counted.
            counts = not is_chunking or completes_message(payload_of(request))
            verdict = Verdict.NEW
            if counts:
                verdict = self.numbers.judge(name, sequence_id_of(request))
            # A receipt, because the message is stored: the client may forget it.
            if verdict is Verdict.STORED:
                producer.confirm_repeat(request)
            # Neither answer would be right. After this error the client reconnects and sends the
            # message again, when its fate is known.
            elif verdict is Verdict.UNKNOWN:
                producer.fail(request, StorageUnavailable(UNKNOWN_REASON))
            else:
                try:
                    self.following(producer, [request])
                except NotAllowed as error:
                    # Requests before it were taken: this one alone is refused.
                    producer.fail(request, error)
                    continue
                # The highest number of a batch: one entry stands for all its messages.
                if counts:
                    self.numbers.taken(name, highest_of(request))

    def _take_replicated(self, producer: Producer, requests: Sequence[AppendRequest]) -> None:
        """``take`` for a replicator, by source positions, which its requests have in the place of
        sequence ids. The first refusal closes the producer; no request behind it is taken."""
        if not isinstance(producer, ReplicatorProducer) or not producer.is_positioned:
            self.following(producer, requests)
            return
        # The last two members of a request are ledger and entry id in the source's log.
        positions, name = self._positions, producer.name
        if positions.all_new(name, [each[3:] for each in requests]):
            self.following(producer, requests)
            positions.taken(name, requests[-1][3:])
            return
        for request in one_by_one(requests):
            verdict = positions.judge(name, request[3:])
            # A request before this one may have been refused, here or in a later step. Its position
            # is not taken then, nor may any later one be.
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
        """Note that ``batch`` is durable; ``last`` is the position of its last entry."""
        if not self.is_enabled:
            return
        # Runs of one publisher: a batch has the entries in the order of the log.
        for publisher, run in groupby(batch, key=publisher_of):
            if publisher.is_numbering:
                self.numbers.stored(publisher.name, run, is_chunking=publisher.is_chunking)
            elif isinstance(publisher, ReplicatorProducer) and publisher.is_positioned:
                # The last one, except where the source went back while nothing was compared.
                self._positions.stored(publisher.name, max(each[3:] for each in run))
        # After the numbers, which ``settled`` reads when it is woken.
        if self._waiting:
            self._wake()
        self._entries_since_snapshot += len(batch)
        if self._entries_since_snapshot >= self._config.deduplication_snapshot_entries:
            self._take_snapshot(last)

    # Snapshots

    def _take_snapshot(self, position: Position) -> None:
        """Let the cursor's next write have the numbers, which are valid up to ``position``."""
        assert self.cursor is not None
        self._entries_since_snapshot = 0
        self._snapshot_at_s = self._clock.monotonic()
        producers_max = self._config.deduplication_producers_max
        # A new mapping, never a changed one: the cursor compares it with what it has written.
        self.cursor.position_properties = {
            **self.numbers.snapshot(producers_max),
            **self._positions.snapshot(),
        }
        # Properties before position: the cursor writes both together.
        self.cursor.acknowledged.acknowledge_upto(position)
        # Nothing waits for this write. Until it is durable the log keeps the entries
        # (``Cursor.needless_upto``), so a crash costs only a longer replay.
        self.cursor.changed()

    def sweep(self, snapshot_interval_s: int) -> None:
        """Take a snapshot that is due, and forget producers that have been away for long; called
        now and then. An interval of 0 means no snapshots by time."""
        if not self.is_enabled:
            return
        now_s = self._clock.monotonic()
        # Without new entries the stored snapshot is still right.
        is_due = 0 < snapshot_interval_s <= now_s - self._snapshot_at_s
        if is_due and self._entries_since_snapshot:
            self._take_snapshot(self._log.chain.last_confirmed)
        if self.numbers.forget_idle(now_s - self._config.deduplication_producer_idle_s):
            # The stored snapshot still has the forgotten ones: replace it.
            self._take_snapshot(self._log.chain.last_confirmed)


async def delete_cursor(cursor: Cursor) -> None:
    """Delete the cursor, open or not, of a topic that no longer needs it."""
    try:
        await cursor.delete()
    finally:
        await cursor.__aexit__(None, None, None)
