"""The path of messages from a topic's producers to its log, and of receipts back to them.

Everything on this path is synchronous and works on runs of messages. What policies require of
messages is done by steps before the log: those of the gate, then deduplication. Each producer holds
the first step that is on, and gets another one when the policies change, so that a step that is off
costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from geminga_broker.errors import BrokerError, TopicFenced, TopicTerminated
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.writing.append_request import (
    AppendRequest,
    Publisher,
    publisher_of,
)
from geminga_broker.managed_ledger.writing.write_latency import WriteLatency
from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.subscriptions.non_persistent_subscription import NOWHERE
from geminga_broker.topics.decisions.sequence_ids import NO_SEQUENCE_ID
from geminga_broker.topics.part import OwningTopic, TopicPart, TopicServices
from geminga_broker.topics.producers.deduplication import Deduplication
from geminga_broker.topics.producers.internal_publisher import InternalPublisher
from geminga_broker.topics.producers.producer import Producer, Step
from geminga_broker.topics.producers.producers import Producers
from geminga_broker.topics.producers.publish_gate import PublishGate
from geminga_broker.topics.producers.replicator_producer import ReplicatorProducer, take_positions
from geminga_broker.topics.producers.topic_epoch import EPOCH_PROPERTY, TopicEpoch


# The way of a message. Steps in brackets are there only while a policy wants them; a replicator's
# run first gets source positions for its sequence ids.
#
#     session ─▶ Producer.append_all ─▶ [counting ─▶ encryption ─▶ delay] ─▶ [deduplication]
#                                               ``PublishGate``                    │
#     session ◀─ Producer.confirm ◀─ run_appended ◀─ bookies ◀─ log ◀─ append ◀────┘
class PublishPath(TopicPart):
    """The producers of a topic, and counters of what was published since the topic was loaded."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_durations",
        "_had_chunks",
        "_internal",
        "_log",
        "bytes_in",
        "deduplication",
        "epoch",
        "gate",
        "last_publish_ms",
        "messages_in",
        "producers",
        "write_latency",
    )

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        super().__init__(topic, services)
        name = str(topic.name)
        self.producers = Producers(name, self)
        # Durable messages and their bytes, and when the last ones became durable (Unix time).
        # Counted when they are durable: a message that is refused, or that was stored before, is
        # not in it.
        self.messages_in = 0
        self.bytes_in = 0
        self.last_publish_ms = 0
        # Made with the first message: a broker may hold very many idle topics.
        self.write_latency: WriteLatency | None = None
        # The steps of limits on publishing, of encryption, and of the limit on delays.
        self.gate = PublishGate(name, self.producers, services.clock, services.broker_rate)
        # Set by ``TopicDeduplication`` while deduplication is on, or is being turned on or off.
        self.deduplication: Deduplication | None = None
        # None for a topic that keeps no messages. Not ``managed_ledger`` of the topic, which
        # raises: this is asked with every run.
        self._log = topic.managed_ledger if topic.name.is_persistent else None
        self.epoch = TopicEpoch(self.producers, self._log)
        self._clock = services.clock
        # The broker's histogram of write latencies, shared by all topics.
        self._durations = services.publish_durations
        # Whether a producer that has left published a message in chunks.
        self._had_chunks = False
        # Made on first use: most topics have no messages of the broker's own.
        self._internal: InternalPublisher | None = None

    async def opened(self) -> None:
        """Continue with the epoch that an earlier owner has stored."""
        if self._log is not None:
            # Without a usable number, no producer was exclusive yet. Read before any client
            # connects, so that ``TopicEpoch.check`` refuses producers that were fenced while an
            # earlier owner had the topic.
            try:
                self.epoch.current = int(self._log.recorded.store.properties[EPOCH_PROPERTY])
            except (KeyError, ValueError):
                self.epoch.current = None

    # The steps

    def apply(self, policies: EffectivePolicies) -> None:
        """Compose the steps: all other parts follow ``policies`` by now."""
        delayed = policies.delayed
        # Topics without a log delay no message, and refuse none for its delay.
        is_limited = delayed.enabled and self._log is not None
        self.gate.apply(policies.publishing, delayed.delay_max_ms if is_limited else 0)
        # First the steps, then the disconnecting: whatever still arrives of a producer that is not
        # allowed any more meets the new steps.
        self.rearrange()
        self.gate.disconnect_disallowed()

    def rearrange(self) -> None:
        """Give each producer the first step that is on now."""
        for producer in self.producers.by_name.values():
            self._lead_in(producer)

    def _lead_in(self, producer: Producer) -> None:
        """Let ``producer`` publish through the steps that are on now."""
        # Composed from the log backwards. While deduplication is being turned on or off, messages
        # pass it by: it could not judge them.
        first: Step = self._append
        deduplication, policies = self.deduplication, self._topic.policies.publishing
        if deduplication is not None and deduplication.is_enabled and policies.deduplicates:
            deduplication.following = first
            first = deduplication.take
        # Rate limits, encryption and the limit on delays come first: what they refuse was not taken
        # by deduplication, and is new when it comes again.
        first = self.gate.step_before(first)
        if isinstance(producer, ReplicatorProducer) and producer.is_positioned:
            # All other steps, deduplication among them, see source positions as sequence ids.
            producer.append_all = partial(take_positions, first, producer)
            return
        # Steps take runs of one producer. Without steps, all producers have the same
        # ``append_all``, so that sessions may append messages of several producers as one run. A
        # client with many producers on one topic without steps has all messages of a read appended
        # with one call.
        is_straight = first == self._append
        producer.append_all = self.append if is_straight else partial(first, producer)

    def _append(self, producer: Producer, requests: Sequence[AppendRequest]) -> None:
        del producer
        self.append(requests)

    def append(self, requests: Sequence[AppendRequest]) -> None:
        """Append to the log, behind all steps; raises what the log raises.

        HOT: called for each run. Without a log, messages count as appended at once.
        """
        if self._log is None:
            entries = [(NOWHERE.entry_id, payload, count) for payload, count, _, _, _ in requests]
            self._topic.run_appended(NOWHERE.ledger_id, entries, requests)
            return
        # The log may refuse the run: only what it took is measured. What is appended is confirmed
        # in this order, which the queue of times relies on.
        self._log.append_all(requests)
        if self.write_latency is None:
            self.write_latency = WriteLatency(self._durations)
        self.write_latency.taken.append((self._clock.monotonic(), len(requests)))

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """Confirm the run to its publishers, and count it."""
        # Receipts before everything else: they are what the clients wait for.
        first = publisher_of(batch[0])
        for _, _, publisher, _, _ in batch:
            if publisher is not first:
                self._confirm_mixed(ledger_id, entries, batch)
                break
        else:  # one publisher, as in most runs: not sorting them saves 0.04 us a message
            messages, size_bytes = first.confirm(ledger_id, entries, batch)
            self.messages_in += messages
            self.bytes_in += size_bytes
        self.last_publish_ms = self._clock.wall_ms()
        if self.write_latency is not None:
            self.write_latency.confirmed(len(entries), self._clock.monotonic())
        if self.deduplication is not None:
            # Last, because it may take a snapshot, whose position is the end of this run.
            self.deduplication.stored(Position(ledger_id, entries[-1][0]), batch)

    def _confirm_mixed(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """Confirm a run of several publishers, to each its own entries in their order."""
        runs: defaultdict[Publisher, tuple[list[Entry], list[AppendRequest]]]
        runs = defaultdict(lambda: ([], []))
        # Publishers are few and entries many: one pass, then one call for each publisher. Each
        # publisher's entries stay in order. Receipts of different publishers need no order.
        for entry, request in zip(entries, batch, strict=True):
            of_entries, of_requests = runs[publisher_of(request)]
            of_entries.append(entry)
            of_requests.append(request)
        for publisher, run in runs.items():
            messages, size_bytes = publisher.confirm(ledger_id, *run)
            self.messages_in += messages
            self.bytes_in += size_bytes

    def log_fenced(self) -> None:
        """Drop the times of pending entries, which are never confirmed."""
        if self.write_latency is not None:
            self.write_latency.taken.clear()

    # Producers

    async def connect(self, producer: Producer) -> None:
        """Let ``producer`` publish, or wait to be the exclusive one. A producer of the same name
        whose client does not answer a ping makes room for it.

        Raises ``BrokerError``: ``ProducerBusy``, ``ProducerFenced``, ``TopicFenced`` and others.
        """
        # The stages: whatever has to be awaited; the checks, and entering the table, in one turn;
        # then the epoch, with the producer in its place. The ping first, because it may take
        # seconds.
        await self.producers.ask_namesake(producer)
        for part in self._topic.parts:
            await part.check_producer(producer)
        # No await from here to ``add``: what is checked still holds then.
        self._topic.check_open()
        if self._log is not None and self._log.termination.at is not None:
            raise TopicTerminated
        self.gate.check(producer)
        self.epoch.check(producer)
        # From here on ``disconnect`` of the topic finds it. Receipts cannot come before the client
        # is answered, as it sends nothing before that.
        self.producers.add(producer)
        # Asked when the client is answered, which is after pending messages have settled. A
        # function, for the number of this moment would be too old then.
        producer.last_sequence_id = partial(self._last_sequence_id, producer.name)
        if not producer.is_waiting:
            self._welcome(producer)
            await self.epoch.admit(producer, self.settle)

    def producer_promoted(self, producer: Producer) -> None:
        """``producer``, which waited, is the exclusive one now."""
        # In the background: its pending messages may have to be awaited, and an epoch be stored.
        self._welcome(producer)
        promoting = self.epoch.promote(producer, self.settle)
        # The next in the queue is let in by the one that leaves, in whose task no time may be
        # spent.
        self._topic.spawn(promoting, name=f"let in {producer.name}")

    def _welcome(self, producer: Producer) -> None:
        """Connect ``producer``, which was let in, with the steps and with deduplication."""
        self._lead_in(producer)
        producer.has_stamps = self._log is not None and self._log.stamps is not None
        if self.deduplication is not None:
            self.deduplication.connected(producer)

    def _last_sequence_id(self, producer_name: str) -> int:
        if self.deduplication is None:
            return NO_SEQUENCE_ID
        return self.deduplication.numbers.last_of(producer_name)

    async def settle(self, producer_name: str) -> None:
        """Return when no message published under that name is pending any more, so that the last
        sequence id of the name is that of a durable message. Raises ``TopicFenced``."""
        if self.deduplication is not None:
            await self.deduplication.settled(producer_name)
        self._topic.check_open()

    def producer_left(self, producer: Producer) -> None:
        """``producer``, which could publish, has left the topic."""
        # Its own counter goes with it. Called by ``Producers`` for each that was in ``by_name``,
        # before another may be promoted.
        self._had_chunks = self._had_chunks or producer.chunks_in > 0
        self._topic.last_used_s = self._clock.monotonic()
        # Its numbers are kept for a while, in case it reconnects.
        if self.deduplication is not None:
            self.deduplication.disconnected(producer)

    def disconnect(self) -> None:
        """Disconnect all producers; they look the topic up again."""
        self.refuse_all(TopicFenced(str(self._topic.name)))

    @property
    def internal(self) -> InternalPublisher:
        """The publisher of the broker's own messages, made on first use."""
        if self._internal is None:
            self._internal = InternalPublisher(self._topic, self.append)
        return self._internal

    def refuse_all(self, reason: BrokerError) -> None:
        """Disconnect all producers; those that wait to be exclusive are refused for ``reason``."""
        # Callers inside the broker wait for their messages as clients do. They are told at once;
        # messages of theirs that are pending may still be stored.
        if self._internal is not None:
            self._internal.fail_all(reason)
        # Without a connected producer none waits either. Most topics that are closed have none: a
        # broker may hand on 100,000 of them.
        if self.producers.by_name:
            self.producers.remove_all(reason)

    # Counting

    @property
    def has_chunks(self) -> bool:
        """Whether a message was published in chunks, since the topic was loaded."""
        return self._had_chunks or any(each.chunks_in for each in self.producers.by_name.values())

    def tick(self, now_s: float, period_s: float) -> None:
        """Compute the producers' rates and the write latencies."""
        for producer in self.producers.by_name.values():
            producer.meter.tick(
                now_s,
                producer.messages_in,
                producer.bytes_in,
                producer.chunks_in,
                period_s=period_s,
            )
        if self.write_latency is not None:
            self.write_latency.renew()

    def release(self) -> None:
        """Drop the gate's steps and the internal publisher, which refer to this part, and the
        deduplication, whose cursor refers to the topic."""
        # With a rate limit on, the gate, its step and this part refer to each other in a cycle.
        self.gate.release()
        self._internal = None
        self.deduplication = None
