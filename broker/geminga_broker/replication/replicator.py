"""Moves one topic to one remote cluster: reads its log, sends, and lets the cursor follow receipts.

    cursor ─▶ read ─▶ judge ─▶ send ─▶ receipt ─▶ cursor

What is in flight is what the channel has pending, and is counted nowhere else. The cursor stands
before the oldest of it; when the pipeline fails, all of it is dropped and read again from there.
The remote cluster recognizes entries that it has by their positions, and stores none twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count
from random import Random

from geminga._channels.producer_channel import ProducerChannelOptions
from geminga.errors import ClientError, TopicNotFound
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.policies.dispatch import UNLIMITED, DispatchLimit
from geminga_broker.replication.channel import Outstanding, ReplicationChannel
from geminga_broker.replication.config import ReplicationConfig
from geminga_broker.replication.errors import PartitionsDiffer, ReplicationStalled
from geminga_broker.replication.messages import Verdict, judge
from geminga_broker.replication.remote_clusters import RemoteClusters
from geminga_broker.replication.remote_schemas import RemoteSchemas
from geminga_broker.replication.remote_topics import RemoteTopics
from geminga_broker.schemas.registry import SchemaRegistry
from geminga_broker.subscriptions.dispatch.rate_limiter import RateLimiter
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import MessageIdData
from geminga_protocol.pulsar.messages.replication import (
    replicated_front,
    replicator_producer,
    stored_metadata,
)
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.backoff import Backoff
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_server.metrics import Meter

log = logging.getLogger(__name__)

# Entries that are read and sent before other tasks get a turn.
RUN_ENTRIES_MAX = 500
# How long the remote broker may take to confirm that the producer is closed: a topic that moves to
# another broker waits no longer.
CLOSE_TIMEOUT_S = 1.0


#     CONNECTING ──attached──▶ RUNNING ──an error──▶ WAITING ──pause over──▶ CONNECTING
#          └────────────────an error──────────────────▲         each ──closed──▶ STOPPED
class ReplicatorState(Enum):
    """What a replicator is doing."""

    CONNECTING = "connecting"
    RUNNING = "running"
    # It failed, and waits before it tries again.
    WAITING = "waiting"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What is replicated where: ``topic``, from cluster ``source`` to cluster ``target``."""

    topic: TopicName
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationServices:
    """What the replicators of a broker share."""

    remotes: RemoteClusters
    clock: Clock
    random: Random
    config: ReplicationConfig
    # How many partitions a topic has in this cluster; 0 for one that is not partitioned.
    partitions_of: Callable[[TopicName], Awaitable[int]]
    remote_topics: RemoteTopics


