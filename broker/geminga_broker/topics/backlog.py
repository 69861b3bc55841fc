"""The backlog of one persistent topic: how large and how old it is, and keeping it within its
quotas. The rules are in ``backlog_quota``.

Only durable subscriptions count: one that is not holds nothing back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol
from weakref import proxy

from geminga_broker.errors import (
    BrokerError,
    ProducerHeldByQuota,
    ProducerRefusedByQuota,
)
from geminga_broker.log.cursor import Cursor
from geminga_broker.log.managed_ledger import ManagedLedger
from geminga_broker.log.payloads import entry_time_ms
from geminga_broker.log.positions import Position
from geminga_broker.log.search import first_position_where, read_one
from geminga_broker.policies.backlog import (
    UNLIMITED,
    Quota,
    QuotaPolicy,
    is_age_exceeded,
    is_size_exceeded,
)
from geminga_protocol.records.compacted_ledger import COMPACTION_CURSOR
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)


class Cursors(Protocol):
    """The topic, as far as its backlog must know it."""

    def cursors(self) -> Iterable[Cursor]:
        """The cursors of all subscriptions."""
        ...


@dataclass(frozen=True, slots=True)
class OldestMessage:
    """The oldest message that a subscription has not acknowledged; Unix time in ms."""

    published_ms: int
    subscription: str


class Backlog:
    """What the durable subscriptions of a topic have left behind. ``quotas`` may be set at any
    time. ``oldest`` is the message that was found when the age was last looked at; the evictions
    are those since the topic was loaded."""

    __slots__ = (
        "_clock",
        "_log",
        "_topic",
        "age_evictions",
        "oldest",
        "quotas",
        "size_evictions",
    )

    def __init__(self, managed_ledger: ManagedLedger, topic: Cursors, clock: Clock) -> None:
        self.quotas = UNLIMITED
        self.oldest: OldestMessage | None = None
        self.size_evictions = 0
        self.age_evictions = 0
        self._log = managed_ledger
        self._topic: Cursors = proxy(topic)
        self._clock = clock

    def _durable(self) -> list[Cursor]:
        return [
            cursor
            for cursor in self._topic.cursors()
            if cursor.is_durable and cursor.name != COMPACTION_CURSOR
        ]

    @property
    def size_bytes(self) -> int:
        """About how many bytes lie behind the slowest subscription; 0 without any."""
        chain = self._log.chain
        marks = [cursor.mark_delete for cursor in self._durable()]
        return chain.bytes_between(min(marks), chain.last_confirmed) if marks else 0

    async def oldest_s(self) -> float | None:
        """How old the oldest unacknowledged message is; None where there is none.

        Reads an entry. Raises ``StorageUnavailable``.
        """
        self.oldest = None
        slowest = min(self._durable(), key=lambda cursor: cursor.mark_delete, default=None)
        if slowest is None:
            return None
        position = self._log.chain.next_after(slowest.mark_delete)
        if position > self._log.chain.last_confirmed:
            return None
        published_ms = entry_time_ms(await read_one(self._log, position))
        self.oldest = OldestMessage(published_ms, slowest.name)
        return (self._clock.wall_ms() - published_ms) / 1000

    def age_s(self, message: OldestMessage) -> int:
        """How old ``message`` is now, in whole seconds."""
        return (self._clock.wall_ms() - message.published_ms) // 1000

    # Quotas

    async def check_producer(self) -> None:
        """Raise ``ProducerHeldByQuota`` or ``ProducerRefusedByQuota`` for one more producer."""
        size, age = self.quotas.size, self.quotas.age
        if size and size.policy.stops_producers and is_size_exceeded(size, self.size_bytes):
            raise _refusal(size)
        if age and age.policy.stops_producers and is_age_exceeded(age, await self.oldest_s()):
            raise _refusal(age)

    async def reduce(self) -> bool:
        """Evict what is too much; True where the quota's policy is to let producers go instead.

        Raises ``StorageUnavailable``.
        """
        size, age = self.quotas.size, self.quotas.age
        if size and is_size_exceeded(size, self.size_bytes):
            self._tell(size, "size")
            if not size.policy.stops_producers:
                self._pass(self._log.chain.position_leaving(size.target))
                self.size_evictions += 1
            return size.policy.stops_producers
        if age and is_age_exceeded(age, await self.oldest_s()):
            self._tell(age, "age")
            if not age.policy.stops_producers:
                await self._evict_older_than(age.target)
                self.age_evictions += 1
            return age.policy.stops_producers
        return False

    async def _evict_older_than(self, age_s: int) -> None:
        limit_ms = self._clock.wall_ms() - age_s * 1000
        first_kept = await first_position_where(
            self._log, lambda payload: entry_time_ms(payload) >= limit_ms
        )
        self._pass(self._log.chain.previous_of(first_kept))

    def _pass(self, position: Position) -> None:
        """Let every durable subscription go on behind ``position``."""
        for cursor in self._durable():
            if cursor.acknowledged.acknowledge_upto(position):
                cursor.changed()

    def _tell(self, quota: Quota, kind: str) -> None:
        log.info(
            "backlog quota exceeded",
            extra={
                "log": self._log.name,
                "kind": kind,
                "limit": quota.limit,
                "policy": quota.policy.value,
            },
        )


def _refusal(quota: Quota) -> BrokerError:
    reason = "Cannot create producer on topic with backlog quota exceeded"
    if quota.policy is QuotaPolicy.HOLD_PRODUCERS:
        return ProducerHeldByQuota(reason)
    return ProducerRefusedByQuota(reason)
