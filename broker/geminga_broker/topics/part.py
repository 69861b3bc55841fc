"""The parts that a topic is made of, one for each feature, and what a part may ask of its topic.

``parts.py`` lists them: a new feature is a module with a part, and a line in that list. The topic
reports everything that happens to it (new policies, a stored cursor, a producer, a durable run, the
end of a stats period, its own end) to each of its parts, in the order of the list unless a method
below says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_broker.policies.effective import EffectivePolicies, PolicyConfig
from geminga_broker.policies.expiry import Expiry
from geminga_broker.policies.inactivity import Inactivity
from geminga_broker.replication.replicator import ReplicationServices
from geminga_broker.schemas.registry import SchemaRegistry
from geminga_broker.schemas.storage import SchemaStorage
from geminga_broker.subscriptions.dispatch.rate_limiter import LimitOf, RateLimiter
from geminga_broker.topics.decisions.publish_rate import PublishRate
from geminga_broker.topics.producers.producer import Producer
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError
from geminga_server.metrics import Durations, Meter

log = logging.getLogger(__name__)

PartT = TypeVar("PartT", bound="TopicPart")

Step = Callable[[Producer, Sequence[AppendRequest]], None]
"""One step of messages on their way to the log: it takes a run of one producer, and hands on to the
next step what it does not answer itself. Raises ``BrokerError`` if it takes nothing of the run."""


class TopicServices:
    """What all topics of a broker share."""

    def __init__(
        self,
        factory: ManagedLedgerFactory,
        clock: Clock,
        config: PolicyConfig,
        *,
        cluster: str,
        replication: ReplicationServices | None = None,
    ) -> None:
        # Makes the topics' logs and cursors.
        self.factory = factory
        # The name of the brokers' own cluster.
        self.cluster = cluster
        # What replicators to other clusters share; None: no topic is replicated.
        self.replication = replication
        self.clock = clock
        self.config = config
        storage = SchemaStorage(factory.coordination, factory.ledgers, config.log)
        self.schemas = SchemaRegistry(storage, clock)
        # How long entries take to become durable.
        self.publish_durations = Durations()
        # Limits on what is published to all topics together, and on what is dispatched from them;
        # None without such a limit.
        self.broker_rate: PublishRate | None = None
        if not (limits := config.publishing.broker_limits).is_unlimited:
            self.broker_rate = PublishRate(limits, clock.monotonic())
        self.broker_limiter: RateLimiter | None = None
        if not (limit := config.dispatching.broker_limit).is_unlimited:
            self.broker_limiter = RateLimiter(limit, clock, limit_of=LimitOf.BROKER)


class OwningTopic(Protocol):
    """What a part may ask of its topic."""

    name: TopicName
    policies: EffectivePolicies
    parts: tuple[TopicPart, ...]
    meter: Meter
    """Rates of messages and bytes in, and of messages and bytes out, in the last stats period."""
    is_fenced: bool
    """The topic refuses all clients: another broker has its log, or it is closing."""

    @property
    def keeps_messages(self) -> bool:
        """Whether the topic has a log."""
        ...

    @property
    def managed_ledger(self) -> ManagedLedger:
        """The topic's log. Raises ``NotAllowed`` if the topic has none."""
        ...

    def part(self, kind: type[PartT]) -> PartT:
        """The topic's part of that kind. Raises ``NotAllowed`` if the topic has none."""
        ...

    def claims(self, cursor_name: str) -> bool:
        """Whether a part claims cursors of that name, which no subscription may have then."""
        ...

    async def enter_cursor(self, cursor: Cursor) -> None:
        """Connect a cursor with the topic and its log, and open it."""
        ...

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """Tell all parts that the requests of ``batch`` are durable as ``entries``."""
        ...

    def cursors_moved(self) -> None:
        """Tell all parts that a quota or a truncation moved cursors on."""
        ...

    def check_open(self) -> None:
        """Raise ``TopicFenced`` if the topic refuses all clients."""
        ...

    def note_use(self) -> None:
        """Count the topic as used until now: a client or a subscription leaves."""
        ...

    def spawn(self, work: Coroutine[Any, Any, object], *, name: str) -> asyncio.Task[object]:
        """Run ``work`` in the background; closing the topic cancels it."""
        ...