class Replicator(Service):
    """Replicates ``managed_ledger`` beyond ``cursor``, as long as it is entered.

    Its owner calls ``wake`` when there is something new to read or the cursor was moved.
    """

    def __init__(
        self,
        route: Route,
        managed_ledger: ManagedLedger,
        cursor: Cursor,
        schemas: SchemaRegistry,
        services: ReplicationServices,
    ) -> None:
        super().__init__()
        self.route = route
        # The name of the producer by which the other cluster replicates to this one.
        self.opposite = replicator_producer(route.target, route.source)
        self.cursor = cursor
        self.state = ReplicatorState.CONNECTING
        # Messages older than this are not replicated; 0 for no limit. Set by the owner.
        self.ttl_s = 0
        # How often the remote cluster confirmed nothing for the stall timeout.
        self.stalls = 0
        # The error of the last attempt, and the one that was logged. The same error is logged again
        # only after something was replicated.
        self._failure = ""
        self._logged_failure = ""
        # After a refusal one entry is sent alone. Apache Pulsar's brokers store entries behind one
        # that they refuse, and would store them again with each attempt. Set when a channel ends
        # that was refused something, and unset with the next receipt.
        self._is_sending_singly = False
        self._limiter: RateLimiter | None = None
        # Since the replicator was made.
        self.messages_out = self.bytes_out = self.expired = 0
        self.meter = Meter(None, 0, 0, 0)
        self._log = managed_ledger
        self._services = services
        self._schemas = RemoteSchemas(route.topic, route.target, schemas)
        self._channel: ReplicationChannel | None = None
        # The newest entry that has no receipt yet; entries passed over behind it wait for it. None
        # if all that was sent has its receipt. Then an entry that is passed over moves the cursor
        # at once.
        self._newest: Outstanding | None = None
        #     log:  ... ──┬──────────────┬─────────────▶
        #              cursor      _position             in between: sent, without a receipt
        #
        # The last entry that was sent or passed over.
        self._position = cursor.mark_delete
        # Sequence ids: they only order what this replicator sends. They begin at 0 with each
        # replicator; the remote broker judges by positions, where it knows them.
        self._numbers = count()
        # Set when something may have become possible: a read, a send, or an end.
        self._woken = asyncio.Event()
        self._running: asyncio.Task[object] | None = None

    async def _open_parts(self) -> None:
        name = f"replicate {self.route.topic} to {self.route.target}"
        self._running = self.spawn_lasting(self._run, name=name)

    async def _close_parts(self) -> None:
        self.limit(UNLIMITED)
        self.state = ReplicatorState.STOPPED

    def limit(self, limit: DispatchLimit) -> None:
        """Keep to this dispatch rate from now on."""
        # A new limiter begins with all its tokens, so the old one is kept where the limit is the
        # same.
        before, self._limiter = self._limiter, None
        if before is not None:
            if before.limit == limit:
                self._limiter = before
                return
            before.close()
        if not limit.is_unlimited:
            self._limiter = RateLimiter(limit, self._services.clock)

    def stop(self) -> None:
        """Send nothing more: another broker may own the topic."""
        if self._running is not None:
            self._running.cancel()

    def wake(self) -> None:
        """Check whether there is something to read, or room to send it."""
        # Only an event: the topic calls this for every run of entries that is durable.
        self._woken.set()

    @property
    def is_connected(self) -> bool:
        """Whether a broker of the remote cluster takes messages."""
        return self._channel is not None and self._channel.is_connected

    @property
    def pending(self) -> int:
        """How many entries are in flight: sent, and without a receipt."""
        return 0 if self._channel is None else len(self._channel.pending.sends)

    @property
    def reason(self) -> str:
        """Why nothing moves now; empty while messages move, or all have."""
        # In the order in which ``_send_all`` meets them.
        if self.state is not ReplicatorState.RUNNING:
            return self._failure
        if not self.is_connected:
            return f"the connection to {self.route.target} is lost"
        if self.pending >= self._services.config.pending_messages_max:
            return f"{self.pending} entries wait for their receipts"
        if self._limiter is not None and self._limiter.waiting:
            return "its dispatch rate lets nothing pass now"
        return ""

    @property
    def delay_s(self) -> int:
        """For how many seconds the oldest entry in flight has waited for its receipt."""
        oldest = None if self._channel is None else self._channel.oldest
        return 0 if oldest is None else int(self._services.clock.monotonic() - oldest.sent_s)

    @property
    def reads_from(self) -> Position:
        """The entry that is read next."""
        return self._log.chain.next_after(self._position)

    # The pipeline

    async def _run(self) -> None:
        """Connect and send until that fails, and begin again after a pause."""
        # Never gives up: what cannot be replicated now may be when an operator has changed a
        # schema, the record of the cluster, or the topic there.
        config = self._services.config
        backoff = Backoff(config.retry_first_s, config.retry_limit_s, self._services.random)
        while True:
            before = self.cursor.mark_delete
            try:
                await self._connect_and_send()
            except GemingaError as error:
                self._failed(error)
            # The pauses grow only while nothing is replicated in between.
            if self.cursor.mark_delete != before:
                backoff.reset()
            await asyncio.sleep(backoff.next_s())

    def _failed(self, error: GemingaError) -> None:
        self.stalls += isinstance(error, ReplicationStalled)
        # The same error at each attempt would fill the log, for every topic of a cluster that is
        # down.
        if str(error) != self._logged_failure:
            route = self.route
            log.warning(
                "replication interrupted",
                extra={"topic": str(route.topic), "cluster": route.target, "why": str(error)},
            )
        self.state, self._failure = ReplicatorState.WAITING, str(error)
        self._logged_failure = self._failure

    async def _connect_and_send(self) -> None:
        self.state = ReplicatorState.CONNECTING
        channels = await self._services.remotes.channels(self.route.target)
        route, config = self.route, self._services.config
        options = ProducerChannelOptions(
            name=replicator_producer(route.source, route.target),
            send_timeout_s=None,
            pending_messages_max=config.pending_messages_max,
            close_timeout_s=CLOSE_TIMEOUT_S,
            # Messages stay as they are; a topic that requires encryption checks each of them.
            is_encrypted=True,
        )
        # The remote topic needs as many partitions as the one here. Where the whole partitioned
        # topic is missing there, it is created: sending would create this one partition only.
        whole, remote_topics = route.topic.base, self._services.remote_topics
        # Asked anew with each connection: partitions may have been added on either side.
        here = await self._services.partitions_of(whole)
        try:
            there = await channels.partitions(whole, creates=False)
        except TopicNotFound:
            there = 0  # a topic that is not partitioned is created by its first message
        if here and not there and remote_topics.is_enabled:
            await remote_topics.create(whole, here, route.target)
        elif here != there:
            raise PartitionsDiffer(str(whole), here, route.target, there)
        channel = ReplicationChannel(channels, route.topic, options)
        # Before it is opened: a receipt may come as soon as something was sent.
        channel.on_settled, channel.on_room = self._settled, self.wake
        channel.on_end = lambda _: self.wake()
        self._channel = channel
        self._schemas.forget()  # the name may stand for another cluster than before
        try:
            await channel.open()
            self.state, self._failure = ReplicatorState.RUNNING, ""
            await self._send_all(channel)
        finally:
            # First, so that no receipt moves the cursor past what failed. What was in flight is
            # read again from the cursor, in the same order. The remote broker recognizes what it
            # has stored.
            self._channel = self._newest = None
            self._position = self.cursor.mark_delete
            self._is_sending_singly |= channel.was_refused
            await channel.close()

    async def _send_all(self, channel: ReplicationChannel) -> None:
        """Send all entries, and those that are published, until the channel ends. Raises why."""
        self._position = self.cursor.mark_delete
        # Room that the channel must have before the next entry is read again, in bytes.
        needed = 0
        while True:
            # Before anything is checked: what happens from here on wakes the wait below. A ``wake``
            # between the check and the wait would be lost otherwise.
            self._woken.clear()
            channel.check_open()
            # How long the oldest entry in flight may still wait for its receipt. None while nothing
            # is in flight: then only ``wake`` ends the wait.
            left_s: float | None = None
            if channel.oldest is not None:
                limit_s = self._services.config.stall_timeout_s
                left_s = channel.oldest.sent_s + limit_s - self._services.clock.monotonic()
                if left_s <= 0:
                    raise ReplicationStalled(self.route.target, limit_s)
            # The cursor may have been moved forward from outside (skip, reset, expiry).
            self._position = max(self._position, self.cursor.mark_delete)
            if (
                self.reads_from > self._log.reader.readable_upto
                or not self._may_have_pending() - len(channel.pending.sends)
                or not channel.pending.has_room(needed)
                or not self._is_allowed()
            ):
                if left_s is None:
                    self._logged_failure = ""  # all is replicated
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._woken.wait()
            else:
                needed = await self._send_run(channel)
                await asyncio.sleep(0)

    def _may_have_pending(self) -> int:
        """How many entries may be in flight now."""
        return 1 if self._is_sending_singly else self._services.config.pending_messages_max

    def _is_allowed(self) -> bool:
        """Whether the dispatch rate allows another entry; otherwise ``wake`` is called when it
        does."""
        limiter = self._limiter
        if limiter is None or min(limiter.available()) > 0:
            return True
        limiter.wait(self.wake)
        return False

    async def _send_run(self, channel: ReplicationChannel) -> int:
        """Read and send some entries of one ledger. Returns the size of an entry that was read and
        for which the channel has no room, 0 for none: it is read again when there is room."""
        reader, position = self._log.reader, self.reads_from
        ledger_id, first = position
        # Each bound is above 0: ``_send_all`` has checked it in this turn.
        entries_max = min(
            reader.readable_end(ledger_id) - first,
            self._may_have_pending() - len(channel.pending.sends),
            RUN_ENTRIES_MAX,
        )
        for entry_id, payload, _ in await reader.read(position, entries_max):
            # What was read and is not sent stays in the log: it is read again from there, mostly
            # from the cache. So nothing is held here.
            if not channel.pending.has_room(len(payload)):
                return len(payload)
            if not self._is_allowed():
                return 0
            channel.check_open()
            version = self._take(channel, Position(ledger_id, entry_id), payload)
            if version is not None:
                # The rest of the run is read again: the cursor may be moved meanwhile. The version
                # is asked for between two entries, never for a run at once: mostly the first entry
                # of a connection asks.
                await self._schemas.learn(version, channel.store_schema)
                return 0
        return 0

    def _take(
        self, channel: ReplicationChannel, position: Position, payload: bytes
    ) -> bytes | None:
        """Send the entry at ``position``, or pass it over. Where the remote version of its schema
        is not known yet, do neither and return the version that it has here."""
        route, clock = self.route, self._services.clock
        try:
            metadata, body_start = stored_metadata(payload)
        except WireError as error:
            log.warning(
                "an entry is no message and is not replicated",
                extra={"topic": str(route.topic), "position": position, "error": str(error)},
            )
            self._passed(position)
            return None
        # Consumers of this cluster would not get it either. Judged by the clock of the moment in
        # which it is read, not by that of its sending.
        limit_ms = clock.wall_ms() - self.ttl_s * 1000 if self.ttl_s else 0
        verdict = judge(metadata, route.target, expires_before_ms=limit_ms)
        if verdict is not Verdict.SEND:
            self.expired += verdict is Verdict.EXPIRED
            self._passed(position)
            return None
        if metadata.schema_version not in self._schemas.versions:
            return metadata.schema_version
        messages = metadata.num_messages_in_batch
        is_chunk = metadata.HasField("chunk_id")
        # The body goes as it is stored, without a copy; only the metadata in front is rewritten.
        body = memoryview(payload)[body_start:]
        front = replicated_front(
            metadata,
            body,
            source=route.source,
            position=position,
            schema_version=self._schemas.versions[metadata.schema_version],
        )
        self._position = position
        # Before the entry is sent: its receipt compares with it.
        self._newest = Outstanding(position, clock.monotonic(), position)
        number = next(self._numbers)
        channel.send(
            body, number, self._newest, front=front, num_messages=messages, is_chunk=is_chunk
        )
        size_bytes = len(front) + len(body)
        if self._limiter is not None:
            self._limiter.take(messages, size_bytes)
        self.messages_out += messages
        self.bytes_out += size_bytes
        return None

    def _passed(self, position: Position) -> None:
        """Pass over the entry at ``position``: it is done once all before it is done."""
        self._position = position
        if self._newest is None:
            self._done(position)
        else:
            # Only the newest one: its receipt is the last of all before ``position``.
            self._newest.done_upto = position

    def _settled(
        self, sent: Outstanding, message_id: MessageIdData | None, error: ClientError | None
    ) -> None:
        """Called by the channel: the remote cluster has the entry or, with an ``error``, the
        channel has ended."""
        del message_id  # the cursor counts by positions of this cluster
        # A receipt that comes after a failure must not move the cursor past what failed.
        if error is None and self._channel is not None:
            self._logged_failure = ""
            if self._is_sending_singly:
                # The entry that was refused before is stored now: send as usual again.
                self._is_sending_singly = False
                self.wake()
            if sent is self._newest:
                self._newest = None
            self._done(sent.done_upto)

    def _done(self, position: Position) -> None:
        if self.cursor.acknowledged.acknowledge_upto(position):
            self.cursor.changed()
