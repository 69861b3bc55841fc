"""How a broker behaves, independent of how it is told: the core takes this, not settings files."""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_broker.compaction.options import CompactionOptions
from geminga_broker.delayed.options import DelayedOptions
from geminga_broker.log.entry_cache import (
    AGE_MAX_S_DEFAULT,
    CACHE_BYTES_DEFAULT,
    WANTED_AGE_MAX_S_DEFAULT,
    WATERMARK_DEFAULT,
)
from geminga_broker.log.entry_stamps import StampKinds
from geminga_broker.log.options import LogOptions
from geminga_broker.metadata.auto_creation import AutoCreation
from geminga_broker.metadata.policy_rules import PRODUCER_REQUEST_HOLD
from geminga_broker.sessions.context import PATTERN_LENGTH_MAX_DEFAULT
from geminga_broker.subscriptions.expiry import ExpiryOptions
from geminga_broker.subscriptions.unacknowledged_limits import (
    PER_CONSUMER_MAX,
    PER_SUBSCRIPTION_MAX,
    UnacknowledgedLimits,
)
from geminga_broker.topics.backlog_quota import BacklogQuotas, age_quota, size_quota
from geminga_broker.topics.consuming.dispatch_policies import DispatchOptions
from geminga_broker.topics.consuming.subscribe_policies import SubscribeOptions
from geminga_broker.topics.directory import CLOSE_BUDGET_S
from geminga_broker.topics.inactivity import Inactivity, InactivityOptions
from geminga_broker.topics.producing.publish_policies import PublishOptions
from geminga_ledger.options import LedgerOptions
from geminga_protocol.pulsar.frames import MAX_MESSAGE_BYTES_DEFAULT

# So often are backlogs compared with their quotas (backlogQuotaCheckIntervalInSeconds).
BACKLOG_QUOTA_CHECK_S = 60.0

# What the broker can write in front of entries, by the names of upstream's classes for it.
TIME_STAMP = "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor"
INDEX_STAMP = "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Where the broker is reached, and its limits.

    ``advertised_host`` is what clients are told; it must reach this broker from where they are.
    Both ports were chosen already (not 0): they go into records before anybody listens.
    """

    cluster: str = "standalone"
    bind_host: str = "127.0.0.1"
    advertised_host: str = "127.0.0.1"
    port: int = 6650
    web_port: int = 8080
    # An address this broker had before a restart: its nodes in ZooKeeper are taken over.
    former_broker_ids: tuple[str, ...] = ()
    version: str = "4.0.6"
    log: LogOptions = field(default_factory=LogOptions)
    # How long bookies and ZooKeeper are waited for.
    ledgers: LedgerOptions = field(default_factory=LedgerOptions)
    # What is written in front of every entry, and whether clients that know it are sent it.
    broker_entry_metadata_interceptors: tuple[str, ...] = ()
    exposing_broker_entry_metadata_to_client_enabled: bool = False
    delayed: DelayedOptions = field(default_factory=DelayedOptions)
    cache_bytes_max: int = CACHE_BYTES_DEFAULT
    # Where the cache's bound is passed, entries leave until it is filled to this part.
    cache_watermark: float = WATERMARK_DEFAULT
    # Older entries leave the cache even where there is room: those that every subscription was
    # sent, and those that one is still to be sent.
    cache_age_max_s: float = AGE_MAX_S_DEFAULT
    cache_wanted_age_max_s: float = WANTED_AGE_MAX_S_DEFAULT
    max_message_bytes: int = MAX_MESSAGE_BYTES_DEFAULT
    # Whether using a topic makes it, and with how many partitions (0: with none), where its
    # namespace does not say.
    auto_topic_creation: bool = True
    auto_topic_partitions: int = 0
    # Whether lists of topics are filtered by the clients' patterns, and by how long ones.
    matches_patterns: bool = True
    pattern_length_max: int = PATTERN_LENGTH_MAX_DEFAULT
    keepalive_s: float = 30.0
    stats_period_s: float = 60.0
    # What holds where a namespace sets no backlog quota, and how often backlogs are looked at.
    backlog_quota_bytes: int = -1
    backlog_quota_age_s: int = -1
    backlog_quota_policy: str = PRODUCER_REQUEST_HOLD
    backlog_quota_check_s: float = BACKLOG_QUOTA_CHECK_S
    # What holds for producers where a namespace does not say.
    publishing: PublishOptions = field(default_factory=PublishOptions)
    # Who may subscribe, where a namespace does not say.
    subscribing: SubscribeOptions = field(default_factory=SubscribeOptions)
    # How fast consumers are served; what of it is for topics, where a namespace does not say.
    dispatching: DispatchOptions = field(default_factory=DispatchOptions)
    # Messages that may be with consumers, sent and unacknowledged; 0: any number.
    max_unacked_messages_per_consumer: int = PER_CONSUMER_MAX
    max_unacked_messages_per_subscription: int = PER_SUBSCRIPTION_MAX
    # When messages that nobody acknowledges are passed over, where a namespace does not say.
    expiry: ExpiryOptions = field(default_factory=ExpiryOptions)
    # When topics that nobody uses are deleted, where a namespace does not say.
    inactivity: InactivityOptions = field(default_factory=InactivityOptions)
    # When and how topics are compacted.
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    # Whether a namespace may be deleted with its topics, a tenant with its namespaces.
    force_deletes_namespaces: bool = False
    force_deletes_tenants: bool = False
    # How long ending may take for topics whose bookies do not answer.
    close_budget_s: float = CLOSE_BUDGET_S

    @property
    def stamps(self) -> StampKinds:
        """What is written in front of every entry."""
        wanted = self.broker_entry_metadata_interceptors
        return StampKinds(time=TIME_STAMP in wanted, index=INDEX_STAMP in wanted)

    @property
    def auto_creation(self) -> AutoCreation:
        """What becomes of a topic that is used before it was made, where no namespace says."""
        return AutoCreation(self.auto_topic_creation, self.auto_topic_partitions)

    @property
    def inactivity_default(self) -> Inactivity:
        """What becomes of a topic that nobody uses, where no namespace says."""
        return Inactivity.default(self.inactivity, is_made_by_use=self.auto_topic_creation)

    @property
    def unacknowledged_limits(self) -> UnacknowledgedLimits:
        """What holds where a namespace sets no limits on unacknowledged messages."""
        return UnacknowledgedLimits(
            self.max_unacked_messages_per_consumer, self.max_unacked_messages_per_subscription
        )

    @property
    def backlog_quotas(self) -> BacklogQuotas:
        """What holds where a namespace sets no backlog quota."""
        return BacklogQuotas(
            size_quota(self.backlog_quota_bytes, self.backlog_quota_policy),
            age_quota(self.backlog_quota_age_s, self.backlog_quota_policy),
        )
