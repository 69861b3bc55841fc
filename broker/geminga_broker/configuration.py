"""The broker's settings under the names that Pulsar's ``ServiceConfiguration`` has for them.

What ``GET /admin/v2/brokers/configuration/runtime`` answers. A setting stands here where upstream
has one for the same thing, in upstream's unit; what only one of the two has does not. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from geminga_broker.config import BrokerConfig
from geminga_broker.log.config import MIB
from geminga_server.config import settings_of

# Upstream's name -> ours, where both count in the same unit.
SAME = {
    "clusterName": "cluster",
    "bindAddress": "bind_address",
    "internalListenerName": "internal_listener_name",
    "maxMessageSize": "max_message_bytes",
    "managedLedgerCacheEvictionWatermark": "cache_watermark",
    "allowAutoTopicCreation": "auto_topic_creation",
    "enableBrokerSideSubscriptionPatternEvaluation": "matches_patterns",
    "subscriptionPatternMaxLength": "pattern_length_max",
    "keepAliveIntervalSeconds": "keepalive_s",
    "brokerMaxConnectionsPerIp": "connections_per_address_max",
    "statsUpdateFrequencyInSecs": "stats_period_s",
    "backlogQuotaDefaultLimitBytes": "backlog_quota_bytes",
    "backlogQuotaDefaultLimitSecond": "backlog_quota_age_s",
    "backlogQuotaDefaultRetentionPolicy": "backlog_quota_policy",
    "backlogQuotaCheckIntervalInSeconds": "backlog_quota_check_s",
    "maxUnackedMessagesPerConsumer": "max_unacked_messages_per_consumer",
    "maxUnackedMessagesPerSubscription": "max_unacked_messages_per_subscription",
    "brokerEntryMetadataInterceptors": "broker_entry_metadata_interceptors",
    "exposingBrokerEntryMetadataToClientEnabled": (
        "exposing_broker_entry_metadata_to_client_enabled"
    ),
    "forceDeleteNamespaceAllowed": "force_deletes_namespaces",
    "forceDeleteTenantAllowed": "force_deletes_tenants",
    "managedLedgerDefaultEnsembleSize": "log.ensemble_size",
    "managedLedgerDefaultWriteQuorum": "log.write_quorum",
    "managedLedgerDefaultAckQuorum": "log.ack_quorum",
    "managedLedgerMaxEntriesPerLedger": "log.ledger_entries_max",
    "retentionCheckIntervalInSeconds": "log.sweep_period_s",
    "managedLedgerCursorMaxEntriesPerLedger": "log.cursor_ledger_entries_max",
    "managedLedgerCursorRolloverTimeInSeconds": "log.cursor_ledger_age_max_s",
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore": "log.cursor_ranges_max",
    "managedLedgerMaxBatchDeletedIndexToPersist": "log.cursor_batches_max",
    "dispatcherMaxReadSizeBytes": "log.read_bytes_max",
    "dispatcherMaxReadBatchSize": "log.read_entries_max",
    "brokerDeduplicationEnabled": "publishing.deduplication",
    "brokerDeduplicationMaxNumberOfProducers": "publishing.deduplication_producers_max",
    "brokerDeduplicationEntriesInterval": "publishing.deduplication_snapshot_entries",
    "brokerDeduplicationSnapshotIntervalSeconds": "publishing.deduplication_snapshot_interval_s",
    "brokerDeduplicationSnapshotFrequencyInSeconds": "publishing.deduplication_check_s",
    "maxProducersPerTopic": "publishing.producers_per_topic_max",
    "maxSameAddressProducersPerTopic": "publishing.same_address_producers_per_topic_max",
    "encryptionRequireOnProducer": "publishing.encryption_required",
    "maxPublishRatePerTopicInMessages": "publishing.topic_messages_per_s_max",
    "maxPublishRatePerTopicInBytes": "publishing.topic_bytes_per_s_max",
    "brokerPublisherThrottlingMaxMessageRate": "publishing.broker_messages_per_s_max",
    "brokerPublisherThrottlingMaxByteRate": "publishing.broker_bytes_per_s_max",
    "brokerServiceCompactionThresholdInBytes": "compaction.threshold_bytes",
    "brokerServiceCompactionMonitorIntervalInSeconds": "compaction.check_s",
    "topicCompactionRetainNullKey": "compaction.retain_null_key",
    "delayedDeliveryEnabled": "delayed.enabled",
    "delayedDeliveryTickTimeMillis": "delayed.tick_ms",
    "delayedDeliveryMaxDelayInMillis": "delayed.delay_max_ms",
    "delayedDeliveryMinIndexCountPerBucket": "delayed.bucket_messages_min",
    "delayedDeliveryMaxIndexesPerBucketSnapshotSegment": "delayed.segment_messages_max",
    "ttlDurationDefaultInSeconds": "expiry.ttl_default_s",
    "maxConsumersPerTopic": "subscribing.consumers_per_topic_max",
    "maxConsumersPerSubscription": "subscribing.consumers_per_subscription_max",
    "maxSameAddressConsumersPerTopic": "subscribing.same_address_consumers_per_topic_max",
    "maxSubscriptionsPerTopic": "subscribing.subscriptions_per_topic_max",
    "subscriptionTypesEnabled": "subscribing.types_enabled",
    "allowAutoSubscriptionCreation": "subscribing.auto_creation",
    "subscribeThrottlingRatePerConsumer": "subscribing.rate_per_consumer",
    "subscribeRatePeriodPerConsumerInSecond": "subscribing.rate_period_s",
    "brokerDeleteInactiveTopicsEnabled": "inactivity.deletes_topics",
    "brokerDeleteInactiveTopicsFrequencySeconds": "inactivity.check_s",
    "brokerDeleteInactiveTopicsMode": "inactivity.mode",
    "dispatchThrottlingRateInMsg": "dispatching.broker_messages_per_s_max",
    "dispatchThrottlingRateInByte": "dispatching.broker_bytes_per_s_max",
    "dispatchThrottlingRatePerTopicInMsg": "dispatching.topic_messages_per_s_max",
    "dispatchThrottlingRatePerTopicInByte": "dispatching.topic_bytes_per_s_max",
    "dispatchThrottlingRatePerSubscriptionInMsg": "dispatching.subscription_messages_per_s_max",
    "dispatchThrottlingRatePerSubscriptionInByte": "dispatching.subscription_bytes_per_s_max",
    "dispatchThrottlingRateRelativeToPublishRate": "dispatching.relative_to_publish_rate",
    "dispatchThrottlingOnNonBacklogConsumerEnabled": "dispatching.throttles_non_backlog",
    "dispatchThrottlingOnBatchMessageEnabled": "dispatching.counts_batches",
}
# Upstream's name -> ours, and how many of our units one of upstream's is. A negative number means
# "no limit" in any unit.
SCALED: dict[str, tuple[str, float]] = {
    "metadataStoreSessionTimeoutMillis": ("zookeeper_session_timeout_s", 0.001),
    "managedLedgerCacheSizeMB": ("cache_bytes_max", MIB),
    "managedLedgerCacheEvictionTimeThresholdMillis": ("cache_age_max_s", 0.001),
    "managedLedgerMaxSizePerLedgerMbytes": ("log.ledger_bytes_max", MIB),
    "managedLedgerMinLedgerRolloverTimeMinutes": ("log.ledger_age_min_s", 60),
    "managedLedgerMaxLedgerRolloverTimeMinutes": ("log.ledger_age_max_s", 60),
    "defaultRetentionTimeInMinutes": ("log.retention_time_ms", 60_000),
    "defaultRetentionSizeInMB": ("log.retention_bytes", MIB),
    "brokerDeduplicationProducerInactivityTimeoutMinutes": (
        *("publishing.deduplication_producer_idle_s", 60),
    ),
    "delayedDeliveryMaxTimeStepPerBucketSnapshotSegmentSeconds": ("delayed.segment_step_ms", 1000),
    "messageExpiryCheckIntervalInMinutes": ("expiry.check_s", 60),
    "activeConsumerFailoverDelayTimeMillis": ("subscribing.failover_delay_s", 0.001),
}
# What upstream can be told to do or not, and this broker always does, or has not.
FIXED = {
    "acknowledgmentAtBatchIndexLevelEnabled": True,
    "authenticationEnabled": False,
    "authorizationEnabled": False,
    "tlsEnabled": False,
    "transactionCoordinatorEnabled": False,
    "webSocketServiceEnabled": False,
    "functionsWorkerEnabled": False,
}


def runtime_configuration(config: BrokerConfig) -> dict[str, str]:
    """Upstream's names and values; ``config`` has the ports and the limits that were chosen."""
    settings = settings_of(BrokerConfig)
    partitions = config.policies.auto_creation.auto_topic_partitions
    unused_s_max = config.policies.inactivity.unused_s_max
    chosen: dict[str, object] = {
        "metadataStoreUrl": f"zk:{config.zookeeper}",
        "advertisedAddress": config.advertised_host,
        "advertisedListeners": ",".join(config.listeners.advertised_listeners),
        "bindAddresses": ",".join(config.listeners.bind_addresses),
        # Java's words for a number that need not be there.
        "brokerServicePort": f"Optional[{config.port}]",
        "webServicePort": f"Optional[{config.web_port}]",
        "brokerMaxConnections": config.connections.connections_max,
        "allowAutoTopicCreationType": "partitioned" if partitions else "non-partitioned",
        **({"defaultNumPartitions": partitions} if partitions else {}),
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": unused_s_max or "",
    }
    same = {name: settings[ours].value_in(config) for name, ours in SAME.items()}
    scaled = {
        name: _in_units(cast(float, settings[ours].value_in(config)), unit)
        for name, (ours, unit) in SCALED.items()
    }
    return {name: _words(value) for name, value in (FIXED | same | scaled | chosen).items()}


def _in_units(value: float, unit: float) -> float:
    return value if value < 0 else value / unit


def _words(value: object) -> str:
    """A value as Java prints it; a number without a fraction is a whole one."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{round(value, 6):.15g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