class TopicPart:
    """One feature of one topic. A subclass overrides the methods that concern it; here, each does
    nothing.

    The order of calls: ``__init__``, ``apply``, ``adopt`` for each cursor that the part claims, and
    ``opened``; then any of the others; at the end ``disconnect``, ``close`` (or ``delete`` and
    ``close``), ``release``. All but the ``async`` ones must be quick: they hold up the event loop.
    """

    # Without a ``__dict__``: a broker may hold 100,000 topics, each with all its parts.
    __slots__ = ("_topic",)

    has_backlog: ClassVar[bool] = False
    """Whether entries that its cursors have not passed still have to be delivered: these cursors
    count for the topic's backlog, and a backlog quota may move them on."""

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        # The topic has no parts yet: ``topic.part`` works from ``apply`` on.
        del services
        # A weak reference, so that a closed topic is freed at once.
        self._topic = topic

    def apply(self, policies: EffectivePolicies) -> None:
        """Follow ``policies``, which are the topic's from now on.

        The last part is called first: the first part composes the steps of publishing, after all
        others have decided which of these are on.
        """

    # Loading. The log is open.

    def claims(self, cursor_name: str) -> bool:
        """Whether a cursor of that name belongs to this part. A cursor that no part claims belongs
        to a subscription."""
        del cursor_name
        return False

    async def adopt(self, cursor: Cursor) -> None:
        """Take over a stored cursor that this part claims; ``enter_cursor`` of the topic opens
        it."""

    async def opened(self) -> None:
        """All stored cursors are adopted. The topic serves clients when every part returned."""

    def cursors(self) -> list[Cursor]:
        """The part's open cursors. Ledgers that a durable one of them has not passed are kept."""
        return []

    def reads_from(self) -> Position | None:
        """The least position that the part has still to read; None if it reads nothing. The entry
        cache keeps entries from there on longer."""
        return None

    # Publishing

    def step_before(self, following: Step) -> Step:
        """The part's step, which hands messages on to ``following``.

        Without a step, or while it is off, ``following`` itself: then it costs messages nothing.
        """
        return following

    async def check_producer(self, producer: Producer) -> None:
        """Raise ``BrokerError`` to refuse ``producer``."""

    def producer_connected(self, producer: Producer) -> None:
        """``producer`` may publish from now on. Not called while it waits to be exclusive."""

    def producer_disconnected(self, producer: Producer) -> None:
        """``producer``, which could publish, has left the topic."""

    def last_sequence_id(self, producer_name: str) -> int | None:
        """The last sequence id published under that name; None if the part keeps none."""
        del producer_name
        return None

    async def settled(self, producer_name: str) -> None:
        """Return when no message published under that name is pending, if the part must know that
        before it lets a producer of the name continue."""

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """The requests of ``batch`` are durable, and cached, as ``entries``.

        HOT: called for every run that bookies confirm, and only for parts that override it.
        """

    def log_fenced(self) -> None:
        """Another broker has the log: it confirms no pending entry any more."""

    # Clients

    @property
    def connected_count(self) -> int:
        """How many clients are connected to this part."""
        return 0

    def is_used(self, rule: Inactivity) -> bool:
        """Whether the part keeps an inactive topic from being deleted by ``rule``, though no client
        is connected."""
        del rule
        return False

    def disconnect(self) -> None:
        """Disconnect all clients; they look the topic up again."""

    # What is done to messages

    async def expire(self, expiry: Expiry) -> None:
        """Move the part's cursors past messages that are too old. Raises ``StorageUnavailable``."""

    async def truncate(self) -> None:
        """Forget all messages: the log deletes them next. Raises ``StorageUnavailable``."""

    def cursors_moved(self) -> None:
        """A quota or a truncation moved cursors on: do not send what they have passed."""

    def terminated(self) -> None:
        """The topic takes no more messages from now on."""

    # Time

    def tick(self, now_s: float, period_s: float) -> None:
        """A stats period of ``period_s`` seconds ended: compute the rates."""

    @classmethod
    def maintenance_period_s(cls, services: TopicServices) -> float:
        """Seconds between two rounds in which all parts of this kind are maintained; 0: none."""
        del services
        return 0.0

    @property
    def needs_maintenance(self) -> bool:
        """Whether ``maintain`` has something to do now. Each round asks every topic: be quick."""
        return False

    async def maintain(self) -> None:
        """Do the part's periodic work. A ``GemingaError`` is logged."""

    @classmethod
    async def maintain_all(cls, parts: Sequence[TopicPart]) -> None:
        """Maintain ``parts``, which are of this kind and need it, one after the other. Overridden
        if the work of one topic depends on that of others."""
        for part in parts:
            await part.attempt(part.maintain)

    async def attempt(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do periodic ``work``, unless the topic is closing. An error of one topic is logged, and
        the round continues with the others."""
        # The round began before: the topic may have been closed since.
        if self._topic.is_fenced:
            return
        try:
            await work()
        except GemingaError as error:
            log.warning(
                "topic maintenance failed",
                extra={
                    "topic": str(self._topic.name),
                    "part": type(self).__name__,
                    "error": str(error),
                },
            )

    # Ending

    async def close(self) -> None:
        """Store what the next owner needs, and close the cursors. The log is still open.

        Parts close side by side. A broker that ends cancels this after its close budget.
        """

    def release(self) -> None:
        """The log is closed. Drop references that lead back to this part, so that the topic's
        memory is freed without the cycle collector."""

    async def delete(self) -> None:
        """Delete what the part has stored; the log is deleted afterwards. The last part is called
        first."""
