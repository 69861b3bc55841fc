"""How a topic may be published to: what a broker is told, and what holds for a topic. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge, Gt

from magnetar_protocol.records.namespaces import Policies


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """The broker's settings, which hold where a namespace says nothing; upstream's names in
    brackets, its defaults here."""

    deduplication: bool = False
    """Whether a message that is sent again is stored once (brokerDeduplicationEnabled)."""
    deduplication_producers_max: Annotated[int, Gt(0)] = 10_000
    """Of so many producers of a topic is it kept what they sent
    (brokerDeduplicationMaxNumberOfProducers)."""
    deduplication_snapshot_entries: Annotated[int, Gt(0)] = 1000
    """So often is that written, counted in entries (brokerDeduplicationEntriesInterval): no more
    are read again when a topic is loaded after a crash,"""
    deduplication_snapshot_interval_s: Annotated[int, Ge(0)] = 120
    """or by time; 0: not by time (brokerDeduplicationSnapshotIntervalSeconds)."""
    deduplication_check_s: Annotated[float, Gt(0)] = 120.0
    """How often it is looked whose time has come (brokerDeduplicationSnapshotFrequencyInSeconds).
    """
    deduplication_producer_idle_s: Annotated[float, Gt(0)] = 360 * 60.0
    """A producer that is away for so long is forgotten
    (brokerDeduplicationProducerInactivityTimeoutMinutes)."""


DEFAULT_OPTIONS = PublishOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishPolicies:
    """What holds for one topic."""

    deduplicates: bool = False
    snapshot_interval_s: int = 0

    @classmethod
    def default(cls, options: PublishOptions) -> PublishPolicies:
        """What holds where a namespace says nothing."""
        return cls(
            deduplicates=options.deduplication,
            snapshot_interval_s=options.deduplication_snapshot_interval_s,
        )


def publish_policies(policies: Policies, default: PublishPolicies) -> PublishPolicies:
    """What holds in a namespace with ``policies``."""
    interval_s = policies.deduplication_snapshot_interval_s
    is_enabled = policies.deduplication_enabled
    return replace(
        default,
        deduplicates=default.deduplicates if is_enabled is None else is_enabled,
        snapshot_interval_s=default.snapshot_interval_s if interval_s is None else interval_s,
    )
