"""What holds for a topic: what it says itself, its namespace, and its broker's config. Pure.

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
from geminga_broker.policies.dispatching import (
    DISPATCH_FREELY,
    DispatchConfig,
    DispatchPolicies,
    dispatch_policies,
)
from geminga_broker.policies.expiry import KEEP_ALL, Expiry, ExpiryConfig, expiry
from geminga_broker.policies.inactivity import NEVER, Inactivity, InactivityConfig, inactivity
from geminga_broker.policies.levels import Levels
from geminga_broker.policies.publishing import (
    PUBLISH_FREELY,
    PublishConfig,
    PublishPolicies,
    publish_policies,
)
from geminga_broker.policies.replication import (
    NOT_REPLICATED,
    NOT_SAID,
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
from geminga_broker.policies.subscribing import (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """What the broker says of all topics, subject by subject; ``log`` is what it says of their
    storage."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectivePolicies:
    """How a topic's log is kept, what of it is retained, how large its backlog may be, how it may
    be published to, how much of it may be with consumers, how long it lives, who may
    subscribe, how fast its consumers are served, which schemas it may have, and to which clusters
    it is replicated."""

    log: ManagedLedgerConfig = field(default_factory=ManagedLedgerConfig)
    retention: Retention = field(default_factory=Retention)
    quotas: BacklogQuotas = UNLIMITED
    publishing: PublishPolicies = PUBLISH_FREELY
    unacknowledged: UnacknowledgedLimits = NO_LIMITS
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    delayed: DelayedConfig = field(default_factory=DelayedConfig)
    expiry: Expiry = KEEP_ALL
    subscribing: SubscribePolicies = SUBSCRIBE_FREELY
    inactivity: Inactivity = NEVER
    dispatching: DispatchPolicies = DISPATCH_FREELY
    schemas: SchemaPolicies = BY_DEFAULT
    replication: ReplicationPolicies = NOT_SAID


def effective_policies(
    config: PolicyConfig,
    said: Levels,
    *,
    is_system: bool = False,
    is_change_events: bool = False,
) -> EffectivePolicies:
    """What holds for a topic of which the levels say this; ``is_system``: brokers themselves write
    to it, and must go on; ``is_change_events``: it is the one where topics' policies stand."""
    held = EffectivePolicies(
        log=managed_ledger_config(config.log, said),
        retention=retention(config.log, said),
        quotas=backlog_quotas(config.backlog, said),
        publishing=publish_policies(config.publishing, said),
        unacknowledged=unacknowledged_limits(config.unacknowledged, said),
        compaction=compaction(config.compaction, said),
        delayed=delayed(config.delayed, said),
        expiry=expiry(config.expiry, said),
        subscribing=subscribe_policies(config.subscribing, said),
        inactivity=inactivity(config.inactivity, config.auto_creation, said),
        dispatching=dispatch_policies(config.dispatching, said),
        schemas=schema_policies(config.schemas, said, is_system=is_system),
        replication=replication(config.dispatching, said),
    )
    if not is_system:
        return held
    if is_change_events:
        threshold_bytes = CHANGE_EVENTS_THRESHOLD_BYTES
        held = replace(held, compaction=replace(held.compaction, threshold_bytes=threshold_bytes))
    return replace(
        held,
        publishing=PUBLISH_FREELY,
        quotas=UNLIMITED,
        expiry=KEEP_ALL,
        subscribing=SUBSCRIBE_FREELY,
        inactivity=NEVER,
        dispatching=DISPATCH_FREELY,
        replication=NOT_REPLICATED,
    )


def sharing(held: EffectivePolicies, common: EffectivePolicies) -> EffectivePolicies:
    """``held`` with the values of ``common`` where they are equal: there may be very many topics,
    of which most hold to what the broker says, and each keeps what holds for it."""
    same: dict[str, Any] = {
        each.name: getattr(common, each.name)
        for each in fields(held)
        if getattr(held, each.name) == getattr(common, each.name)
    }
    return replace(held, **same)
