"""What a broker process is told: by file, environment or flags (``geminga_server.config``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from geminga_broker.compaction.options import CompactionOptions
from geminga_broker.delayed.options import DelayedOptions
from geminga_broker.log.entry_cache import (
    AGE_MAX_S_DEFAULT,
    CACHE_BYTES_DEFAULT,
    WANTED_AGE_MAX_S_DEFAULT,
    WATERMARK_DEFAULT,
)
from geminga_broker.log.options import LogOptions
from geminga_broker.options import BACKLOG_QUOTA_CHECK_S, BrokerOptions
from geminga_broker.ownership.listeners import (
    Listeners,
    parse_bind_addresses,
    parse_listeners,
)
from geminga_broker.sessions.context import PATTERN_LENGTH_MAX_DEFAULT
from geminga_broker.subscriptions.expiry import ExpiryOptions
from geminga_broker.subscriptions.unacknowledged_limits import (
    PER_CONSUMER_MAX,
    PER_SUBSCRIPTION_MAX,
)
from geminga_broker.topics.consuming.dispatch_policies import DispatchOptions
from geminga_broker.topics.consuming.subscribe_policies import SubscribeOptions
from geminga_broker.topics.directory import CLOSE_BUDGET_S
from geminga_broker.topics.inactivity import InactivityOptions
from geminga_broker.topics.producing.publish_policies import PublishOptions
from geminga_protocol.pulsar.frames import MAX_MESSAGE_BYTES_DEFAULT
from geminga_server.config import PartConfig, Port

Interceptor = Literal[
    "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor",
    "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
]
QuotaPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings(PartConfig):
    """Settings of one broker; bytes and seconds as the names say, port 0 takes any free one."""

    cluster: str = "standalone"
    """The cluster's name."""
    initialize: bool = False
    """Write the cluster's first records if they are missing, and its URLs in any case: a
    standalone."""
    bind_address: str = "127.0.0.1"
    """Where it listens; 0.0.0.0 is everywhere."""
    advertised_address: str = ""
    """What clients are told to connect to; empty: the bind address."""
    port: Port = 6650
    """The port of the Pulsar protocol; 0 takes a free one."""
    web_port: Port = 8080
    """The port of REST and metrics; 0 takes a free one."""
    advertised_listeners: tuple[str, ...] = ()
    """Addresses for clients that reach the broker in different ways, each `NAME:SCHEME://HOST:PORT`
    (advertisedListeners); a lookup is answered with those of the listener that it names."""
    internal_listener_name: str = ""
    """The listener for other brokers, and for clients that name none (internalListenerName); empty:
    the first one."""
    bind_addresses: tuple[str, ...] = ()
    """Further ports, each `NAME:SCHEME://HOST:PORT` with pulsar or http (bindAddresses): clients
    that come by one are answered for the listener NAME."""
    former_broker_ids: tuple[str, ...] = ()
    """Ids (`host:web port`) this broker had before, when its ports or its address changed."""
    max_message_bytes: Annotated[int, Ge(1024)] = MAX_MESSAGE_BYTES_DEFAULT
    """The largest message that is taken."""
    cache_bytes_max: Annotated[int, Ge(MIB)] = CACHE_BYTES_DEFAULT
    """The newest entries in memory, from which consumers are served that keep up."""
    cache_watermark: Annotated[float, Gt(0), Le(1)] = WATERMARK_DEFAULT
    """The cache is emptied to this part of its bound (managedLedgerCacheEvictionWatermark)."""
    cache_age_max_s: Annotated[float, Gt(0)] = AGE_MAX_S_DEFAULT
    """How long an entry stays in the cache that every subscription was sent
    (managedLedgerCacheEvictionTimeThresholdMillis)."""
    cache_wanted_age_max_s: Annotated[float, Gt(0)] = WANTED_AGE_MAX_S_DEFAULT
    """How long an entry stays in the cache that some subscription is still to be sent."""
    auto_topic_creation: bool = True
    """Using a topic makes it, where its namespace does not say (allowAutoTopicCreation)."""
    auto_topic_partitions: Annotated[int, Ge(0)] = 0
    """With how many partitions it is then made (defaultNumPartitions); 0: not partitioned."""
    matches_patterns: bool = True
    """Lists of topics are filtered by the clients' patterns
    (enableBrokerSideSubscriptionPatternEvaluation)."""
    pattern_length_max: Annotated[int, Ge(0)] = PATTERN_LENGTH_MAX_DEFAULT
    """The longest such pattern (subscriptionPatternMaxLength)."""
    keepalive_s: Annotated[float, Gt(0)] = 30.0
    """How often a silent client is asked for a sign of life; after two it is cut off."""
    connections_max: Annotated[int, Ge(0)] = 0
    """How many clients may be connected (brokerMaxConnections); 0: as many as the limit on open
    files (`ulimit -n`) leaves room for, which is the most in any case."""
    connections_per_address_max: Annotated[int, Ge(0)] = 0
    """How many connections may come from one address (brokerMaxConnectionsPerIp); 0: no limit."""
    stats_period_s: Annotated[float, Gt(0)] = 60.0
    """Over how long rates are measured."""
    backlog_quota_bytes: Annotated[int, Ge(-1)] = -1
    """What a subscription may leave unread where its namespace does not say; -1: no limit."""
    backlog_quota_age_s: Annotated[int, Ge(-1)] = -1
    """How old what it left unread may be; -1: no limit."""
    backlog_quota_policy: QuotaPolicy = "producer_request_hold"
    """What happens beyond: producer_request_hold, producer_exception or consumer_backlog_eviction.
    """
    backlog_quota_check_s: Annotated[float, Gt(0)] = BACKLOG_QUOTA_CHECK_S
    """How often backlogs are looked at: so long can a quota be exceeded."""
    max_unacked_messages_per_consumer: Annotated[int, Ge(0)] = PER_CONSUMER_MAX
    """What a consumer of a Shared or Key_Shared subscription may hold unacknowledged, where its
    namespace does not say; 0: no limit."""
    max_unacked_messages_per_subscription: Annotated[int, Ge(0)] = PER_SUBSCRIPTION_MAX
    """What all consumers of such a subscription may hold together; 0: no limit."""
    broker_entry_metadata_interceptors: tuple[Interceptor, ...] = ()
    """What is written in front of every entry: the broker's time, a running index
    (brokerEntryMetadataInterceptors)."""
    exposing_broker_entry_metadata_to_client_enabled: bool = False
    """Clients that know it are sent that along with their messages
    (exposingBrokerEntryMetadataToClientEnabled)."""
    force_deletes_namespaces: bool = False
    """A namespace may be deleted together with its topics, whoever uses them
    (forceDeleteNamespaceAllowed)."""
    force_deletes_tenants: bool = False
    """A tenant may be deleted together with its namespaces (forceDeleteTenantAllowed)."""
    close_budget_s: Annotated[float, Gt(0)] = CLOSE_BUDGET_S
    """How long topics may take to close, asked to end; the next owner recovers the others."""
    log: LogOptions = field(default_factory=LogOptions)
    publishing: PublishOptions = field(default_factory=PublishOptions)
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    delayed: DelayedOptions = field(default_factory=DelayedOptions)
    expiry: ExpiryOptions = field(default_factory=ExpiryOptions)
    subscribing: SubscribeOptions = field(default_factory=SubscribeOptions)
    inactivity: InactivityOptions = field(default_factory=InactivityOptions)
    dispatching: DispatchOptions = field(default_factory=DispatchOptions)

    def __post_init__(self) -> None:
        parse_bind_addresses(self.bind_addresses, self.listeners)

    @property
    def listeners(self) -> Listeners:
        """The advertised listeners. Raises ``ValueError`` for what cannot be one."""
        return parse_listeners(self.advertised_listeners, self.internal_listener_name)

    @property
    def advertised_host(self) -> str:
        """What clients are told to connect to, and what the broker's id is made of. With listeners
        the bind address comes last: all brokers that bind 0.0.0.0 would have one id."""
        return self.advertised_address or self.listeners.internal_host or self.bind_address

    def options(self, *, port: int, web_port: int, connections_max: int = 0) -> BrokerOptions:
        """What the broker's core is told, with the ports it has got and the connections for which
        there is room."""
        return BrokerOptions(
            cluster=self.cluster,
            bind_host=self.bind_address,
            advertised_host=self.advertised_host,
            port=port,
            web_port=web_port,
            listeners=self.listeners,
            bind_addresses=parse_bind_addresses(self.bind_addresses, self.listeners),
            former_broker_ids=self.former_broker_ids,
            log=self.log,
            broker_entry_metadata_interceptors=self.broker_entry_metadata_interceptors,
            exposing_broker_entry_metadata_to_client_enabled=(
                self.exposing_broker_entry_metadata_to_client_enabled
            ),
            publishing=self.publishing,
            delayed=self.delayed,
            expiry=self.expiry,
            subscribing=self.subscribing,
            inactivity=self.inactivity,
            dispatching=self.dispatching,
            cache_bytes_max=self.cache_bytes_max,
            cache_watermark=self.cache_watermark,
            cache_age_max_s=self.cache_age_max_s,
            cache_wanted_age_max_s=self.cache_wanted_age_max_s,
            max_message_bytes=self.max_message_bytes,
            auto_topic_creation=self.auto_topic_creation,
            auto_topic_partitions=self.auto_topic_partitions,
            matches_patterns=self.matches_patterns,
            pattern_length_max=self.pattern_length_max,
            keepalive_s=self.keepalive_s,
            connections_max=connections_max,
            connections_per_address_max=self.connections_per_address_max,
            stats_period_s=self.stats_period_s,
            backlog_quota_bytes=self.backlog_quota_bytes,
            backlog_quota_age_s=self.backlog_quota_age_s,
            backlog_quota_policy=self.backlog_quota_policy,
            backlog_quota_check_s=self.backlog_quota_check_s,
            max_unacked_messages_per_consumer=self.max_unacked_messages_per_consumer,
            max_unacked_messages_per_subscription=self.max_unacked_messages_per_subscription,
            compaction=self.compaction,
            force_deletes_namespaces=self.force_deletes_namespaces,
            force_deletes_tenants=self.force_deletes_tenants,
            close_budget_s=self.close_budget_s,
        )
