"""Stand-ins for what topics stand on: sessions that note what they are sent, logs in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any
from unittest.mock import Mock

from geminga_broker.errors import BrokerError
from geminga_broker.managed_ledger.acknowledgement.cursor_state import CursorState
from geminga_broker.managed_ledger.cache.log_cache import LogCache
from geminga_broker.managed_ledger.cache.read_ahead import ReadAheadBudget
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.managed_ledger.reading.log_reader import LogReader
from geminga_broker.managed_ledger.termination import Termination
from geminga_broker.managed_ledger.trimmer import Trimmer
from geminga_broker.policies.effective import PolicyConfig
from geminga_broker.policies.resolver import PoliciesOf, PolicyResolver, no_policies
from geminga_broker.subscriptions.consumer import Consumer, ConsumerEvent
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.subscribe_request import ConsumerIdentity, SubscribeRequest
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.maintenance import TopicMaintenance
from geminga_broker.topics.part import TopicPart
from geminga_broker.topics.producers.producer import Producer, ProducerRequest
from geminga_broker.topics.topic import Topic
from geminga_ledger import Ledgers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import parse_command
from geminga_protocol.pulsar.enums import AccessMode, SubscriptionType
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_simulation.event_loop.clock import SimulatedClock

# So often does the event loop turn at most until what was published is durable in memory.
TURNS_MAX = 1000


class NotedSession:
    """A client that only notes what it is sent."""

    def __init__(self, *, answers: bool = True) -> None:
        self.out: list[bytes] = []
        self.is_writable = True
        self.address = "/127.0.0.1:1"
        self.client_version = "test"
        self.protocol_version = 21
        self.gets_broker_entries = False
        self.unconfirmed = 0
        self.answers = answers
        self.throttles: list[Callable[[float], float]] = []

    def send(self, frame: bytes) -> None:
        self.out.append(frame)

    def delivered(self, size_bytes: int) -> None:
        del size_bytes

    def confirmed(self, size_bytes: int) -> None:
        self.unconfirmed -= size_bytes

    def throttle(self, wait_s: Callable[[float], float]) -> None:
        self.throttles.append(wait_s)

    async def is_alive(self) -> bool:
        return self.answers

    def commands(self) -> list[api.BaseCommand]:
        """Every command sent so far."""
        stream = b"".join(self.out)
        found: list[api.BaseCommand] = []
        start = 0
        while start < len(stream):
            end = start + 4 + int.from_bytes(stream[start : start + 4], "big")
            found.append(parse_command(stream, start + 4, end)[0])
            start = end
        return found

    def messages(self) -> list[tuple[Position, int]]:
        """Position and redelivery count of each MESSAGE sent so far."""
        return [
            (
                Position(command.message.message_id.ledgerId, command.message.message_id.entryId),
                command.message.redelivery_count,
            )
            for command in self.commands()
            if command.type == api.BaseCommand.MESSAGE
        ]

    def positions(self) -> list[tuple[int, int]]:
        """Positions of each MESSAGE sent so far."""
        return [(position.ledger_id, position.entry_id) for position, _ in self.messages()]


class MemoryLog(LogReader):
    """A managed ledger, and its reader: its entries are all cached, or, when ``is_cold``, all to be
    fetched."""

    def __init__(self, *ledgers: tuple[int, int]) -> None:
        self.name = "t/n/persistent/topic"
        self.config = ManagedLedgerConfig()
        super().__init__(
            self.name,
            ledgers=Mock(spec=Ledgers),
            cached=Mock(spec=LogCache, run=self.cached_run, entries=self.cached_entries),
            read_ahead_budget=ReadAheadBudget(1 << 30),
            config=self.config,
        )
        self.is_cold = False
        self.reads = 0
        self.entries_read = 0
        self.chain = LedgerChain(LedgerSpan(ledger, entries) for ledger, entries in ledgers)
        self.termination = Mock(spec=Termination, at=None)
        self.trimmer = Mock(spec=Trimmer)
        self._tasks: list[asyncio.Task[object]] = []

    @property
    def reader(self) -> MemoryLog:
        """What reads it."""
        return self

    def entry(self, entry_id: int) -> Entry:
        metadata = api.MessageMetadata(producer_name="p", sequence_id=entry_id, publish_time=1)
        return entry_id, encode_payload(metadata, b"m"), 1

    def cached_run(self, position: Position, count_max: int) -> list[Entry]:
        return [] if self.is_cold else self._run(position, count_max)

    def cached_entries(self, ids: Sequence[EntryId]) -> list[Entry]:
        return [] if self.is_cold else [self.entry(entry_id) for _, entry_id in ids]

    def _run(self, position: Position, count_max: int) -> list[Entry]:
        span = self.chain.span(position[0])
        assert span is not None
        last = min(span.entries, position[1] + count_max)
        return [self.entry(entry_id) for entry_id in range(position[1], last)]

    async def fetch(self, ledger_id: int, entry_ids: Sequence[int]) -> list[Entry]:
        self.reads += 1
        await asyncio.sleep(0)
        span = self.chain.span(ledger_id)
        assert span is not None
        entries = [self.entry(each) for each in entry_ids if each < span.entries]
        self.entries_read += len(entries)
        return [(entry_id, payload, 0) for entry_id, payload, _ in entries]

    def spawn(self, work: object, *, name: str) -> None:
        assert asyncio.iscoroutine(work)
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    async def settled(self) -> None:
        """Return when all reads are done."""
        while self._tasks:
            await self._tasks.pop()


class KeyedLog(MemoryLog):
    """One whose entries have keys: entry ``i`` has the ``i``-th, modulo their number."""

    def __init__(self, keys: str, *ledgers: tuple[int, int]) -> None:
        super().__init__(*ledgers)
        self.keys = keys

    def key(self, entry_id: int) -> str:
        """The key of an entry."""
        return self.keys[entry_id % len(self.keys)]

    def entry(self, entry_id: int) -> Entry:
        metadata = api.MessageMetadata(
            producer_name="p",
            sequence_id=entry_id,
            publish_time=1,
            partition_key=self.key(entry_id),
        )
        return entry_id, encode_payload(metadata, b"m"), 1


def cursor_over(chain: LedgerChain, *, name: str = "sub") -> Cursor:
    """A volatile cursor before the first entry."""
    return Cursor(
        name,
        chain=chain,
        state=CursorState(mark_delete=chain.before_first),
        store=None,
        clock=SimulatedClock(),
        random=Random(1),
        config=ManagedLedgerConfig(),
    )


def resolver_over(
    factory: ManagedLedgerFactory, policies_of: PoliciesOf = no_policies, **config: Any
) -> PolicyResolver:
    """What holds for topics whose logs are ``logs``, on a broker with this ``config``."""
    return PolicyResolver(PolicyConfig(log=factory.config, **config), policies_of)


class Told:
    """What a consumer's client was told outside of messages."""

    def __init__(self) -> None:
        self.active: list[bool] = []
        self.closures = 0
        self.ends = 0

    def tell(self, consumer: Consumer, event: ConsumerEvent) -> None:
        del consumer
        match event:
            case ConsumerEvent.ACTIVE | ConsumerEvent.INACTIVE:
                self.active.append(event is ConsumerEvent.ACTIVE)
            case ConsumerEvent.CLOSED:
                self.closures += 1
            case ConsumerEvent.REACHED_END:
                self.ends += 1


