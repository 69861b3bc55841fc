"""What a persistent topic does with messages before they go to its log, as its policies say.

Whatever is turned on stands as one more step before the log; producers are handed the first step.
When a policy changes they are handed another one: a step that is off costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol, cast
from weakref import proxy

from geminga_broker.delayed.deliver_at import is_delayed_longer
from geminga_broker.log.appender import Pending
from geminga_broker.log.cursor import Cursor
from geminga_broker.log.logs import Logs
from geminga_broker.log.managed_ledger import ManagedLedger
from geminga_broker.log.positions import Position
from geminga_broker.policies.publishing import PublishConfig, PublishPolicies
from geminga_broker.topics.producing.deduplication import Deduplication, delete_cursor
from geminga_broker.topics.producing.producers import Producer, Producers
from geminga_broker.topics.producing.publish_gate import Append, PublishGate
from geminga_broker.topics.producing.publish_rate import PublishRate
from geminga_broker.topics.producing.sequence_ids import NO_SEQUENCE_ID
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError

log = logging.getLogger(__name__)


def _take_nothing(_: Sequence[Pending]) -> None:
    """The last step of a topic that is closed: its producers are gone."""


class IntakeTopic(Protocol):
    """The topic, as far as its intake must know it."""

    name: TopicName
    managed_ledger: ManagedLedger
    producers: Producers

    def append(self, items: Sequence[Pending]) -> None:
        """Hand messages to the log."""
        ...

    async def enter_cursor(self, cursor: Cursor) -> None:
        """Tie a cursor to the topic and open it."""
        ...


class Intake:
    """Of one topic. ``apply`` comes first and whenever its policies change; what takes time is
    done by ``opened`` and ``catch_up``. ``broker_rate`` counts all topics of the broker."""

    __slots__ = (
        "_behind_delays",
        "_clock",
        "_config",
        "_delay_max_ms",
        "_gate",
        "_logs",
        "_topic",
        "deduplication",
    )

    def __init__(
        self,
        topic: IntakeTopic,
        logs: Logs,
        clock: Clock,
        config: PublishConfig,
        broker_rate: PublishRate | None = None,
    ) -> None:
        self.deduplication: Deduplication | None = None
        self._topic: IntakeTopic = proxy(topic)
        self._logs = logs
        self._clock = clock
        self._config = config
        self._gate = PublishGate(str(topic.name), topic.producers, clock, broker_rate)
        self._delay_max_ms = 0

    def limit_delays(self, delay_max_ms: int) -> None:
        """From now on refuse messages that are delayed for longer than this; 0: none."""
        if delay_max_ms != self._delay_max_ms:
            self._delay_max_ms = delay_max_ms
            self._rearrange()

    @property
    def cursor(self) -> Cursor | None:
        """The cursor by which repeats are known, where there is one."""
        return None if self.deduplication is None else self.deduplication.cursor

    # Following the policies

    def apply(self, policies: PublishPolicies) -> None:
        """From now on these hold, as far as that takes no time."""
        self._gate.apply(policies)
        self._rearrange()
        self._gate.let_go()

    @property
    def pauses(self) -> int:
        """How often somebody was not read for a while, since the topic was loaded."""
        return self._gate.pauses

    @property
    def policies(self) -> PublishPolicies:
        """Those that hold."""
        return self._gate.policies

    def check(self, producer: Producer) -> None:
        """Raise ``InvalidRequest``, ``ProducerBusy`` for one that may not be let in."""
        self._gate.check(producer)

    async def opened(self, cursor: Cursor | None) -> None:
        """The topic has been loaded; ``cursor`` is what it kept to know repeats by."""
        if self.policies.deduplicates:
            await self._begin_deduplication(cursor)
        elif cursor is not None:
            await delete_cursor(cursor)

    @property
    def is_behind(self) -> bool:
        """Whether ``catch_up`` has something to do."""
        present = self.deduplication
        return self.policies.deduplicates is not (present is not None and present.is_enabled)

    async def catch_up(self) -> None:
        """Turn on and off what the policies say; where that fails, it is tried again later."""
        try:
            while self.is_behind:
                if self.policies.deduplicates:
                    await self._begin_deduplication(self.cursor)
                else:
                    await self._end_deduplication()
        except GemingaError as error:
            log.warning(
                "deduplication not changed",
                extra={"log": self._topic.managed_ledger.name, "error": str(error)},
            )

    async def _begin_deduplication(self, cursor: Cursor | None) -> None:
        topic = self._topic
        if self.deduplication is None:
            self.deduplication = Deduplication(
                topic.managed_ledger,
                self._logs,
                self._clock,
                self._config,
                append=topic.append,
                enter=topic.enter_cursor,
            )
        await self.deduplication.enable(cursor)
        for producer in topic.producers:
            self.deduplication.connected(producer)
        self._rearrange()

    async def _end_deduplication(self) -> None:
        if self.deduplication is not None:
            self._rearrange()
            await self.deduplication.disable()
            self.deduplication = None

    def _rearrange(self) -> None:
        """Hand the first step to the producers."""
        for producer in self._topic.producers:
            self._lead_in(producer)

    def _lead_in(self, producer: Producer) -> None:
        """Steps want to know whose messages they take; the log does not."""
        producer.append_all = self._first_step()
        producer.is_mixable = producer.append_all == self._topic.append

    def _first_step(self) -> Append:
        """Put the steps that are on together, from the last to the first: each knows the one behind
        it."""
        first: Append = self._topic.append
        deduplication = self.deduplication
        if self.policies.deduplicates and deduplication is not None and deduplication.is_enabled:
            first = deduplication.take
        if self._delay_max_ms:
            self._behind_delays, first = first, self._take_not_too_late
        return self._gate.before(first)

    # Steps

    def _take_not_too_late(self, items: Sequence[Pending]) -> None:
        """Refuse what is delayed for too long."""
        limit_ms = self._delay_max_ms
        allowed: list[Pending] = []
        for item in items:
            if is_delayed_longer(item[0], limit_ms):
                reason = f"Exceeds max allowed delivery delay of {limit_ms} milliseconds"
                cast(Producer, item[2]).refuse(item, api.NotAllowedError, reason)
            else:
                allowed.append(item)
        if allowed:
            self._behind_delays(allowed)

    # Producers

    def welcome(self, producer: Producer) -> None:
        """A producer is let in."""
        self._lead_in(producer)
        producer.has_stamps = self._topic.managed_ledger.stamps is not None
        if self.deduplication is not None:
            self.deduplication.connected(producer)

    async def settled(self, name: str) -> None:
        """Return when ``last_sequence_id`` is that of a stored message."""
        if self.deduplication is not None:
            await self.deduplication.settled(name)

    def last_sequence_id(self, name: str) -> int:
        """The last number sent under this name, -1 where that is not kept."""
        if self.deduplication is None:
            return NO_SEQUENCE_ID
        return self.deduplication.last_sequence_id(name)

    def left(self, producer: Producer) -> None:
        """A producer has gone."""
        if self.deduplication is not None:
            self.deduplication.disconnected(producer)

    def stored(self, ledger_id: int, last_entry_id: int, batch: Sequence[Pending]) -> None:
        """A run is durable: called where anything wants to know."""
        if self.deduplication is not None:
            self.deduplication.stored(Position(ledger_id, last_entry_id), batch)

    # Ending

    def sweep(self) -> None:
        """Once in a while."""
        if self.deduplication is not None:
            self.deduplication.sweep(self.policies.snapshot_interval_s)

    async def close(self) -> None:
        """Keep what the next owner must know."""
        if self.deduplication is not None:
            await self.deduplication.close()

    def let_go(self) -> None:
        """The topic is closed: keep no steps, which know it, so that it is freed at once."""
        self.deduplication = None
        self._behind_delays = _take_nothing
        self._gate.before(_take_nothing)

    async def delete(self) -> None:
        """Delete what is kept."""
        if self.deduplication is not None:
            await self.deduplication.disable()
            self.deduplication = None
