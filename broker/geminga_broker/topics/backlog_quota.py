"""How much a topic's subscriptions may leave unacknowledged, and what happens beyond that. Pure.

The rules are upstream's (``PersistentTopic``, ``BacklogQuotaManager``). Size is what lies behind
the slowest durable subscription; age is that of its oldest message. The policies that stop
producers let those who are connected go, and refuse them when they come back; eviction moves the
subscriptions on until nine tenths of the limit are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from geminga_broker.log.chain import LedgerChain
from geminga_broker.log.positions import Position
from geminga_broker.metadata.policy_rules import (
    CONSUMER_BACKLOG_EVICTION,
    DESTINATION_STORAGE,
    MESSAGE_AGE,
    PRODUCER_EXCEPTION,
    PRODUCER_REQUEST_HOLD,
    quota_bytes,
)
from geminga_protocol.records.namespaces import BacklogQuota

TENTHS_LEFT = 9
"""So many tenths of the limit does an eviction leave."""


class QuotaPolicy(Enum):
    """What happens where a limit is reached; the values are upstream's names."""

    HOLD_PRODUCERS = PRODUCER_REQUEST_HOLD
    REFUSE_PRODUCERS = PRODUCER_EXCEPTION
    EVICT_BACKLOG = CONSUMER_BACKLOG_EVICTION

    @property
    def stops_producers(self) -> bool:
        """Whether producers pay, not subscriptions."""
        return self is not QuotaPolicy.EVICT_BACKLOG


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit (bytes or seconds) and what happens where it is reached."""

    limit: int
    policy: QuotaPolicy

    @property
    def target(self) -> int:
        """What an eviction leaves, in the limit's unit."""
        return self.limit * TENTHS_LEFT // 10


@dataclass(frozen=True, slots=True)
class BacklogQuotas:
    """The limits of a topic: ``size`` in bytes, ``age`` in seconds; None is unlimited."""

    size: Quota | None = None
    age: Quota | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether there is nothing to check."""
        return self.size is None and self.age is None


UNLIMITED = BacklogQuotas()


def size_quota(limit_bytes: int, policy: str | None) -> Quota | None:
    """None for a limit below 0; one of 0 is reached by every topic, as upstream has it."""
    return None if limit_bytes < 0 else Quota(limit_bytes, _policy(policy))


def age_quota(limit_s: int, policy: str | None) -> Quota | None:
    """None for a limit of 0 or below."""
    return None if limit_s <= 0 else Quota(limit_s, _policy(policy))


def _policy(name: str | None) -> QuotaPolicy:
    """What upstream writes no record without; holding producers loses nothing."""
    known = {each.value: each for each in QuotaPolicy}
    return known.get(name or "", QuotaPolicy.HOLD_PRODUCERS)


def quotas_of(namespace: Mapping[str, BacklogQuota], default: BacklogQuotas) -> BacklogQuotas:
    """What holds where the namespace has these quotas and the broker that default."""
    by_size, by_age = namespace.get(DESTINATION_STORAGE), namespace.get(MESSAGE_AGE)
    return BacklogQuotas(
        default.size if by_size is None else size_quota(quota_bytes(by_size), by_size.policy),
        default.age if by_age is None else age_quota(by_age.limit_time, by_age.policy),
    )


def is_size_exceeded(quota: Quota | None, backlog_bytes: int) -> bool:
    """Whether the backlog has reached its size."""
    return quota is not None and backlog_bytes >= quota.limit


def is_age_exceeded(quota: Quota | None, oldest_s: float | None) -> bool:
    """Whether the oldest message, None where there is none, is older than allowed."""
    return quota is not None and oldest_s is not None and oldest_s > quota.limit


def position_leaving(chain: LedgerChain, bytes_max: int) -> Position:
    """The least mark-delete position behind which at most ``bytes_max`` are left.

    As exact as ``LedgerChain.bytes_between``: entries of a ledger count as equally large.
    """
    left_bytes = bytes_max
    for span in reversed(chain.spans):
        if span.size_bytes > left_bytes:
            kept = left_bytes * span.entries // span.size_bytes
            return Position(span.ledger_id, span.entries - kept - 1)
        left_bytes -= span.size_bytes
    return chain.before_first
