"""What a topic is made of: its parts, one for each feature, and what they may ask of their topic.

``parts.py`` lists them, and a new feature is a module with a part and a line there. Whatever comes
to a topic (policies, a cursor that was stored, a producer, a durable run, a stats period, its end)
comes to all of its parts, in the order of that list, unless it says otherwise below.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from geminga_broker.compaction.options import CompactionOptions
from geminga_broker.counting.durations import Durations
from geminga_broker.log.append_request import AppendRequest
from geminga_broker.log.cursor import Cursor
from geminga_broker.log.logs import Logs
from geminga_broker.log.managed_ledger import ManagedLedger
from geminga_broker.log.positions import Entry, Position
from geminga_broker.subscriptions.expiry import Expiry, ExpiryOptions
from geminga_broker.subscriptions.gate import Gate, LimitOf
from geminga_broker.topics.consuming.dispatch_policies import DispatchOptions
from geminga_broker.topics.inactivity import Inactivity
from geminga_broker.topics.policies import TopicPolicies
from geminga_broker.topics.producing.producers import Producer
from geminga_broker.topics.producing.publish_policies import PublishOptions
from geminga_broker.topics.producing.publish_rate import PublishLimits, PublishRate
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError

log = logging.getLogger(__name__)

PartT = TypeVar("PartT", bound="TopicPart")

Step = Callable[[Producer, Sequence[AppendRequest]], None]
"""Takes a run of one producer on its way to the log; raises ``BrokerError``, then nothing of the
run is taken."""


class TopicServices:
    """What the topics of a broker share, and the broker's settings as far as they are no policies.

    ``broker_rate`` counts what is published to all of them, ``broker_gate`` what is dispatched,
    where that is limited. How long publishing takes is added to ``publish_durations``.
    """

    def __init__(
        self,
        logs: Logs,
        clock: Clock,
        *,
        publishing: PublishOptions,
        dispatching: DispatchOptions,
        compaction: CompactionOptions,
        expiry: ExpiryOptions,
        backlog_quota_check_s: float,
    ) -> None:
        self.logs = logs
        self.clock = clock
        self.publishing = publishing
        self.compaction = compaction
        self.expiry = expiry
        self.backlog_quota_check_s = backlog_quota_check_s
        self.publish_durations = Durations()
        self.broker_rate: PublishRate | None = None
        limits = PublishLimits(
            publishing.broker_messages_per_s_max, publishing.broker_bytes_per_s_max
        )
        if not limits.is_unlimited:
            self.broker_rate = PublishRate(limits, clock.monotonic())
        self.broker_gate: Gate | None = None
        if not dispatching.broker_limit.is_unlimited:
            self.broker_gate = Gate(dispatching.broker_limit, clock, limit_of=LimitOf.BROKER)


class OwningTopic(Protocol):
    """The topic, as far as its parts know it."""

    name: TopicName
    policies: TopicPolicies
    parts: tuple[TopicPart, ...]

    @property
    def keeps_messages(self) -> bool:
        """Whether it has a log."""
        ...

    @property
    def managed_ledger(self) -> ManagedLedger:
        """Its log. Raises ``NotAllowed`` where it has none."""
        ...

    @property
    def is_fenced(self) -> bool:
        """Whether the topic takes nobody any more: another broker has its log, or it is ending."""
        ...

    @property
    def publish_rates(self) -> tuple[float, float]:
        """Messages and bytes a second, in the last stats period."""
        ...

    def part(self, kind: type[PartT]) -> PartT:
        """The part of that kind. Raises ``NotAllowed`` where the topic has none."""
        ...

    def claims(self, cursor_name: str) -> bool:
        """Whether some part has cursors of that name: no subscription can be called so."""
        ...

    async def enter_cursor(self, cursor: Cursor) -> None:
        """Tie a cursor to the topic and open it."""
        ...

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """What was given to the log is durable."""
        ...

    def cursors_moved(self) -> None:
        """Cursors were moved on, by a quota or a truncation."""
        ...

    def check_open(self) -> None:
        """Raise ``TopicFenced`` where the topic takes nobody any more."""
        ...

    def note_use(self) -> None:
        """Somebody used the topic until now."""
        ...

    def spawn(self, work: Coroutine[Any, Any, object], *, name: str) -> asyncio.Task[object]:
        """Do ``work`` in the background while the topic is open."""
        ...


class TopicPart:
    """A feature of one topic. A part overrides what concerns it: here, everything does nothing.

    ``topic`` is a weak reference, so that a topic is freed as soon as it is closed; it has no parts
    yet while they are constructed. ``apply`` is called before all else.
    """

    __slots__ = ("_topic",)

    has_backlog: ClassVar[bool] = False
    """Whether messages that its cursors have not passed are still to be delivered to somebody: they
    count for the backlog's quotas, which may move these cursors on."""

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        del services
        self._topic = topic

    def apply(self, policies: TopicPolicies) -> None:
        """From now on these hold; the topic's ``policies`` are these already. Comes to the last
        part first: the first one then puts the steps of publishing together, as they all say."""

    # Loading: the log is open

    def claims(self, cursor_name: str) -> bool:
        """Whether a cursor of that name is this part's; one that no part claims is that of a
        subscription."""
        del cursor_name
        return False

    async def adopt(self, cursor: Cursor) -> None:
        """Take a cursor that was stored, and ``enter_cursor`` it."""

    async def opened(self) -> None:
        """All cursors are with their parts; after this the topic serves."""

    def cursors(self) -> list[Cursor]:
        """Its cursors that are entered: they keep ledgers from being trimmed."""
        return []

    def reads_from(self) -> Position | None:
        """The least position that it has still to read: entries from there on stay in the cache."""
        return None

    # Publishing

    def before(self, take: Step) -> Step:
        """The step that is to be before ``take``, or ``take``: what is off is in nobody's way."""
        return take

    async def check_producer(self, producer: Producer) -> None:
        """Raise ``BrokerError`` for one that may not be let in."""

    def producer_let_in(self, producer: Producer) -> None:
        """A producer may publish from now on."""

    def producer_gone(self, producer: Producer) -> None:
        """One that was let in is here no more."""

    def last_sequence_id(self, producer_name: str) -> int | None:
        """The last number that was sent under this name; None where the part does not keep it."""
        del producer_name
        return None

    async def settled(self, producer_name: str) -> None:
        """Return when what was sent under this name is stored or lost, as far as that has to be
        known before a producer of the name goes on."""

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """A run is durable and cached; ``batch`` is what it came from."""

    def log_fenced(self) -> None:
        """Another broker has the log: what is still on its way there will never be confirmed."""

    # Who is connected

    @property
    def connected_count(self) -> int:
        """How many clients are connected to it."""
        return 0

    def is_used(self, rule: Inactivity) -> bool:
        """Whether somebody needs the topic, in the sense of ``rule``, who is not connected."""
        del rule
        return False

    def disconnect(self) -> None:
        """Let all clients go: they look the topic up again."""

    # What happens to messages

    async def expire(self, expiry: Expiry) -> None:
        """Pass what has grown too old. Raises ``StorageUnavailable``."""

    async def forget_messages(self) -> None:
        """All messages are about to be deleted. Raises ``StorageUnavailable``."""

    def cursors_moved(self) -> None:
        """Cursors were moved on, by a quota or a truncation: what they have passed is not to be
        sent any more."""

    def terminated(self) -> None:
        """The topic takes no more messages, for ever."""

    # Time goes by

    def tick(self, now_s: float, period_s: float) -> None:
        """Once a stats period, which lasted so long: renew the rates."""

    @classmethod
    def period_s(cls, services: TopicServices) -> float:
        """Seconds between two times that all topics' parts of this kind are looked after; 0: they
        never are."""
        del services
        return 0.0

    @property
    def needs_care(self) -> bool:
        """Whether ``look_after`` would do anything now: asked of all topics, of which there may be
        very many."""
        return False

    async def look_after(self) -> None:
        """Once in a while. Raises ``GemingaError``, which is logged."""

    @classmethod
    async def look_after_all(cls, parts: Sequence[TopicPart]) -> None:
        """Look after these, which are of this kind and need it, one after the other."""
        for part in parts:
            await part.attempt(part.look_after)

    async def attempt(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do periodic ``work`` unless the topic is ending. An error is logged: other topics' parts
        are looked after all the same."""
        if self._topic.is_fenced:
            return
        try:
            await work()
        except GemingaError as error:
            log.warning(
                "topic not looked after",
                extra={
                    "topic": str(self._topic.name),
                    "part": type(self).__name__,
                    "error": str(error),
                },
            )

    # Ending

    async def close(self) -> None:
        """Keep what the next owner must know; the log is still open. Side by side with the other
        parts, and within the time that closing may take: after that it is cancelled."""

    def let_go(self) -> None:
        """The log is closed: keep nothing that knows this part, so that all is freed at once."""

    async def delete(self) -> None:
        """Delete what is stored; the log is deleted after this. Comes to the last part first."""
