"""The Avro schema in which the events of ``__change_events`` are written. Pure.

It is the schema that a broker of Apache Pulsar 4.0.6 registers (``PulsarEvent``), byte for byte:
otherwise a topic that both kinds of broker write to would have two versions of one schema. Fields
stand in the order of their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_POLICIES = "org.apache.pulsar.common.policies.data"
_IMPL = f"{_POLICIES}.impl"
_RATE = f"{_IMPL}.DispatchRateImpl"

# A schema within the schema: the name of a type, a record, enum, array or map, or a union.
Described = str | Mapping[str, Any] | list[Any]


# The order of an object's members is the order of these dictionaries: it counts, see above.


def _record(name: str, fields: Mapping[str, Described], namespace: str = "") -> dict[str, Any]:
    described: dict[str, Any] = {"type": "record", "name": name}
    if namespace:
        described["namespace"] = namespace
    described["fields"] = [
        {"name": each, "type": kind} | ({"default": None} if isinstance(kind, list) else {})
        for each, kind in fields.items()
    ]
    return described


def _enum(name: str, *symbols: str, namespace: str = "") -> dict[str, Any]:
    named = {"namespace": namespace} if namespace else {}
    return {"type": "enum", "name": name, **named, "symbols": list(symbols)}


def _optional(kind: Described) -> list[Any]:
    return ["null", kind]


def _list(items: Described, java_class: str = "List") -> dict[str, Any]:
    return {"type": "array", "items": items, "java-class": f"java.util.{java_class}"}


def _map(values: Described) -> dict[str, Any]:
    return {"type": "map", "values": values}


BOOLEAN, INT, LONG, STRING = (_optional(kind) for kind in ("boolean", "int", "long", "string"))

_BACKLOG_QUOTA = _record(
    "BacklogQuotaImpl",
    {
        "limit": "long",
        "limitSize": LONG,
        "limitTime": "int",
        "policy": _optional(
            _enum(
                "RetentionPolicy",
                *("producer_request_hold", "producer_exception", "consumer_backlog_eviction"),
                namespace=f"{_POLICIES}.BacklogQuota",
            )
        ),
    },
    _IMPL,
)

_DISPATCH_RATE = _record(
    "DispatchRateImpl",
    {
        "dispatchThrottlingRateInByte": "long",
        "dispatchThrottlingRateInMsg": "int",
        "ratePeriodInSecond": "int",
        "relativeToPublishRate": "boolean",
    },
    _IMPL,
)

_INACTIVE_TOPICS = _record(
    "InactiveTopicPolicies",
    {
        "deleteWhileInactive": "boolean",
        "inactiveTopicDeleteMode": _optional(
            _enum(
                "InactiveTopicDeleteMode",
                *("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"),
            )
        ),
        "maxInactiveDurationSeconds": "int",
    },
)

# Brokers of ours do not offload, but what an Apache broker has stored has to be readable.
_OFFLOAD = _record(
    "OffloadPoliciesImpl",
    {
        "fileSystemProfilePath": STRING,
        "fileSystemURI": STRING,
        "gcsManagedLedgerOffloadBucket": STRING,
        "gcsManagedLedgerOffloadMaxBlockSizeInBytes": INT,
        "gcsManagedLedgerOffloadReadBufferSizeInBytes": INT,
        "gcsManagedLedgerOffloadRegion": STRING,
        "gcsManagedLedgerOffloadServiceAccountKeyFile": STRING,
        "managedLedgerExtraConfigurations": _optional(_map("string")),
        "managedLedgerOffloadBucket": STRING,
        "managedLedgerOffloadDeletionLagInMillis": LONG,
        "managedLedgerOffloadDriver": STRING,
        "managedLedgerOffloadMaxBlockSizeInBytes": INT,
        "managedLedgerOffloadMaxThreads": INT,
        "managedLedgerOffloadPrefetchRounds": INT,
        "managedLedgerOffloadReadBufferSizeInBytes": INT,
        "managedLedgerOffloadRegion": STRING,
        "managedLedgerOffloadServiceEndpoint": STRING,
        "managedLedgerOffloadThresholdInBytes": LONG,
        "managedLedgerOffloadThresholdInSeconds": LONG,
        "managedLedgerOffloadedReadPriority": _optional(
            _enum("OffloadedReadPriority", "BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST")
        ),
        "offloadersDirectory": STRING,
        "s3ManagedLedgerOffloadBucket": STRING,
        "s3ManagedLedgerOffloadCredentialId": STRING,
        "s3ManagedLedgerOffloadCredentialSecret": STRING,
        "s3ManagedLedgerOffloadMaxBlockSizeInBytes": INT,
        "s3ManagedLedgerOffloadReadBufferSizeInBytes": INT,
        "s3ManagedLedgerOffloadRegion": STRING,
        "s3ManagedLedgerOffloadRole": STRING,
        "s3ManagedLedgerOffloadRoleSessionName": STRING,
        "s3ManagedLedgerOffloadServiceEndpoint": STRING,
    },
)

_PERSISTENCE = _record(
    "PersistencePolicies",
    {
        "bookkeeperAckQuorum": "int",
        "bookkeeperEnsemble": "int",
        "bookkeeperWriteQuorum": "int",
        "managedLedgerMaxMarkDeleteRate": "double",
        "managedLedgerStorageClassName": STRING,
    },
)

_STRATEGY = _enum(
    "SchemaCompatibilityStrategy",
    *("UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE"),
    *("BACKWARD", "FORWARD", "FULL"),
    *("BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
)

_TOPIC_POLICIES = _record(
    "TopicPolicies",
    {
        "autoSubscriptionCreationOverride": _optional(
            _record(
                "AutoSubscriptionCreationOverrideImpl",
                {"allowAutoSubscriptionCreation": "boolean"},
                _IMPL,
            )
        ),
        "backLogQuotaMap": _optional(_map(_BACKLOG_QUOTA)),
        "compactionThreshold": LONG,
        "deduplicationEnabled": BOOLEAN,
        "deduplicationSnapshotIntervalSeconds": INT,
        "delayedDeliveryEnabled": BOOLEAN,
        "delayedDeliveryMaxDelayInMillis": LONG,
        "delayedDeliveryTickTimeMillis": LONG,
        "dispatchRate": _optional(_DISPATCH_RATE),
        "dispatcherPauseOnAckStatePersistentEnabled": BOOLEAN,
        "entryFilters": _optional(_record("EntryFilters", {"entryFilterNames": STRING})),
        "inactiveTopicPolicies": _optional(_INACTIVE_TOPICS),
        "isGlobal": BOOLEAN,
        "maxConsumerPerTopic": INT,
        "maxConsumersPerSubscription": INT,
        "maxMessageSize": INT,
        "maxProducerPerTopic": INT,
        "maxSubscriptionsPerTopic": INT,
        "maxUnackedMessagesOnConsumer": INT,
        "maxUnackedMessagesOnSubscription": INT,
        "messageTTLInSeconds": INT,
        "offloadPolicies": _optional(_OFFLOAD),
        "persistence": _optional(_PERSISTENCE),
        "publishRate": _optional(
            _record(
                "PublishRate",
                {"publishThrottlingRateInByte": "long", "publishThrottlingRateInMsg": "int"},
            )
        ),
        "replicationClusters": _optional(_list("string")),
        "replicatorDispatchRate": _optional(_RATE),
        "retentionPolicies": _optional(
            _record(
                "RetentionPolicies", {"retentionSizeInMB": "long", "retentionTimeInMinutes": "int"}
            )
        ),
        "schemaCompatibilityStrategy": _optional(_STRATEGY),
        "schemaValidationEnforced": BOOLEAN,
        "shadowTopics": _optional(_list("string")),
        "subscribeRate": _optional(
            _record(
                "SubscribeRate",
                {"ratePeriodInSecond": "int", "subscribeThrottlingRatePerConsumer": "int"},
            )
        ),
        "subscriptionDispatchRate": _optional(_RATE),
        "subscriptionPolicies": _optional(
            _map(_record("SubscriptionPolicies", {"dispatchRate": _optional(_RATE)}))
        ),
        "subscriptionTypesEnabled": _optional(
            _list(
                _enum(
                    "SubType",
                    *("Exclusive", "Shared", "Failover", "Key_Shared"),
                    namespace="org.apache.pulsar.common.api.proto.CommandSubscribe",
                )
            )
        ),
    },
    _POLICIES,
)

_PULSAR_EVENT = _record(
    "PulsarEvent",
    {
        "actionType": _optional(_enum("ActionType", "INSERT", "DELETE", "UPDATE", "NONE")),
        "eventType": _optional(
            _enum(
                "EventType",
                *("TOPIC_POLICY", "TRANSACTION_BUFFER_SNAPSHOT"),
                *("TRANSACTION_BUFFER_SNAPSHOT_SEGMENTS", "TRANSACTION_BUFFER_SNAPSHOT_INDEXES"),
            )
        ),
        "replicateTo": _optional(_list("string", "HashSet")),
        "topicPoliciesEvent": _optional(
            _record(
                "TopicPoliciesEvent",
                {
                    "domain": STRING,
                    "namespace": STRING,
                    "policies": _optional(_TOPIC_POLICIES),
                    "tenant": STRING,
                    "topic": STRING,
                },
            )
        ),
    },
    "org.apache.pulsar.common.events",
)

# What is registered: the definition, and the properties that Java's Avro schemas have.
DEFINITION = json.dumps(_PULSAR_EVENT, separators=(",", ":")).encode()
PROPERTIES = {"__jsr310ConversionEnabled": "false", "__alwaysAllowNull": "true"}
