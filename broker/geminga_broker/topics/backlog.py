"""The backlog of one topic: its size and age, its quotas, and the expiry of its messages.

The rules of quotas are in ``policies.backlog``. Only durable cursors count: the log is trimmed past
the others.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from geminga_broker.errors import ProducerHeldByQuota, ProducerRefusedByQuota
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.reading.payloads import entry_time_ms
from geminga_broker.policies.backlog import (
    Quota,
    QuotaPolicy,
    is_age_exceeded,
    is_size_exceeded,
)
from geminga_broker.topics.part import OwningTopic, TopicPart, TopicServices
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.producers.publish_path import PublishPath

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OldestMessage:
    """The oldest message that a subscription has not acknowledged."""

    # Unix time.
    published_ms: int
    # The name of its cursor, which is a replicator's for messages not yet replicated.
    subscription: str


class Backlog(TopicPart):
    """The entries that cursors of parts with a backlog have not passed, and the quotas on them."""

    __slots__ = ("_clock", "age_evictions", "oldest", "size_evictions")

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        super().__init__(topic, services)
        # What the last check of the age has found. Shown in stats as the last check left it, so
        # that showing them costs no read. None before the first check, while a check reads, and
        # where there is no backlog.
        self.oldest: OldestMessage | None = None
        # How often a quota moved cursors on, since the topic was loaded. Upstream's counters of
        # evictions, by the kind of the quota.
        self.size_evictions = 0
        self.age_evictions = 0
        self._clock = services.clock

    def _durable(self) -> list[Cursor]:
        """The durable cursors of subscriptions and replicators."""
        # Compaction and deduplication have durable cursors as well, which owe no consumer anything.
        # The log deletes ledgers past the cursors of readers, which are not durable: these hold
        # nothing back.
        owing = (part for part in self._topic.parts if part.has_backlog)
        return [cursor for part in owing for cursor in part.cursors() if cursor.is_durable]

    @property
    def size_bytes(self) -> int:
        """Roughly how many bytes of the log the slowest cursor has not passed; 0 without any."""
        chain = self._topic.managed_ledger.chain
        marks = [cursor.mark_delete for cursor in self._durable()]
        return chain.bytes_between(min(marks), chain.last_confirmed) if marks else 0

    async def oldest_s(self) -> float | None:
        """The age of the oldest unacknowledged message in seconds; None if there is none.

        Reads an entry. Raises ``StorageUnavailable``.
        """
        # Forgotten first: if the read fails, the old answer must not be shown.
        self.oldest = None
        # Chosen before the read below. The cursor may move on meanwhile: the answer is then a
        # little too old, and the next check finds that.
        slowest = min(self._durable(), key=lambda cursor: cursor.mark_delete, default=None)
        if slowest is None:
            return None
        # The cursor with the lowest mark-delete position has the oldest message; entries that it
        # acknowledged beyond that do not matter.
        reader = self._topic.managed_ledger.reader
        # Empty and trimmed ledgers between both are skipped.
        position = self._topic.managed_ledger.chain.next_after(slowest.mark_delete)
        if position > reader.readable_upto:
            return None
        # When the broker took it, where the entry says so, else when its producer sent it: time to
        # live and the quota on age go by the same time.
        published_ms = entry_time_ms(await reader.read_one(position))
        self.oldest = OldestMessage(published_ms, slowest.name)
        return (self._clock.wall_ms() - published_ms) / 1000

    def age_s(self, message: OldestMessage) -> int:
        """The age of ``message`` now, in whole seconds."""
        return (self._clock.wall_ms() - message.published_ms) // 1000

    # Quotas

    async def check_producer(self, producer: Producer) -> None:
        """Raise ``ProducerHeldByQuota`` or ``ProducerRefusedByQuota`` if a quota is exceeded whose
        policy is to refuse producers."""
        del producer
        # The age last, because it costs a read.
        size, age = self._topic.policies.quotas.size, self._topic.policies.quotas.age
        if size and size.policy.stops_producers and is_size_exceeded(size, self.size_bytes):
            exceeded = size
        elif age and age.policy.stops_producers and is_age_exceeded(age, await self.oldest_s()):
            exceeded = age
        else:
            return
        reason = "Cannot create producer on topic with backlog quota exceeded"
        # The two errors have different codes in the protocol: after the first a client that can
        # wait tries again, after the second its application gets an exception.
        if exceeded.policy is QuotaPolicy.HOLD_PRODUCERS:
            raise ProducerHeldByQuota(reason)
        raise ProducerRefusedByQuota(reason)

    @property
    def needs_maintenance(self) -> bool:
        """Whether there is a quota."""
        return not self._topic.policies.quotas.is_unlimited

    async def maintain(self) -> None:
        """Evict the oldest messages if a quota is exceeded, or disconnect the producers if that is
        its policy. Raises ``StorageUnavailable``."""
        # The stages: which quota is exceeded, by its policy; for an eviction up to where; then the
        # cursors.
        managed_ledger, quotas = self._topic.managed_ledger, self._topic.policies.quotas
        exceeded: Quota | None = None
        kind = "size"
        # The age, which costs a read, only if the size is within its quota.
        if quotas.size and is_size_exceeded(quotas.size, self.size_bytes):
            exceeded = quotas.size
        elif quotas.age and is_age_exceeded(quotas.age, await self.oldest_s()):
            exceeded, kind = quotas.age, "age"
        if exceeded is None:
            return
        log.info(
            "backlog quota exceeded",
            extra={
                "log": managed_ledger.name,
                "kind": kind,
                "limit": exceeded.limit,
                "policy": exceeded.policy.value,
            },
        )
        if exceeded.policy.stops_producers:
            # They reconnect, and ``check_producer`` refuses them with the reason. Messages that the
            # producers have sent already are stored; consumers make room by acknowledging.
            self._topic.part(PublishPath).disconnect()
            return
        if kind == "size":
            # Some way below the limit, or the next message would exceed it again.
            upto = managed_ledger.chain.position_leaving(exceeded.target)
            self.size_evictions += 1
        else:
            # Cursors go on acknowledging while the entries below are read. That does no harm: a
            # position is only ever moved forward.
            limit_ms = self._clock.wall_ms() - exceeded.target * 1000
            first_kept = await managed_ledger.reader.first_where(
                lambda payload: entry_time_ms(payload) >= limit_ms
            )
            upto = managed_ledger.chain.previous_of(first_kept)
            self.age_evictions += 1
        # Cursors that are beyond it already do not change, and are not written. No await from here
        # on. Dispatchers are told after all cursors have moved, and skip what they hold.
        for cursor in self._durable():
            if cursor.acknowledged.acknowledge_upto(upto):
                cursor.changed()
        self._topic.cursors_moved()


class MessageExpiry(TopicPart):
    """Lets all parts pass messages that are older than the time to live."""

    __slots__ = ()

    @property
    def needs_maintenance(self) -> bool:
        """Whether messages have a time to live."""
        return self._topic.policies.expiry.ttl_s > 0

    async def maintain(self) -> None:
        """Let all parts pass messages that are too old. Raises ``StorageUnavailable``."""
        # One after the other: each reads some entries of the log to find where the old ones end.
        for part in self._topic.parts:
            await part.expire(self._topic.policies.expiry)
