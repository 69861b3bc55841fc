"""The parts that a topic is made of, one for each feature, and what a part may ask of its topic.

``parts.py`` lists them: a new feature is a module with a part, and a line in that list. The topic
reports everything that happens to it (new policies, a stored cursor, a producer, a durable run, the
end of a stats period, its own end) to each of its parts, in the order of the list unless a method
below says otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import ClassVar, TypeVar
from weakref import proxy

from geminga_broker.errors import NotAllowed, TopicFenced
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_broker.policies.dispatch import DispatchLimit
from geminga_broker.policies.effective import EffectivePolicies, PolicyConfig
from geminga_broker.policies.expiry import Expiry
from geminga_broker.policies.inactivity import Inactivity
from geminga_broker.policies.publish import PublishLimits
from geminga_broker.replication.replicator import ReplicationServices
from geminga_broker.schemas.registry import SchemaRegistry
from geminga_broker.schemas.storage import SchemaStorage
from geminga_broker.subscriptions.dispatch.rate_limiter import LimitOf, RateLimiter
from geminga_broker.topics.decisions.publish_rate import PublishRate
from geminga_broker.topics.producers.producer import Producer
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_server.metrics import Durations, Meter

log = logging.getLogger(__name__)

PartT = TypeVar("PartT", bound="TopicPart")


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
        # Partitions share the schemas of their topic, so the registry cannot be theirs.
        storage = SchemaStorage(factory.coordination, factory.ledgers, config.log)
        self.schemas = SchemaRegistry(storage, clock)
        # How long entries take to become durable.
        self.publish_durations = Durations()
        # Limits on what is published to all topics together, and on what is dispatched from them;
        # None without such a limit. Both are fixed for the life of the broker: these limits are
        # settings, not policies.
        self.broker_rate: PublishRate | None = None
        publishing, dispatching = config.publishing, config.dispatching
        published_max = PublishLimits(
            publishing.broker_messages_per_s_max, publishing.broker_bytes_per_s_max
        )
        if not published_max.is_unlimited:
            self.broker_rate = PublishRate(published_max, clock.monotonic())
        self.broker_limiter: RateLimiter | None = None
        dispatched_max = DispatchLimit(
            dispatching.broker_messages_per_s_max, dispatching.broker_bytes_per_s_max
        )
        if not dispatched_max.is_unlimited:
            self.broker_limiter = RateLimiter(dispatched_max, clock, limit_of=LimitOf.BROKER)


@cache
def overriding(kinds: tuple[type[TopicPart], ...], hook: str) -> tuple[int, ...]:
    """The indexes of the kinds that override ``hook``.

    For calls on the hot path (calling the other kinds for every run takes 0.3 us), and for calls
    that cost a task.
    """
    # The functions themselves are compared: a kind that inherits the hook has the same object. The
    # result is cached for good, as there are two tuples of kinds and a handful of hooks.
    base: object = getattr(TopicPart, hook)
    return tuple(at for at, kind in enumerate(kinds) if getattr(kind, hook) is not base)


class OwningTopic(Service):
    """A topic as its parts and its log know it: the parts, what they share, and what they hear.

    ``topic.Topic`` is one that opens and closes, and changes as a whole. ``kinds`` are the kinds of
    its parts. ``create_with`` are the properties of a new log; with None, a log that does not exist
    is not created. ``on_fenced`` is called when another broker has taken the log over.
    """

    __slots__ = (
        "__weakref__",
        "_log",
        "_on_fenced",
        "_run_hooks",
        "_services",
        "is_fenced",
        "last_used_s",
        "meter",
        "name",
        "parts",
        "policies",
    )

    def __init__(
        self,
        name: TopicName,
        services: TopicServices,
        policies: EffectivePolicies,
        kinds: tuple[type[TopicPart], ...],
        *,
        create_with: Mapping[str, str] | None,
        on_fenced: Callable[[OwningTopic], None],
    ) -> None:
        super().__init__()
        self.name = name
        self.policies = policies
        now_s = services.clock.monotonic()
        # Rates of messages and bytes in, and of messages and bytes out, in the last stats period.
        self.meter = Meter(now_s, 0, 0, 0, 0)
        # When the topic was last known to be in use, by the monotonic clock: a producer or a
        # subscription left then. A topic that was just loaded counts as used.
        self.last_used_s = now_s
        # The topic refuses all clients: another broker has its log, or it is closing. Never unset.
        # Set before the parts are told, in the same turn. Code that has waited asks ``check_open``
        # before it changes anything of the topic.
        self.is_fenced = False
        self._services = services
        self._on_fenced = on_fenced
        # None for a non-persistent topic. Made here, opened by ``Topic``: ``create_with`` decides
        # while it is opened whether it may be created.
        self._log: ManagedLedger | None = None
        if name.is_persistent:
            log_name = name.managed_ledger_name
            self._log = services.factory.log(log_name, self, create_with=create_with)
        # Parts refer to their topic weakly, so that a closed topic is freed at once. They are made
        # after the log, which some of them keep.
        owner: OwningTopic = proxy(self)
        self.parts = tuple(kind(owner, services) for kind in kinds)
        # The indexes of the parts that override ``run_appended``. Indexes, not bound methods: all
        # topics with the same kinds of parts share one tuple.
        self._run_hooks = overriding(kinds, "run_appended")

    @property
    def managed_ledger(self) -> ManagedLedger:
        """The topic's log. Raises ``NotAllowed`` if the topic has none."""
        if self._log is None:
            raise NotAllowed(f"{self.name} keeps no messages")
        return self._log

    def find(self, kind: type[PartT]) -> PartT | None:
        """The topic's part of that kind; None if the topic has none."""
        # A loop over few parts: a mapping would cost memory in each of 100,000 topics.
        for part in self.parts:
            if isinstance(part, kind):
                return part
        return None

    def part(self, kind: type[PartT]) -> PartT:
        """The topic's part of that kind. Raises ``NotAllowed`` if the topic has none, as one
        without a log has few."""
        part = self.find(kind)
        if part is None:
            raise NotAllowed(f"{self.name} keeps no messages")
        return part

    def claims(self, cursor_name: str) -> bool:
        """Whether a part claims cursors of that name, which no subscription may have then."""
        return any(part.claims(cursor_name) for part in self.parts)

    def check_open(self) -> None:
        """Raise ``TopicFenced`` if the topic refuses all clients."""
        if self.is_fenced:
            raise TopicFenced(str(self.name))

    async def enter_cursor(self, cursor: Cursor) -> None:
        """Connect a cursor with the topic and its log, and open it."""
        # Before it is opened, so that no loss goes unreported. A cursor is written by one broker
        # only. If another one has written it, that broker has the topic, even though this log has
        # not noticed yet; so the whole topic is given up.
        cursor.on_lost = self.log_fenced
        cursor.on_ledger_left = self.managed_ledger.trimmer.trim_soon
        # The factory has made the cursor with the broker's settings; a topic may have its own.
        cursor.configure(self.managed_ledger.config)
        await cursor.__aenter__()

    def cursors_moved(self) -> None:
        """Tell all parts that a quota or a truncation moved cursors on."""
        for part in self.parts:
            part.cursors_moved()

    # Called by the log

    def cursors(self) -> list[Cursor]:
        """The cursors of all parts."""
        return [cursor for part in self.parts for cursor in part.cursors()]

    def reads_from(self) -> Position | None:
        """The least position that a part has still to read; None if no part reads."""
        positions = (part.reads_from() for part in self.parts)
        return min((each for each in positions if each is not None), default=None)

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """A run is durable. Producers get receipts, then consumers the run."""
        # In one turn with the confirmation, and without a wait: the log, its cache, the counters
        # and what the dispatchers may read agree again when this returns.
        parts = self.parts
        for index in self._run_hooks:
            parts[index].run_appended(ledger_id, entries, batch)

    def log_fenced(self) -> None:
        """Another broker has taken over the log, or the cursor that calls this."""
        # First of all: clients are refused before a part answers anything. May be called several
        # times: by the log, and by each cursor that finds itself lost.
        self.is_fenced = True
        for part in self.parts:
            part.log_fenced()
        # Last. The directory only starts a task there, so no part is closed before all have heard
        # of this.
        self._on_fenced(self)


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

    own_cursor: ClassVar[str | None] = None
    """The name of the cursor that belongs to parts of this kind, if there is one."""

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        # The topic has no parts yet: ``topic.part`` works from ``apply`` on. Nor is the log open.
        # Parts are made for each of 100,000 topics: what a feature needs beyond a few attributes is
        # made on first use.
        del services
        # A weak reference, so that a closed topic is freed at once.
        self._topic = topic

    def apply(self, policies: EffectivePolicies) -> None:
        """Follow ``policies``, which are the topic's from now on.

        The last part is called first: producers get other steps once all other parts follow.
        """

    # Loading. The log is open.

    def claims(self, cursor_name: str) -> bool:
        """Whether a cursor of that name belongs to this part. A cursor that no part claims belongs
        to a subscription."""
        return cursor_name == self.own_cursor

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

    # Producers and their messages

    async def check_producer(self, producer: Producer) -> None:
        """Raise ``BrokerError`` to refuse ``producer``."""

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """The requests of ``batch`` are durable, and cached, as ``entries``.

        HOT: called for every run that bookies confirm, and only for parts that override it.
        """

    def log_fenced(self) -> None:
        """Another broker has the log: it confirms no pending entry any more."""

    # Clients

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

    def cursors_moved(self) -> None:
        """A quota or a truncation moved cursors on: do not send what they have passed."""

    # Time

    def tick(self, now_s: float, period_s: float) -> None:
        """A stats period of ``period_s`` seconds ended: compute the rates."""

    @property
    def needs_maintenance(self) -> bool:
        """Whether ``maintain`` has something to do now. Each round asks every topic: be quick.

        ``parts.maintenance_periods_s`` says how often there is a round for parts of this kind.
        """
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
        # The round began before: the topic may have been closed since. A closed topic's cursors and
        # log write nothing any more; work on them would only raise.
        if self._topic.is_fenced:
            return
        try:
            await work()
        # Anything else is a mistake of ours: it ends the round, and the periodic task logs it and
        # goes on with the next one.
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
