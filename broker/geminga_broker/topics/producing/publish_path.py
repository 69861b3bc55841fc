"""The way of messages into a topic: its producers, and the steps from them to the log and back.

Publishing appends to the log; when a run is durable, receipts go out. Everything on that path is
synchronous and works on runs. What the policies ask of messages stands as one more step before the
log; producers are handed the first step. When a policy changes they are handed another one: a step
that is off costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from geminga_broker.counting.write_latency import WriteLatency
from geminga_broker.errors import BrokerError, TopicFenced, TopicTerminated
from geminga_broker.log.append_request import AppendRequest, Publisher, publisher_of
from geminga_broker.log.positions import Entry
from geminga_broker.subscriptions.volatile_subscription import NOWHERE
from geminga_broker.topics.part import OwningTopic, Step, TopicPart, TopicServices
from geminga_broker.topics.policies import TopicPolicies
from geminga_broker.topics.producing.internal_publisher import InternalPublisher
from geminga_broker.topics.producing.producers import Producer, Producers
from geminga_broker.topics.producing.publish_gate import PublishGate
from geminga_broker.topics.producing.sequence_ids import NO_SEQUENCE_ID
from geminga_broker.topics.producing.topic_epoch import TopicEpoch

# Where upstream keeps the epoch, among the properties of the log.
EPOCH_PROPERTY = "pulsar.topic.epoch"


def _epoch_of(properties: Mapping[str, str]) -> int | None:
    try:
        return int(properties[EPOCH_PROPERTY])
    except (KeyError, ValueError):
        return None


class PublishPath(TopicPart):
    """Who publishes to a topic and what was published, since the topic was loaded."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_durations",
        "_gate",
        "_had_chunks",
        "_internal",
        "_log",
        "bytes_in",
        "epoch",
        "last_publish_ms",
        "messages_in",
        "producers",
        "write_latency",
    )

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        super().__init__(topic, services)
        name = str(topic.name)
        self.producers = Producers(name, self)
        self.epoch = TopicEpoch(self.producers, self)
        self.messages_in = 0
        self.bytes_in = 0
        self.last_publish_ms = 0
        # None until something is published: there may be very many topics.
        self.write_latency: WriteLatency | None = None
        self._gate = PublishGate(name, self.producers, services.clock, services.broker_rate)
        self._log = topic.managed_ledger if topic.keeps_messages else None
        self._clock = services.clock
        self._durations = services.publish_durations
        # Those who have gone again published in parts.
        self._had_chunks = False
        self._internal: InternalPublisher | None = None

    async def opened(self) -> None:
        """Go on with the epoch of the owner before."""
        if self._log is not None:
            self.epoch.current = _epoch_of(self._log.properties.all)

    # The steps

    def apply(self, policies: TopicPolicies) -> None:
        """From now on these hold: the other parts know them already."""
        self._gate.apply(policies.publishing)
        self.rearrange()
        self._gate.let_go()

    def before(self, take: Step) -> Step:
        """The limits on all topics are what messages meet first."""
        return self._gate.before(take)

    def rearrange(self) -> None:
        """Hand the first step that is on now to the producers."""
        for producer in self.producers:
            self._lead_in(producer)

    def _lead_in(self, producer: Producer) -> None:
        """Steps want to know whose messages they take; the log does not."""
        first: Step = self._append
        for part in reversed(self._topic.parts):
            first = part.before(first)
        is_straight = first == self._append
        producer.append_all = self.append if is_straight else partial(first, producer)

    def _append(self, producer: Producer, requests: Sequence[AppendRequest]) -> None:
        del producer
        self.append(requests)

    def append(self, requests: Sequence[AppendRequest]) -> None:
        """Hand messages to the log, past all steps; raises what it raises. Where there is no log,
        they are all that they will ever be."""
        if self._log is None:
            entries = [(NOWHERE.entry_id, payload, count) for payload, count, _, _, _ in requests]
            self._topic.run_appended(NOWHERE.ledger_id, entries, requests)
            return
        self._log.append_all(requests)
        if self.write_latency is None:
            self.write_latency = WriteLatency(self._durations)
        self.write_latency.taken(len(requests), self._clock.monotonic())

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """A run is durable: tell its publishers."""
        first = publisher_of(batch[0])
        for _, _, publisher, _, _ in batch:
            if publisher is not first:
                self._confirm_mixed(ledger_id, entries, batch)
                break
        else:  # as most runs are, which need not be taken apart then: 0.05 us less for each message
            self._count(*first.confirm(ledger_id, entries, batch))
        self.last_publish_ms = self._clock.wall_ms()
        if self.write_latency is not None:
            self.write_latency.confirmed(len(entries), self._clock.monotonic())

    def _confirm_mixed(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        runs: defaultdict[Publisher, tuple[list[Entry], list[AppendRequest]]]
        runs = defaultdict(lambda: ([], []))
        for entry, request in zip(entries, batch, strict=True):
            _, _, publisher, _, _ = request
            of_entries, of_requests = runs[publisher]
            of_entries.append(entry)
            of_requests.append(request)
        for publisher, run in runs.items():
            self._count(*publisher.confirm(ledger_id, *run))

    def _count(self, messages: int, size_bytes: int) -> None:
        self.messages_in += messages
        self.bytes_in += size_bytes

    def log_fenced(self) -> None:
        """What is on its way will never be confirmed: it counts for no latency."""
        if self.write_latency is not None:
            self.write_latency.given_up()

    # Producers

    async def connect(self, producer: Producer) -> None:
        """Let ``producer`` in; one of its name whose client is gone without a word makes room.

        Raises ``BrokerError``: ``ProducerBusy``, ``ProducerFenced``, ``TopicFenced`` ...
        """
        await self.producers.ask_namesake(producer)
        for part in self._topic.parts:
            await part.check_producer(producer)
        self._topic.check_open()
        if self._log is not None and self._log.termination.at is not None:
            raise TopicTerminated
        self._gate.check(producer)
        self.epoch.check(producer)
        self.producers.add(producer)
        producer.last_sequence_id = partial(self._last_sequence_id, producer.name)
        if not producer.is_waiting:
            self._welcome(producer)
            await self.epoch.admit(producer)

    def producer_promoted(self, producer: Producer) -> None:
        """It is the turn of one that waits."""
        self._welcome(producer)
        self._topic.spawn(self.epoch.promote(producer), name=f"let in {producer.name}")

    def _welcome(self, producer: Producer) -> None:
        self._lead_in(producer)
        producer.has_stamps = self._log is not None and self._log.stamps is not None
        for part in self._topic.parts:
            part.producer_let_in(producer)

    def _last_sequence_id(self, producer_name: str) -> int:
        kept = (part.last_sequence_id(producer_name) for part in self._topic.parts)
        return next((number for number in kept if number is not None), NO_SEQUENCE_ID)

    async def settle(self, producer_name: str) -> None:
        """Return when nothing that was sent under this name is under way any more."""
        for part in self._topic.parts:
            await part.settled(producer_name)
        self._topic.check_open()

    async def store_epoch(self, epoch: int) -> None:
        """Make a new epoch durable; of a topic without a log, nothing is."""
        if self._log is not None:
            await self._log.properties.set(EPOCH_PROPERTY, str(epoch))

    def producer_left(self, producer: Producer) -> None:
        """One that was let in is here no more."""
        self._had_chunks = self._had_chunks or producer.chunks_in > 0
        self._topic.note_use()
        for part in self._topic.parts:
            part.producer_gone(producer)

    @property
    def connected_count(self) -> int:
        """How many producers are connected."""
        return len(self.producers)

    def disconnect(self) -> None:
        """Let all producers go: they look the topic up again."""
        self.refuse_all(TopicFenced(str(self._topic.name)))

    @property
    def internal(self) -> InternalPublisher:
        """Publishes the broker's own messages; made when it is first asked for, as most topics have
        none of these."""
        if self._internal is None:
            self._internal = InternalPublisher(self._append_own)
        return self._internal

    def _append_own(self, requests: Sequence[AppendRequest]) -> None:
        self._topic.check_open()  # after that nobody would be told
        self.append(requests)

    def refuse_all(self, reason: BrokerError) -> None:
        """Let all producers go, and tell those that wait to be let in why they are not."""
        if self._internal is not None:
            self._internal.fail_all(reason)
        if self.producers:  # as very many topics have none
            self.producers.remove_all(reason)

    # Counting

    @property
    def has_chunks(self) -> bool:
        """Whether a message was published in parts."""
        return self._had_chunks or any(each.chunks_in for each in self.producers)

    @property
    def pauses(self) -> int:
        """How often somebody was not read for a while."""
        return self._gate.pauses

    def tick(self, now_s: float, period_s: float) -> None:
        """Renew the producers' rates."""
        for producer in self.producers:
            producer.meter.tick(
                now_s,
                producer.messages_in,
                producer.bytes_in,
                producer.chunks_in,
                period_s=period_s,
            )
        if self.write_latency is not None:
            self.write_latency.renew()

    def let_go(self) -> None:
        """Its gate knows the steps behind it, and so this; as its own publisher does."""
        self._gate.forget_steps()
        self._internal = None
