"""A persistent topic: a log with producers at one end and subscriptions at the other.

Publishing appends to the log; when a run is durable, receipts go out and every subscription looks
whether it can dispatch. Everything on that path is synchronous and works on runs. What policies do
with messages before that is in ``intake``, how subscriptions come and go in ``subscribing``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from geminga_broker.counting.durations import Durations
from geminga_broker.counting.meter import Meter
from geminga_broker.counting.write_latency import WriteLatency
from geminga_broker.errors import TopicFenced, TopicTerminated
from geminga_broker.log.appender import Pending
from geminga_broker.log.cursor import Cursor
from geminga_broker.log.logs import Logs
from geminga_broker.log.positions import Entry, Position
from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.policies.inactivity import Inactivity
from geminga_broker.policies.publishing import PublishConfig
from geminga_broker.subscriptions.gate import Gate
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.backlog import Backlog
from geminga_broker.topics.compacting import Compacting
from geminga_broker.topics.consuming.subscribing import Subscribing
from geminga_broker.topics.producing.deduplication import CURSOR_NAME as DEDUPLICATION_CURSOR
from geminga_broker.topics.producing.intake import Intake
from geminga_broker.topics.producing.producers import Producer, Producers
from geminga_broker.topics.producing.publish_rate import PublishRate
from geminga_broker.topics.producing.topic_epoch import TopicEpoch
from geminga_broker.topics.rates import tick_topic
from geminga_broker.topics.readership import TopicReadership
from geminga_broker.topics.topic import SubscribeRequest
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_protocol.records.compacted_ledger import COMPACTION_CURSOR
from geminga_runtime.clock import Clock
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# Where upstream keeps the epoch, among the properties of the log.
EPOCH_PROPERTY = "pulsar.topic.epoch"


def _epoch_of(properties: Mapping[str, str]) -> int | None:
    try:
        return int(properties[EPOCH_PROPERTY])
    except (KeyError, ValueError):
        return None


class PersistentTopic(Service):
    """Topic ``name``, open while the service is. ``on_fenced`` is called when another broker has
    taken its log. How long publishing takes is added to ``publish_durations``. ``policies`` hold
    until others are applied."""

    def __init__(
        self,
        name: TopicName,
        logs: Logs,
        clock: Clock,
        *,
        create_with: Mapping[str, str] | None,
        on_fenced: Callable[[PersistentTopic], None],
        publish_durations: Durations,
        policies: EffectivePolicies,
        publishing: PublishConfig,
        broker_rate: PublishRate | None = None,
        broker_gate: Gate | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.producers = Producers(str(name), self)
        self.epoch = TopicEpoch(self.producers, self)
        self.managed_ledger = logs.log(name.managed_ledger_name, self, create_with=create_with)
        self.compacting = Compacting(name, logs, self.managed_ledger, clock, policies.compaction)
        self.subscribing = Subscribing(self, logs, clock, policies, broker_gate)
        self.backlog = Backlog(self.managed_ledger, self, clock)
        self.intake = Intake(self, logs, clock, publishing, broker_rate)
        self.messages_in = 0
        self.bytes_in = 0
        self.last_publish_ms = 0
        self.created_at_ms = clock.wall_ms()
        now_s = clock.monotonic()
        self.meter = Meter(now_s, 0, 0, 0, 0)
        # Entries written, sent to consumers, and of these read from bookies.
        self.entry_meter = Meter(now_s, 0, 0, 0)
        # When somebody was last seen using it, by the monotonic clock.
        self.last_used_s = now_s
        self.inactivity = policies.inactivity
        # None until something is published: there may be very many topics.
        self.write_latency: WriteLatency | None = None
        self._publish_durations = publish_durations
        self._logs = logs
        self._clock = clock
        self._on_fenced = on_fenced
        self._is_fenced = False
        self._is_open = False
        # Those who have gone again published in parts.
        self._had_chunks = False
        # When closing must be over, by the event loop's time; what is still open then is left to
        # the next owner to recover, as after a crash. None: it takes as long as it takes.
        self.close_by_s: float | None = None
        self.apply(policies)

    def apply(self, policies: EffectivePolicies) -> None:
        """From now on these hold: for the next ledgers, for what is trimmed, for producers."""
        self.managed_ledger.config = policies.log
        for cursor in self.cursors():
            cursor.config = policies.log
        delayed = policies.delayed
        self.intake.limit_delays(delayed.delay_max_ms if delayed.enabled else 0)
        self.subscribing.apply(policies)
        self.backlog.quotas = policies.quotas
        self.compacting.config = policies.compaction
        self.inactivity = policies.inactivity
        is_kept_otherwise = self.managed_ledger.retention != policies.retention
        self.managed_ledger.retention = policies.retention
        if is_kept_otherwise:
            self.managed_ledger.trim_soon()
        self.intake.apply(policies.publishing)
        self._catch_up()

    def _catch_up(self) -> None:
        """Once the topic is open: turn on and off in the background what is to change."""
        if self._is_open and self.intake.is_behind:
            self.spawn(self.intake.catch_up(), name=f"follow the policies of {self.name}")

    async def _open_parts(self) -> None:
        await self.managed_ledger.__aenter__()
        stored = self.managed_ledger
        self.epoch.current = _epoch_of(stored.properties.all)
        deduplication: Cursor | None = None
        for cursor in await self._logs.load_cursors(stored.name, stored.chain):
            if cursor.name == DEDUPLICATION_CURSOR:
                deduplication = cursor
            elif cursor.name == COMPACTION_CURSOR:
                await self.compacting.adopt(cursor)
            else:
                await self.subscribing.add(cursor)
        await self.intake.opened(deduplication)
        self._is_open = True
        self.managed_ledger.follow(TopicReadership(self))

    async def enter_cursor(self, cursor: Cursor) -> None:
        """Tie a cursor to the topic and open it."""
        cursor.on_lost = self.log_fenced
        cursor.on_ledger_left = self.managed_ledger.trim_soon
        cursor.config = self.managed_ledger.config
        await cursor.__aenter__()

    def cursors(self) -> list[Cursor]:
        """The cursors of all subscriptions, and compaction's."""
        found = [each.cursor for each in self.subscriptions.values()]
        return found + self.compacting.cursors()

    # Producing

    async def connect_producer(self, producer: Producer) -> None:
        """Let ``producer`` in; one of its name whose client is gone without a word makes room."""
        await self.producers.ask_namesake(producer)
        await self.backlog.check_producer()
        self.check_open()
        if self.managed_ledger.termination.at is not None:
            raise TopicTerminated
        self.intake.check(producer)
        self.epoch.check(producer)
        self.producers.add(producer)
        producer.last_sequence_id = partial(self.intake.last_sequence_id, producer.name)
        if not producer.is_waiting:
            self.intake.welcome(producer)
            await self.epoch.admit(producer)

    def producer_promoted(self, producer: Producer) -> None:
        """It is the turn of one that waits."""
        self.intake.welcome(producer)
        self.spawn(self.epoch.promote(producer), name=f"let in {producer.name}")

    async def settle(self, producer_name: str) -> None:
        """Return when nothing that was sent under this name is under way any more."""
        await self.intake.settled(producer_name)
        self.check_open()

    async def store_epoch(self, epoch: int) -> None:
        """Make a new epoch durable."""
        await self.managed_ledger.properties.set(EPOCH_PROPERTY, str(epoch))

    @property
    def has_chunks(self) -> bool:
        """Whether a message was published in parts, since the topic was loaded."""
        return self._had_chunks or any(each.chunks_in for each in self.producers)

    def producer_left(self, producer: Producer) -> None:
        """One that was let in is here no more."""
        self._had_chunks = self._had_chunks or producer.chunks_in > 0
        self.last_used_s = self._clock.monotonic()
        self.intake.left(producer)

    def sweep_deduplication(self) -> None:
        """Once in a while: keep what producers have sent, forget who is gone for long."""
        self.intake.sweep()
        self._catch_up()

    async def enforce_quotas(self) -> None:
        """Once in a while: keep the backlog within its quotas. Raises ``StorageUnavailable``."""
        if await self.backlog.reduce():
            self._disconnect_producers()  # when they come back, they are told why
        self._resume_consumers()

    def _resume_consumers(self) -> None:
        """Cursors may have been moved on: who held what they have passed has room for more."""
        for subscription in self.subscriptions.values():
            subscription.skip_acknowledged()
            subscription.entries_available()

    @property
    def publish_rates(self) -> tuple[float, float]:
        """Messages and bytes a second, in the last stats period."""
        return self.meter.rates[0], self.meter.rates[1]

    @property
    def publish_pauses(self) -> int:
        """How often somebody was not read for a while, since the topic was loaded."""
        return self.intake.pauses

    @property
    def is_fenced(self) -> bool:
        """Whether the topic takes nobody any more: another broker has its log, or it is ending."""
        return self._is_fenced

    def check_open(self) -> None:
        """Raise ``TopicFenced`` where the topic takes nobody any more."""
        if self._is_fenced:
            raise TopicFenced(str(self.name))

    def append(self, items: Sequence[Pending]) -> None:
        """Hand messages to the log; raises what it raises."""
        self.managed_ledger.append_all(items)
        if self.write_latency is None:
            self.write_latency = WriteLatency(self._publish_durations)
        self.write_latency.taken(len(items), self._clock.monotonic())

    def run_appended(self, ledger_id: int, entries: list[Entry], batch: list[Pending]) -> None:
        """A run is durable: receipts, then dispatch."""
        messages = size_bytes = 0
        by_publisher: defaultdict[object, list[tuple[Entry, Pending]]] = defaultdict(list)
        for stored in zip(entries, batch, strict=True):
            by_publisher[stored[1][2]].append(stored)
        for publisher, run in by_publisher.items():
            run_messages, run_bytes = cast(Producer, publisher).confirm(ledger_id, run)
            messages += run_messages
            size_bytes += run_bytes
        self.messages_in += messages
        self.bytes_in += size_bytes
        self.last_publish_ms = self._clock.wall_ms()
        if self.intake.deduplication is not None:
            self.intake.stored(ledger_id, entries[-1][0], batch)
        if self.write_latency is not None:
            self.write_latency.confirmed(len(entries), self._clock.monotonic())
        for subscription in self.subscriptions.values():
            subscription.entries_available()

    def log_fenced(self) -> None:
        """Another broker has the log."""
        self._is_fenced = True
        if self.write_latency is not None:
            self.write_latency.given_up()
        self._on_fenced(self)

    # Subscribing

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        """By name."""
        return self.subscribing.subscriptions

    async def subscribe(self, request: SubscribeRequest) -> Subscription:
        """The subscription, new or known, ready for one more consumer."""
        return await self.subscribing.subscribe(request)

    async def create_subscription(self, name: str, *, from_earliest: bool = False) -> bool:
        """Make a durable subscription without a consumer; whether it was made, not known before."""
        return await self.subscribing.create(name, from_earliest=from_earliest)

    # Ending

    @property
    def connected_count(self) -> int:
        """How many producers and consumers are connected."""
        consumers = sum(len(each.consumers) for each in self.subscriptions.values())
        return len(self.producers) + consumers

    def is_used(self, rule: Inactivity) -> bool:
        """Whether anybody needs the topic, in the sense of ``rule``."""
        return bool(self.connected_count) or self.subscribing.is_used(
            with_backlog=rule.takes_subscriptions
        )

    @property
    def retention_ms(self) -> int:
        """How long what nobody needs is kept; -1: for ever."""
        return self.managed_ledger.retention.time_ms

    def disconnect_all(self) -> None:
        """Let all clients go: they look the topic up again."""
        self._is_fenced = True
        self._disconnect_producers()
        self.subscribing.disconnect_all()

    def _disconnect_producers(self) -> None:
        if self.producers:  # as very many topics have none
            self.producers.remove_all(TopicFenced(str(self.name)))

    async def _close(self) -> None:
        self.disconnect_all()
        try:
            async with asyncio.timeout_at(self.close_by_s):
                await self._close_cursors()
        except TimeoutError:
            log.warning("cursors left open", extra={"topic": str(self.name)})
        try:
            async with asyncio.timeout_at(self.close_by_s):
                await super()._close()
        except TimeoutError:
            log.warning("topic left open", extra={"topic": str(self.name)})

    async def _close_parts(self) -> None:
        await self.managed_ledger.__aexit__(None, None, None)
        # Only now: until the log is closed, it is trimmed by what these have still to read.
        self.subscribing.let_go()
        self.intake.let_go()

    async def _close_cursors(self) -> None:
        await self.compacting.close()
        await asyncio.gather(self.subscribing.close(), self.intake.close())

    async def terminate(self) -> Position:
        """Take no more messages, for ever; the last one's position. Consumers may read on.

        Producers are let go when all that was taken is confirmed; when they come back, they are
        told. Raises ``StorageUnavailable``.
        """
        try:
            position = await self.managed_ledger.termination.terminate()
        finally:
            self.producers.remove_all(TopicTerminated())
        for subscription in self.subscriptions.values():
            subscription.tell_end()
        return position

    async def delete(self) -> None:
        """Let all clients go and delete all that is stored; then close the service."""
        self.disconnect_all()
        await self.subscribing.delete_stored()
        await self.intake.delete()
        await self.compacting.delete()
        await self.managed_ledger.delete()

    async def truncate(self) -> None:
        """Delete all messages there are now, whatever keeps them, those that are compacted too.

        Raises ``TopicFenced``, ``StorageUnavailable``.
        """
        await self.compacting.forget()
        try:
            await self.managed_ledger.truncate()
        finally:
            self._resume_consumers()

    # Counting

    def tick(self, now_s: float) -> None:
        """Once a stats period: the topic's rates and those of all who are connected."""
        period_s = self.meter.elapsed_s(now_s)
        tick_topic(self, now_s)
        subscriptions = self.subscriptions.values()
        self.entry_meter.tick(
            now_s,
            self.managed_ledger.entries_added,
            sum(each.entries_sent for each in subscriptions),
            sum(each.entries_fetched for each in subscriptions),
        )
        for each in subscriptions:
            each.tick(now_s, period_s)
        if self.write_latency is not None:
            self.write_latency.renew()
        self.compacting.report.renew()
