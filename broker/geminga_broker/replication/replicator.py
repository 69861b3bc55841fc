"""Moves one topic to one remote cluster: reads its log, sends, and lets the cursor follow receipts.

    cursor ─▶ read ─▶ judge ─▶ send ─▶ receipt ─▶ cursor

What is on its way is what the channel has pending, and is counted nowhere else. The cursor stands
before the oldest of it; when the pipeline fails, all of it is dropped and read again from there.
The remote cluster knows the positions that it has, so that nothing is stored there twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count
from random import Random

from geminga._channels.channel import Channels
from geminga._channels.producer_channel import ProducerChannelOptions
from geminga.errors import ClientError, TopicNotFound
from geminga_broker.managed_ledger.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.policies.dispatching import UNLIMITED, DispatchLimit
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
from geminga_protocol.pulsar.replication import (
    replicated_front,
    replicator_producer,
    stored_metadata,
)
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.backoff import Backoff
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_server.metrics import Meter

log = logging.getLogger(__name__)

# Entries looked at before others get a turn.
RUN_ENTRIES_MAX = 500
# For the remote broker to confirm that it is left: a topic that moves waits for it no longer.
CLOSE_TIMEOUT_S = 1.0


class ReplicatorState(Enum):
    """What a replicator is doing."""

    CONNECTING = "connecting"
    RUNNING = "running"
    WAITING = "waiting"
    """To try again; its reason says after what."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """From which topic and cluster to which cluster."""

    topic: TopicName
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What replicators of a broker share."""

    remotes: RemoteClusters
    clock: Clock
    random: Random
    config: ReplicationConfig
    partitions_of: Callable[[TopicName], Awaitable[int]]
    """How many partitions a topic has here; 0 for none."""
    remote_topics: RemoteTopics


