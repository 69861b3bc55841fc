"""What a broker process is told: by file, environment or flags (``magnetar_server.settings``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from magnetar_broker.log.entry_cache import (
    AGE_MAX_S_DEFAULT,
    CACHE_BYTES_DEFAULT,
    WANTED_AGE_MAX_S_DEFAULT,
    WATERMARK_DEFAULT,
)
from magnetar_broker.log.options import LogOptions
from magnetar_broker.options import BACKLOG_QUOTA_CHECK_S, BrokerOptions
from magnetar_broker.sessions.context import MAX_MESSAGE_BYTES_DEFAULT
from magnetar_broker.topics.directory import CLOSE_BUDGET_S

Port = Annotated[int, Ge(0), Le(65535)]
QuotaPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Settings of one broker; bytes and seconds as the names say, port 0 takes any free one."""

    zookeeper: str = "127.0.0.1:2181"
    zookeeper_session_timeout_s: Annotated[float, Gt(0)] = 6.0
    # So long does a starting broker wait for ZooKeeper.
    zookeeper_connect_timeout_s: Annotated[float, Gt(0)] = 30.0
    cluster: str = "standalone"
    # Write the cluster's first records if they are missing, and its URLs in any case: a standalone.
    initialize: bool = False
    bind_address: str = "127.0.0.1"
    # What clients are told to connect to; ``bind_address`` where it is empty.
    advertised_address: str = ""
    port: Port = 6650
    web_port: Port = 8080
    # Ids (``host:web port``) this broker had before, when its ports or its address changed.
    former_broker_ids: tuple[str, ...] = ()
    max_message_bytes: Annotated[int, Ge(1024)] = MAX_MESSAGE_BYTES_DEFAULT
    cache_bytes_max: Annotated[int, Ge(MIB)] = CACHE_BYTES_DEFAULT
    # Filled to this part of its bound after entries had to leave
    # (managedLedgerCacheEvictionWatermark).
    cache_watermark: Annotated[float, Gt(0), Le(1)] = WATERMARK_DEFAULT
    # So long does an entry stay that every subscription was sent
    # (managedLedgerCacheEvictionTimeThresholdMillis), and one that some is still to be sent.
    cache_age_max_s: Annotated[float, Gt(0)] = AGE_MAX_S_DEFAULT
    cache_wanted_age_max_s: Annotated[float, Gt(0)] = WANTED_AGE_MAX_S_DEFAULT
    # Where a namespace does not say: whether using a topic makes it (allowAutoTopicCreation), and
    # with how many partitions, 0 for a topic that has none (defaultNumPartitions).
    auto_topic_creation: bool = True
    auto_topic_partitions: Annotated[int, Ge(0)] = 0
    keepalive_s: Annotated[float, Gt(0)] = 30.0
    stats_period_s: Annotated[float, Gt(0)] = 60.0
    # What holds where a namespace sets no backlog quota (backlogQuotaDefaultLimitBytes, -Second and
    # -RetentionPolicy); -1 is unlimited. Backlogs are looked at so often.
    backlog_quota_bytes: Annotated[int, Ge(-1)] = -1
    backlog_quota_age_s: Annotated[int, Ge(-1)] = -1
    backlog_quota_policy: QuotaPolicy = "producer_request_hold"
    backlog_quota_check_s: Annotated[float, Gt(0)] = BACKLOG_QUOTA_CHECK_S
    # Asked to end, so long may topics take whose bookies do not answer; what is still open then is
    # recovered by the next owner.
    close_budget_s: Annotated[float, Gt(0)] = CLOSE_BUDGET_S
    log_level: str = "INFO"
    log_json: bool = False
    log: LogOptions = field(default_factory=LogOptions)

    @property
    def advertised_host(self) -> str:
        """What clients are told to connect to."""
        return self.advertised_address or self.bind_address

    def options(self, *, port: int, web_port: int) -> BrokerOptions:
        """What the broker's core is told, with the ports it has got."""
        return BrokerOptions(
            cluster=self.cluster,
            bind_host=self.bind_address,
            advertised_host=self.advertised_host,
            port=port,
            web_port=web_port,
            former_broker_ids=self.former_broker_ids,
            log=self.log,
            cache_bytes_max=self.cache_bytes_max,
            cache_watermark=self.cache_watermark,
            cache_age_max_s=self.cache_age_max_s,
            cache_wanted_age_max_s=self.cache_wanted_age_max_s,
            max_message_bytes=self.max_message_bytes,
            auto_topic_creation=self.auto_topic_creation,
            auto_topic_partitions=self.auto_topic_partitions,
            keepalive_s=self.keepalive_s,
            stats_period_s=self.stats_period_s,
            backlog_quota_bytes=self.backlog_quota_bytes,
            backlog_quota_age_s=self.backlog_quota_age_s,
            backlog_quota_policy=self.backlog_quota_policy,
            backlog_quota_check_s=self.backlog_quota_check_s,
            close_budget_s=self.close_budget_s,
        )