def consumer_of(
    session: NotedSession,
    name: str = "c",
    *,
    priority: int = 0,
    told: Told | None = None,
    key_shared: KeySharedPolicy = AUTO_SPLIT,
    reads_compacted: bool = False,
) -> Consumer:
    """A consumer with no permits yet."""
    request = SubscribeRequest(
        "sub",
        SubscriptionType.SHARED,
        reads_compacted=reads_compacted,
        key_shared=key_shared,
        consumer=ConsumerIdentity("/127.0.0.1", name, 1),
        priority=priority,
    )
    return Consumer(session, request, clock=SimulatedClock(), tell=(told or Told()).tell)


def producer_of(
    session: NotedSession,
    name: str = "p",
    *,
    epoch: int = 0,
    access_mode: AccessMode = AccessMode.SHARED,
    topic_epoch: int | None = None,
    is_encrypting: bool = False,
    metadata: Mapping[str, str] | None = None,
    on_closed: Callable[[Producer], None] = lambda _: None,
    on_settled: Callable[[Producer, BrokerError | None], None] = lambda _, __: None,
) -> Producer:
    """A producer that no topic knows yet."""
    request = ProducerRequest(
        1,
        name,
        epoch=epoch,
        access_mode=access_mode,
        topic_epoch=topic_epoch,
        is_encrypting=is_encrypting,
        metadata={} if metadata is None else metadata,
    )
    return Producer(session, request, connected_at_ms=0, on_closed=on_closed, on_settled=on_settled)


async def maintain(topics: TopicDirectory, kind: type[TopicPart]) -> None:
    """Do a broker's periodic work on the parts of that kind."""
    await TopicMaintenance(topics, SimulatedClock()).maintain(kind)


async def publish(topic: Topic, *batches: int, age_s: int = 0) -> None:
    """Publish entries of so many messages each (1: none is a batch), as if that long ago, and wait
    until they are durable."""
    producer = producer_of(NotedSession())
    await topic.publishing.connect(producer)
    before = topic.managed_ledger.entries_added
    for number, count in enumerate(batches):
        metadata = api.MessageMetadata(
            producer_name="p",
            sequence_id=number,
            publish_time=SimulatedClock().wall_ms() - age_s * 1000,
        )
        if count > 1:
            metadata.num_messages_in_batch = count
        producer.append_all([(encode_payload(metadata, b"m"), count, producer, number, number)])
    for _ in range(TURNS_MAX):
        if topic.managed_ledger.entries_added == before + len(batches):
            break
        await asyncio.sleep(0)
    else:
        raise AssertionError("what was published is not durable yet")
    producer.disconnect()