class Replicator(Service):
    """Replicates ``managed_ledger`` beyond ``cursor``, as long as it is entered.

    Its owner sets ``ttl_s``, after which messages are passed over (0: never), and calls ``wake``
    when there is something new to read or the cursor was moved.
    """

    def __init__(
        self,
        route: Route,
        managed_ledger: ManagedLedger,
        cursor: Cursor,
        schemas: SchemaRegistry,
        around: Surroundings,
    ) -> None:
        super().__init__()
        self.route = route
        self.cursor = cursor
        self.state = ReplicatorState.CONNECTING
        self.stalls = 0
        self._failure = ""
        # Told in the log, and not again before something has gone well.
        self._told = ""
        # After a refusal one entry goes alone: a broker that refuses it again, and stores what came
        # behind it (Apache Pulsar's does), would store that again with each attempt.
        self._goes_alone = False
        self.ttl_s = 0
        self._limiter: RateLimiter | None = None
        self.messages_out = self.bytes_out = self.expired = 0
        self.meter = Meter(None, 0, 0, 0)
        self._log = managed_ledger
        self._around = around
        self._schemas = RemoteSchemas(route.topic, route.target, schemas)
        self._channel: ReplicationChannel | None = None
        # The newest entry that has no receipt yet; what is passed over behind it waits for it.
        self._newest: Outstanding | None = None
        self._position = cursor.mark_delete
        self._numbers = count()
        self._woken = asyncio.Event()
        self._running: asyncio.Task[object] | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.callback(self._stopped)
        name = f"replicate {self.route.topic} to {self.route.target}"
        self._running = self.spawn_lasting(self._run, name=name)

    def _stopped(self) -> None:
        self.limit(UNLIMITED)
        self.state = ReplicatorState.STOPPED

    def limit(self, limit: DispatchLimit) -> None:
        """Send so fast, from now on."""
        before, self._limiter = self._limiter, None
        if before is not None:
            if before.limit == limit:
                self._limiter = before
                return
            before.close()
        if not limit.is_unlimited:
            self._limiter = RateLimiter(limit, self._around.clock)

    def stop(self) -> None:
        """Send nothing more: another broker may have the topic."""
        if self._running is not None:
            self._running.cancel()

    def wake(self) -> None:
        """Look again whether there is something to read."""
        self._woken.set()

    @property
    def opposite(self) -> str:
        """The name of the producer by which the other cluster replicates to this one."""
        return replicator_producer(self.route.target, self.route.source)

    @property
    def is_connected(self) -> bool:
        """Whether a broker of the remote cluster takes messages."""
        return self._channel is not None and self._channel.is_connected

    @property
    def pending(self) -> int:
        """How many entries have no receipt yet."""
        return 0 if self._channel is None else self._channel.pending_sends

    @property
    def reason(self) -> str:
        """Why nothing moves now; empty while messages move, or all have."""
        if self.state is not ReplicatorState.RUNNING:
            return self._failure
        if not self.is_connected:
            return f"the connection to {self.route.target} is lost"
        if self.pending >= self._around.config.pending_messages_max:
            return f"{self.pending} entries wait for their receipts"
        if self._limiter is not None and self._limiter.is_crowded:
            return "its dispatch rate lets nothing pass now"
        return ""

    @property
    def delay_s(self) -> int:
        """How long the oldest entry waits for its receipt."""
        oldest = None if self._channel is None else self._channel.oldest
        return 0 if oldest is None else int(self._around.clock.monotonic() - oldest.sent_s)

    @property
    def reads_from(self) -> Position:
        """The entry that is read next."""
        return self._log.chain.next_after(self._position)

    # The pipeline, again and again

    async def _run(self) -> None:
        config = self._around.config
        backoff = Backoff(config.retry_first_s, config.retry_limit_s, self._around.random)
        while True:
            before = self.cursor.mark_delete
            try:
                await self._connect_and_send()
            except GemingaError as error:
                self._failed(error)
            if self.cursor.mark_delete != before:
                backoff.reset()
            await asyncio.sleep(backoff.next_s())

    def _failed(self, error: GemingaError) -> None:
        self.stalls += isinstance(error, ReplicationStalled)
        if str(error) != self._told:
            route = self.route
            log.warning(
                "replication interrupted",
                extra={"topic": str(route.topic), "cluster": route.target, "why": str(error)},
            )
        self.state, self._failure = ReplicatorState.WAITING, str(error)
        self._told = self._failure

    async def _connect_and_send(self) -> None:
        self.state = ReplicatorState.CONNECTING
        channels = await self._around.remotes.channels(self.route.target)
        route, config = self.route, self._around.config
        options = ProducerChannelOptions(
            name=replicator_producer(route.source, route.target),
            send_timeout_s=None,
            pending_messages_max=config.pending_messages_max,
            close_timeout_s=CLOSE_TIMEOUT_S,
            is_encrypted=True,  # what is, stays so: a topic that demands it judges each message
        )
        await self._check_partitions(channels)
        channel = ReplicationChannel(channels, route.topic, options)
        channel.on_settled, channel.on_room = self._settled, self.wake
        channel.on_end = lambda _: self.wake()
        self._channel = channel
        self._schemas.forget()  # the cluster may be another one than before
        try:
            await channel.open()
            self.state, self._failure = ReplicatorState.RUNNING, ""
            await self._send_all(channel)
        finally:
            # First, so that no receipt moves the cursor past what failed.
            self._channel = self._newest = None
            self._position = self.cursor.mark_delete
            self._goes_alone |= channel.was_refused
            await channel.close()

    async def _check_partitions(self, channels: Channels) -> None:
        """Have the partitioned topic made where the remote cluster has none, as it is here.

        Raises ``PartitionsDiffer`` where it is another one there, ``RemoteRefused``.
        """
        whole, remote_topics = self.route.topic.base, self._around.remote_topics
        here = await self._around.partitions_of(whole)
        try:
            there = await channels.partitions(whole, creates=False)
        except TopicNotFound:
            there = 0  # and is made by the first message, if it has no partitions here
        if here and not there and remote_topics.is_enabled:
            await remote_topics.create(whole, here, self.route.target)
        elif here != there:
            raise PartitionsDiffer(str(whole), here, self.route.target, there)

    async def _send_all(self, channel: ReplicationChannel) -> None:
        """Send what there is, and what comes, until the channel is over. Raises why."""
        self._position = self.cursor.mark_delete
        needed = 0
        while True:
            self._woken.clear()
            channel.check_open()
            left_s = self._before_stall_s(channel)
            self._position = max(self._position, self.cursor.mark_delete)
            if (
                self.reads_from > self._log.reader.readable_upto
                or not self._may_have_pending() - channel.pending_sends
                or not channel.has_room(needed)
                or not self._is_allowed()
            ):
                if left_s is None:
                    self._told = ""  # all has been sent
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._woken.wait()
            else:
                needed = await self._send_run(channel)
                await asyncio.sleep(0)

    def _may_have_pending(self) -> int:
        """How many entries may be without a receipt now."""
        return 1 if self._goes_alone else self._around.config.pending_messages_max

    def _is_allowed(self) -> bool:
        """Whether the dispatch rate allows another entry; else it wakes this when it does."""
        limiter = self._limiter
        if limiter is None or min(limiter.available()) > 0:
            return True
        limiter.wait(self.wake)
        return False

    def _before_stall_s(self, channel: ReplicationChannel) -> float | None:
        """How long the oldest entry without a receipt may still wait for it; None where there is
        none. Raises ``ReplicationStalled``."""
        oldest = channel.oldest
        if oldest is None:
            return None
        limit_s = self._around.config.stall_timeout_s
        left_s = oldest.sent_s + limit_s - self._around.clock.monotonic()
        if left_s <= 0:
            raise ReplicationStalled(self.route.target, limit_s)
        return left_s

    async def _send_run(self, channel: ReplicationChannel) -> int:
        """Read and send some entries, of one ledger. Returns how many bytes the next one needs that
        was read and found no room, 0 for none: it is not read again before there is."""
        reader, position = self._log.reader, self.reads_from
        ledger_id, first = position
        entries_max = min(
            reader.readable_end(ledger_id) - first,
            self._may_have_pending() - channel.pending_sends,
            RUN_ENTRIES_MAX,
        )
        for entry_id, payload, _ in await reader.read(position, entries_max):
            if not channel.has_room(len(payload)):
                return len(payload)
            if not self._is_allowed():
                return 0
            channel.check_open()
            version = self._take(channel, Position(ledger_id, entry_id), payload)
            if version is not None:
                # Much may happen meanwhile: what was read is read again.
                await self._schemas.learn(version, channel.store_schema)
                return 0
        return 0

    def _take(
        self, channel: ReplicationChannel, position: Position, payload: bytes
    ) -> bytes | None:
        """Send the entry at ``position``, or pass it over. Returns the version of its schema, if it
        is not known yet which one that is in the remote cluster: then it does neither."""
        route, clock = self.route, self._around.clock
        try:
            metadata, body_start = stored_metadata(payload)
        except WireError as error:
            log.warning(
                "an entry is no message and is not replicated",
                extra={"topic": str(route.topic), "position": position, "error": str(error)},
            )
            self._passed(position)
            return None
        limit_ms = clock.wall_ms() - self.ttl_s * 1000 if self.ttl_s else 0
        verdict = judge(metadata, route.target, expires_before_ms=limit_ms)
        if verdict is not Verdict.SEND:
            self.expired += verdict is Verdict.EXPIRED
            self._passed(position)
            return None
        if not self._schemas.knows(metadata.schema_version):
            return metadata.schema_version
        messages = metadata.num_messages_in_batch
        is_chunk = metadata.HasField("chunk_id")
        body = memoryview(payload)[body_start:]
        front = replicated_front(
            metadata,
            body,
            source=route.source,
            position=position,
            schema_version=self._schemas.of(metadata.schema_version),
        )
        self._position = position
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
        """The entry at ``position`` is done once all before it is."""
        self._position = position
        if self._newest is None:
            self._done(position)
        else:
            self._newest.done_upto = position

    def _settled(
        self, sent: Outstanding, message_id: MessageIdData | None, error: ClientError | None
    ) -> None:
        """The remote cluster has the entry; with an ``error`` the channel is over."""
        del message_id
        if error is None and self._channel is not None:
            self._told = ""
            if self._goes_alone:
                self._goes_alone = False
                self.wake()
            if sent is self._newest:
                self._newest = None
            self._done(sent.done_upto)

    def _done(self, position: Position) -> None:
        if self.cursor.acknowledged.acknowledge_upto(position):
            self.cursor.changed()
