"""All policies of a topic, resolved from its own, its namespace's and its broker's config. Pure.

Each subject resolves its own policies from the levels (``levels.nearest``); a new subject is a
line in each of the three places below.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.ledger_chain.retention import Retention
from geminga_broker.policies.auto_creation import AutoCreationConfig
from geminga_broker.policies.backlog import (
    UNLIMITED,
    BacklogConfig,
    BacklogQuotas,
    backlog_quotas,
)
from geminga_broker.policies.compaction import (
    CHANGE_EVENTS_THRESHOLD_BYTES,
    CompactionConfig,
    compaction,
)
from geminga_broker.policies.delayed import DelayedConfig, delayed
from geminga_broker.policies.dispatch import (
    DISPATCH_FREELY,
    DispatchConfig,
    DispatchPolicies,
    dispatch_policies,
)
from geminga_broker.policies.expiry import KEEP_ALL, Expiry, ExpiryConfig, expiry
from geminga_broker.policies.inactivity import NEVER, Inactivity, InactivityConfig, inactivity
from geminga_broker.policies.levels import Levels
from geminga_broker.policies.publish import (
    PUBLISH_FREELY,
    PublishConfig,
    PublishPolicies,
    publish_policies,
)
from geminga_broker.policies.replication import (
    NOT_REPLICATED,
    UNKNOWN,
    ReplicationPolicies,
    replication,
)
from geminga_broker.policies.schemas import (
    BY_DEFAULT,
    SchemaConfig,
    SchemaPolicies,
    schema_policies,
)
from geminga_broker.policies.storage import managed_ledger_config, retention
from geminga_broker.policies.subscriptions import (
    SUBSCRIBE_FREELY,
    SubscribeConfig,
    SubscribePolicies,
    subscribe_policies,
)
from geminga_broker.policies.unacknowledged import (
    NO_LIMITS,
    UnacknowledgedConfig,
    UnacknowledgedLimits,
    unacknowledged_limits,
)
from geminga_server.config import INLINE


# To add a subject: a field here, a field of ``EffectivePolicies``, and a line of
# ``effective_policies``; if system topics must not follow it, a line at the end of that, too.
@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """The broker's settings for all topics, subject by subject."""

    # How topics are stored, which the policies of ``storage`` change.
    log: ManagedLedgerConfig = field(default_factory=ManagedLedgerConfig)
    publishing: PublishConfig = field(default_factory=PublishConfig)
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    delayed: DelayedConfig = field(default_factory=DelayedConfig)
    expiry: ExpiryConfig = field(default_factory=ExpiryConfig)
    subscribing: SubscribeConfig = field(default_factory=SubscribeConfig)
    inactivity: InactivityConfig = field(default_factory=InactivityConfig)
    dispatching: DispatchConfig = field(default_factory=DispatchConfig)
    auto_creation: Annotated[AutoCreationConfig, INLINE] = field(default_factory=AutoCreationConfig)
    backlog: Annotated[BacklogConfig, INLINE] = field(default_factory=BacklogConfig)
    unacknowledged: Annotated[UnacknowledgedConfig, INLINE] = field(
        default_factory=UnacknowledgedConfig
    )
    schemas: Annotated[SchemaConfig, INLINE] = field(default_factory=SchemaConfig)


# The defaults are what a topic without any policy has. They are frozen, so that all topics share
# them.
@dataclass(frozen=True, slots=True, kw_only=True)
class EffectivePolicies:
    """What holds for one topic, subject by subject."""

    log: ManagedLedgerConfig = field(default_factory=ManagedLedgerConfig)
    # What is kept after all subscriptions have acknowledged it.
    retention: Retention = field(default_factory=Retention)
    # How large and how old its backlogs may become.
    quotas: BacklogQuotas = UNLIMITED
    # Deduplication, limits on producers, publish rates.
    publishing: PublishPolicies = PUBLISH_FREELY
    # How many messages its consumers may hold.
    unacknowledged: UnacknowledgedLimits = NO_LIMITS
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    delayed: DelayedConfig = field(default_factory=DelayedConfig)
    # After how long its messages expire.
    expiry: Expiry = KEEP_ALL
    # Limits on consumers and subscriptions, and the allowed types.
    subscribing: SubscribePolicies = SUBSCRIBE_FREELY
    # When it is deleted for not being used.
    inactivity: Inactivity = NEVER
    # How fast its messages are dispatched.
    dispatching: DispatchPolicies = DISPATCH_FREELY
    # Which schemas its producers may register.
    schemas: SchemaPolicies = BY_DEFAULT
    # To which clusters it is replicated, and how fast.
    replication: ReplicationPolicies = UNKNOWN


def effective_policies(
    config: PolicyConfig,
    levels: Levels,
    *,
    is_system: bool = False,
    is_change_events: bool = False,
) -> EffectivePolicies:
    """Resolve all policies of a topic.

    A system topic (``is_system``) follows those of storage only: brokers write to it, and no limit
    may stop them. ``is_change_events`` is the one that stores the policies of topics.
    """
    effective = EffectivePolicies(
        log=managed_ledger_config(config.log, levels),
        retention=retention(config.log, levels),
        quotas=backlog_quotas(config.backlog, levels),
        publishing=publish_policies(config.publishing, levels),
        unacknowledged=unacknowledged_limits(config.unacknowledged, levels),
        compaction=compaction(config.compaction, levels),
        delayed=delayed(config.delayed, levels),
        expiry=expiry(config.expiry, levels),
        subscribing=subscribe_policies(config.subscribing, levels),
        inactivity=inactivity(config.inactivity, config.auto_creation, levels),
        dispatching=dispatch_policies(config.dispatching, levels),
        schemas=schema_policies(config.schemas, levels, is_system=is_system),
        replication=replication(config.dispatching, levels),
    )
    if not is_system:
        return effective
    # Of its namespace's policies, those of storage, compaction, delayed delivery and unacknowledged
    # messages are left, which keep no broker from writing. A quota, a rate or an expiry on such a
    # topic would keep brokers from storing what they know of all others.
    if is_change_events:
        # Compacted whatever the namespace says, so that it stays short.
        threshold_bytes = CHANGE_EVENTS_THRESHOLD_BYTES
        changed = replace(effective.compaction, threshold_bytes=threshold_bytes)
        effective = replace(effective, compaction=changed)
    return replace(
        effective,
        publishing=PUBLISH_FREELY,
        quotas=UNLIMITED,
        expiry=KEEP_ALL,
        subscribing=SUBSCRIBE_FREELY,
        inactivity=NEVER,
        dispatching=DISPATCH_FREELY,
        replication=NOT_REPLICATED,
    )


def sharing(policies: EffectivePolicies, common: EffectivePolicies) -> EffectivePolicies:
    """``policies`` with the objects of ``common`` where they are equal.

    There may be very many topics, of which each keeps its policies, and most have those of the
    broker: so they share them.
    """
    # By value once, here; afterwards parts compare by identity or value, and find the same objects.
    same: dict[str, Any] = {
        each.name: getattr(common, each.name)
        for each in fields(policies)
        if getattr(policies, each.name) == getattr(common, each.name)
    }
    return replace(policies, **same)
