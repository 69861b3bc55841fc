"""A topic: the parts that make it up, and a log if it is persistent.

The topic opens and closes log and parts in order, gives each stored cursor to the part that claims
it, passes events on to the parts, and refuses clients once it is fenced. ``publish_path`` and the
subscriptions decide what happens to messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from weakref import proxy

from geminga_broker.errors import NotAllowed, TopicFenced, TopicTerminated
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.policies.inactivity import Inactivity
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.part import OwningTopic, PartT, TopicPart, TopicServices
from geminga_broker.topics.parts import NON_PERSISTENT, PERSISTENT
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.producers.publish_path import PublishPath
from geminga_broker.topics.subscriptions.non_persistent_subscriptions import (
    NonPersistentSubscriptions,
)
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.subscriptions.subscription_registry import TopicSubscription
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.service import Service
from geminga_server.metrics import Meter

log = logging.getLogger(__name__)


@cache
def _overriding(kinds: tuple[type[TopicPart], ...], hook: str) -> tuple[int, ...]:
    """The indexes of the kinds that override ``hook``.

    For calls on the hot path (calling the other kinds for every run takes 0.3 us), and for calls
    that cost a task.
    """
    base: object = getattr(TopicPart, hook)
    return tuple(at for at, kind in enumerate(kinds) if getattr(kind, hook) is not base)


class Topic(Service):
    """Topic ``name``, which follows ``policies`` until ``apply`` brings others.

    ``create_with`` are the properties of a new log; with None, a log that does not exist is not
    created. ``on_fenced`` is called when another broker has taken the log over.
    """

    __slots__ = (
        "__weakref__",
        "_log",
        "_on_fenced",
        "_run_hooks",
        "_services",
        "close_by_s",
        "created_at_ms",
        "is_fenced",
        "last_used_s",
        "meter",
        "name",
        "parts",
        "policies",
        "publishing",
        "subscribing",
    )

    def __init__(
        self,
        name: TopicName,
        services: TopicServices,
        policies: EffectivePolicies,
        *,
        create_with: Mapping[str, str] | None,
        on_fenced: Callable[[Topic], None],
    ) -> None:
        super().__init__()
        self.name = name
        self.policies = policies
        self.created_at_ms = services.clock.wall_ms()
        now_s = services.clock.monotonic()
        # Rates of messages and bytes in, and of messages and bytes out.
        self.meter = Meter(now_s, 0, 0, 0, 0)
        # When the topic was last known to be in use, by the monotonic clock; a topic that was just
        # loaded counts as used.
        self.last_used_s = now_s
        # When closing must be over, by the event loop's time. The next owner recovers what is still
        # open then, as after a crash. None: no deadline.
        self.close_by_s: float | None = None
        self._services = services
        self._on_fenced = on_fenced
        # The topic refuses all clients: another broker has its log, or it is closing. Never unset.
        self.is_fenced = False
        # None for a non-persistent topic.
        self._log: ManagedLedger | None = None
        if name.is_persistent:
            log_name = name.managed_ledger_name
            self._log = services.factory.log(log_name, self, create_with=create_with)
        # Parts refer to their topic weakly, so that a closed topic is freed at once.
        owner: OwningTopic = proxy(self)
        kinds = PERSISTENT if name.is_persistent else NON_PERSISTENT
        self.parts: tuple[TopicPart, ...] = tuple(kind(owner, services) for kind in kinds)
        # The indexes of the parts that override ``run_appended``.
        self._run_hooks = _overriding(kinds, "run_appended")
        self.publishing = self.part(PublishPath)
        self.subscribing: PersistentSubscriptions | NonPersistentSubscriptions
        if name.is_persistent:
            self.subscribing = self.part(PersistentSubscriptions)
        else:
            self.subscribing = self.part(NonPersistentSubscriptions)
        self.apply(policies)

    # Its parts

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

    @property
    def keeps_messages(self) -> bool:
        """Whether the topic has a log."""
        return self._log is not None

    @property
    def managed_ledger(self) -> ManagedLedger:
        """The topic's log. Raises ``NotAllowed`` if the topic has none."""
        if self._log is None:
            raise NotAllowed(f"{self.name} keeps no messages")
        return self._log

    def apply(self, policies: EffectivePolicies) -> None:
        """Follow ``policies`` from now on: the log with its next ledgers and its next trimming, the
        parts as each of them says."""
        # Before the parts, which read it from the topic.
        self.policies = policies
        if self._log is not None:
            self._log.config = policies.log
            for cursor in self.cursors():
                cursor.configure(policies.log)
            trimmer = self._log.trimmer
            if trimmer.retention != policies.retention:
                trimmer.retention = policies.retention
                trimmer.trim_soon()
        # The last part first, for the reason that ``TopicPart.apply`` gives.
        for part in reversed(self.parts):
            part.apply(policies)

    # Loading

    async def _open_parts(self) -> None:
        # The log first: what cursors name are positions in it. All parts adopt their cursors before
        # ``opened`` is called for the first one.
        if self._log is not None:
            await self._log.__aenter__()
            for cursor in await self._services.factory.load_cursors(
                self._log.name, self._log.chain
            ):
                # A cursor that no part claims belongs to a subscription.
                claimers = (part for part in self.parts if part.claims(cursor.name))
                await next(claimers, self.subscribing).adopt(cursor)
        for part in self.parts:
            await part.opened()
        if self._log is not None:
            # Last: the log may delete ledgers from now on, as all cursors are known.
            self._log.trimmer.readership = self
            self._log.trimmer.trim_soon()

    def claims(self, cursor_name: str) -> bool:
        """Whether a part claims cursors of that name, which no subscription may have then."""
        return any(part.claims(cursor_name) for part in self.parts)

    async def enter_cursor(self, cursor: Cursor) -> None:
        """Connect a cursor with the topic and its log, and open it."""
        # Before it is opened, so that no loss goes unreported.
        cursor.on_lost = self.log_fenced
        cursor.on_ledger_left = self.managed_ledger.trimmer.trim_soon
        cursor.configure(self.managed_ledger.config)
        await cursor.__aenter__()

    # For the log

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
        """Called by the log: a run is durable. Producers get receipts, then consumers the run."""
        parts = self.parts
        for index in self._run_hooks:
            parts[index].run_appended(ledger_id, entries, batch)

    def log_fenced(self) -> None:
        """Called by the log and by cursors: another broker has taken them over."""
        # First of all: clients are refused before a part answers anything.
        self.is_fenced = True
        for part in self.parts:
            part.log_fenced()
        self._on_fenced(self)

    # Clients

    async def connect_producer(self, producer: Producer) -> None:
        """Let ``producer`` publish, or wait to be the exclusive one. Raises ``BrokerError``."""
        await self.publishing.connect(producer)

    async def subscribe(self, request: SubscribeRequest) -> TopicSubscription:
        """The subscription, created if need be, with room for one more consumer, which
        ``connected`` then adds. Raises ``BrokerError``."""
        return await self.subscribing.subscribe(request)

    async def create_subscription(self, name: str, *, from_earliest: bool = False) -> bool:
        """Create a durable subscription without a consumer. False if it exists, or if the topic is
        not persistent."""
        return await self.subscribing.create(name, from_earliest=from_earliest)

    @property
    def subscriptions(self) -> Mapping[str, TopicSubscription]:
        """All subscriptions by name."""
        return self.subscribing.subscriptions

    def check_open(self) -> None:
        """Raise ``TopicFenced`` if the topic refuses all clients."""
        if self.is_fenced:
            raise TopicFenced(str(self.name))

    @property
    def connected_count(self) -> int:
        """How many producers and consumers are connected."""
        return sum(part.connected_count for part in self.parts)

    def note_use(self) -> None:
        """Count the topic as used until now: a client or a subscription leaves."""
        self.last_used_s = self._services.clock.monotonic()

    def is_used(self, rule: Inactivity) -> bool:
        """Whether a client or a part keeps the topic from being deleted by ``rule``."""
        return bool(self.connected_count) or any(part.is_used(rule) for part in self.parts)

    @property
    def retention_ms(self) -> int:
        """How long acknowledged messages are retained; -1 for no limit."""
        return 0 if self._log is None else self._log.trimmer.retention.time_ms

    # Rates

    def tick(self, now_s: float) -> None:
        """A stats period ended: compute the rates of the topic and of its clients."""
        # Parts first, which use the period that the topic's own meter ends below.
        period_s = self.meter.elapsed_s(now_s)
        for part in self.parts:
            part.tick(now_s, period_s)
        publishing = self.publishing
        sent = [each.sent() for each in self.subscriptions.values()]
        self.meter.tick(
            now_s,
            publishing.messages_in,
            publishing.bytes_in,
            sum(each.messages for each in sent),
            sum(each.size_bytes for each in sent),
        )

    # What is done to messages

    def cursors_moved(self) -> None:
        """Tell all parts that a quota or a truncation moved cursors on."""
        for part in self.parts:
            part.cursors_moved()

    async def terminate(self) -> Position:
        """Take no more messages from now on, and return the position of the last one.

        Consumers still read. Producers are disconnected once all that they sent is confirmed, and
        refused when they reconnect. Raises ``StorageUnavailable``.
        """
        # Producers are refused even if it fails: the log may be terminated all the same.
        try:
            position = await self.managed_ledger.termination.terminate()
        finally:
            self.publishing.refuse_all(TopicTerminated())
        for part in self.parts:
            part.terminated()
        return position

    async def truncate(self) -> None:
        """Delete all present messages, compacted ones too, whether or not they are acknowledged.

        Raises ``TopicFenced``, ``StorageUnavailable``.
        """
        managed_ledger = self.managed_ledger
        # Parts that keep entries of their own, such as compacted ones, before the log.
        for part in self.parts:
            await part.truncate()
        try:
            await managed_ledger.truncate()
        finally:
            self.cursors_moved()

    # Ending

    def disconnect_all(self) -> None:
        """Disconnect all clients; they look the topic up again."""
        self.is_fenced = True
        for part in self.parts:
            part.disconnect()

    async def _close(self) -> None:
        # Clients first: nothing new comes while the parts store what they have.
        self.disconnect_all()
        closing = _overriding(PERSISTENT if self.keeps_messages else NON_PERSISTENT, "close")
        try:
            async with asyncio.timeout_at(self.close_by_s):
                # Side by side; a part that fails does not keep the others, and the log, open.
                results = await asyncio.gather(
                    *(self.parts[index].close() for index in closing), return_exceptions=True
                )
                for error in results:
                    if error is not None:
                        log.error(
                            "part not closed", exc_info=error, extra={"topic": str(self.name)}
                        )
        except TimeoutError:
            log.warning("cursors left open", extra={"topic": str(self.name)})
        # Now the log, by the same deadline; what stays open is recovered by the next owner.
        try:
            async with asyncio.timeout_at(self.close_by_s):
                await super()._close()
        except TimeoutError:
            log.warning("topic left open", extra={"topic": str(self.name)})

    async def _close_parts(self) -> None:
        if self._log is not None:
            await self._log.__aexit__(None, None, None)
        # Not earlier: while the log closes, it still asks the parts what it may trim.
        for part in self.parts:
            part.release()

    async def delete(self) -> None:
        """Disconnect all clients and delete everything stored. Close the topic after that."""
        # The log last: as long as it exists, a deletion that failed can be repeated.
        self.disconnect_all()
        for part in reversed(self.parts):
            await part.delete()
        if self._log is not None:
            await self._log.delete()
