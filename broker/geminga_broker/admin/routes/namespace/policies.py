"""The policies that are read and changed one by one, of namespaces and of topics: one row each.

What they mean for topics, and which values they may have, is in ``geminga_broker.policies``,
subject by subject. The routes below a namespace are made of these rows. Each row also says how its
policy is served below a topic; no such routes are made yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from fastapi import Request

from geminga_broker.admin.policy_routes import (
    NamespaceLevel,
    PolicyRow,
    Served,
    flag,
    number,
    policy_router,
    record,
)
from geminga_broker.policies.auto_creation import check_auto_topic_creation
from geminga_broker.policies.backlog import (
    DESTINATION_STORAGE,
    QUOTA_TYPES,
    check_quota_within_retention,
    check_retention_covers_quota,
    checked_quota,
)
from geminga_broker.policies.delayed import check_delayed_delivery
from geminga_broker.policies.dispatch import check_dispatch_rate
from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.inactivity import check_inactive_topics
from geminga_broker.policies.levels import INT_MAX, LONG_MAX
from geminga_broker.policies.publish import check_publish_rate
from geminga_broker.policies.schemas import AUTO_UPDATE_STRATEGIES, STRATEGY_NAMES
from geminga_broker.policies.storage import check_persistence, check_retention
from geminga_broker.policies.subscriptions import LABELS, check_subscribe_rate
from geminga_protocol.records.cluster.namespaces import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    PersistencePolicies,
    PublishRate,
    RetentionPolicies,
    SubscribeRate,
)
from geminga_protocol.records.encodings.json_records import of_document
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import json_body, namespace_in, object_body, whole_number

# Upstream's texts for a namespace that does not exist, where one of these is to be changed.
MISSING_FOR_RETENTION = "Namespace policies does not exist"
# Upstream sends no text here.
MISSING_FOR_QUOTA = ""
TTL_REFUSAL = "Invalid value for message TTL, message TTL must >= 0"


# Bodies that only one policy has


async def yes_or_no(request: Request) -> bool:
    """Read ``true``; anything else that a flag may be is false."""
    # ``null`` is false: these flags have no unset state in upstream's record.
    return bool(await flag(request))


async def ttl_in_query(request: Request) -> int:
    """The time to live of a topic, which upstream has in the query."""
    ttl_s = whole_number(request.query_params.get("messageTTL", ""))
    # The status is that of upstream's framework for a query that is no number.
    if ttl_s is None or ttl_s > INT_MAX:
        raise RestError(404, f"messageTTL should be a number up to {INT_MAX}")
    if ttl_s < 0:
        raise RestError(412, TTL_REFUSAL)
    return ttl_s


async def compaction_threshold(request: Request) -> int:
    """Read a number of bytes."""
    threshold = await json_body(request)
    if not isinstance(threshold, int) or isinstance(threshold, bool):
        raise RestError(400, "compactionThreshold should be a number of bytes")
    # A larger number would make the record unreadable for Java. The status is upstream's.
    if not 0 <= threshold <= LONG_MAX:
        raise RestError(412, "compactionThreshold must be 0 or more")
    return threshold


async def subscription_types(request: Request) -> tuple[str, ...]:
    """Read a list of types of subscription."""
    names = await json_body(request)
    if not isinstance(names, list) or not all(each in LABELS for each in names):
        raise RestError(400, f"The body should be a list of {', '.join(LABELS)}")
    # In upstream's order, each once.
    return tuple(each for each in LABELS if each in names)


def strategy(names: Collection[str]) -> Callable[[Request], Awaitable[str | None]]:
    """Reads one of the ``names`` of strategies, or ``null``."""

    async def read(request: Request) -> str | None:
        name = await json_body(request)
        if name is None:
            return None
        if not isinstance(name, str):
            raise RestError(400, "The body should be a string")
        if name not in names:
            raise InvalidPolicy(f"The strategy should be one of {', '.join(names)}")
        return name

    return read


async def backlog_quota(request: Request) -> BacklogQuota:
    """Read a quota, as it is stored."""
    # Checked against the topic's or namespace's retention later (``PolicyRow.check``), with the
    # record.
    body = await object_body(request) or {}
    return checked_quota(str(namespace_in(request)), of_document(BacklogQuota, body))


def backlog_quota_type(request: Request) -> str:
    """The type of quota that the query names. Raises ``RestError`` 404 for an unknown one."""
    kind = request.query_params.get("backlogQuotaType", DESTINATION_STORAGE)
    if kind not in QUOTA_TYPES:
        raise RestError(404, f"backlogQuotaType should be one of {', '.join(QUOTA_TYPES)}")
    return kind


# What is stored, and for how long

# ``read`` makes a value for the record from the body; ``check``, where there is one, compares it
# with the rest of the record, inside of the change.
STORAGE = (
    PolicyRow(
        words="On how many bookies messages are stored, and how often cursors are.",
        field="persistence",
        read=record(
            PersistencePolicies,
            check_persistence,
            missing="persistence policies should not be null",
        ),
        namespace=Served("persistence"),
        topic=Served("persistence"),
    ),
    PolicyRow(
        words="How much is kept after it is acknowledged; no body removes the policy.",
        field="retention",
        read=record(RetentionPolicies, check_retention),
        namespace=Served("retention"),
        topic=Served("retention"),
        check=check_retention_covers_quota,
        missing=MISSING_FOR_RETENTION,
    ),
    PolicyRow(
        words="How large or how old a backlog may be (``backlogQuotaType``).",
        field="backlog_quota_map",
        read=backlog_quota,
        namespace=Served("backlogQuota", shown_as="backlogQuotaMap"),
        topic=Served("backlogQuota", shown_as="backlogQuotaMap"),
        key=backlog_quota_type,
        check=check_quota_within_retention,
        missing=MISSING_FOR_QUOTA,
        # All quotas are shown under one path, and set one by one under another.
        titles=("get backlog quotas", "set backlog quota", "delete backlog quota"),
    ),
    PolicyRow(
        words="After how many seconds unacknowledged messages expire; 0: never.",
        field="message_ttl_s",
        read=number(TTL_REFUSAL),
        namespace=Served("messageTTL"),
        topic=Served("messageTTL", read=ttl_in_query),
    ),
    PolicyRow(
        words="How many bytes may be uncompacted before a topic is compacted; 0: any number.",
        field="compaction_threshold_bytes",
        read=compaction_threshold,
        namespace=Served("compactionThreshold", method="PUT"),
        topic=Served("compactionThreshold"),
    ),
    PolicyRow(
        words="Whether messages may be delayed, how exactly, and how long at most.",
        field="delayed_delivery",
        read=record(DelayedDelivery, check_delayed_delivery),
        namespace=Served("delayedDelivery"),
        topic=Served("delayedDelivery"),
    ),
)

# Whether topics are created on use, and deleted when they are not used

TOPIC_LIFE = (
    PolicyRow(
        words="Whether using a topic creates it, of which type, with how many partitions.",
        field="auto_topic_creation_override",
        read=record(AutoTopicCreation, check_auto_topic_creation, status=412),
        namespace=Served("autoTopicCreation"),
    ),
    PolicyRow(
        words="When topics that are not used are deleted.",
        field="inactive_topics",
        read=record(
            InactiveTopics,
            check_inactive_topics,
            missing="inactive topic policies should not be null",
            status=412,
        ),
        namespace=Served("inactiveTopicPolicies"),
        topic=Served("inactiveTopicPolicies"),
    ),
)

PUBLISHING = (
    PolicyRow(
        words="Whether a message that is sent twice is stored once.",
        field="deduplication_enabled",
        read=flag,
        namespace=Served("deduplication"),
        topic=Served("deduplicationEnabled"),
    ),
    PolicyRow(
        words="The seconds between two snapshots of deduplication; 0: not by time.",
        field="deduplication_snapshot_interval_s",
        read=number("interval must be greater than or equal to 0"),
        namespace=Served("deduplicationSnapshotInterval", can_delete=False),
        topic=Served("deduplicationSnapshotInterval"),
    ),
    PolicyRow(
        words="How many producers a topic may have; 0: any number.",
        field="producers_per_topic_max",
        read=number("maxProducersPerTopic must be 0 or more"),
        namespace=Served("maxProducersPerTopic"),
        topic=Served("maxProducers"),
    ),
    PolicyRow(
        words="Whether producers must encrypt what they send.",
        field="encryption_required",
        read=yes_or_no,
        namespace=Served("encryptionRequired", can_delete=False),
    ),
    PolicyRow(
        words="How much may be published to a topic in a second.",
        field="publish_max_message_rate",
        read=record(PublishRate, check_publish_rate, or_default=True),
        namespace=Served("publishRate"),
        topic=Served("publishRate"),
        of_cluster=True,
    ),
)

CONSUMING = (
    PolicyRow(
        words="How many consumers a topic may have; 0: any number.",
        field="consumers_per_topic_max",
        read=number("maxConsumersPerTopic must be 0 or more"),
        namespace=Served("maxConsumersPerTopic"),
        topic=Served("maxConsumers"),
    ),
    PolicyRow(
        words="How many consumers a subscription may have; 0: any number.",
        field="consumers_per_subscription_max",
        read=number("maxConsumersPerSubscription must be 0 or more"),
        namespace=Served("maxConsumersPerSubscription"),
        topic=Served("maxConsumersPerSubscription"),
    ),
    PolicyRow(
        words="How many subscriptions a topic may have; 0: any number.",
        field="subscriptions_per_topic_max",
        read=number("maxSubscriptionsPerTopic must be 0 or more"),
        namespace=Served("maxSubscriptionsPerTopic"),
        topic=Served("maxSubscriptionsPerTopic"),
    ),
    PolicyRow(
        words="How many messages a consumer may hold unacknowledged; 0: any number.",
        field="unacked_per_consumer_max",
        read=number("maxUnackedMessagesPerConsumer must be 0 or more"),
        namespace=Served("maxUnackedMessagesPerConsumer"),
        topic=Served("maxUnackedMessagesOnConsumer"),
    ),
    PolicyRow(
        words="How many messages a subscription's consumers may hold together; 0: any number.",
        field="unacked_per_subscription_max",
        read=number("maxUnackedMessagesPerSubscription must be 0 or more"),
        namespace=Served("maxUnackedMessagesPerSubscription"),
        topic=Served("maxUnackedMessagesOnSubscription"),
    ),
    PolicyRow(
        words="How fast messages are dispatched to all consumers of a topic.",
        field="topic_dispatch_rate",
        read=record(DispatchRate, check_dispatch_rate, or_default=True),
        namespace=Served("dispatchRate"),
        topic=Served("dispatchRate"),
        of_cluster=True,
        twins=("cluster_dispatch_rate",),  # its old name; upstream writes both
    ),
    PolicyRow(
        words="How fast messages are dispatched to the consumers of each subscription.",
        field="subscription_dispatch_rate",
        read=record(DispatchRate, check_dispatch_rate, or_default=True),
        namespace=Served("subscriptionDispatchRate"),
        topic=Served("subscriptionDispatchRate"),
        of_cluster=True,
    ),
    PolicyRow(
        words="How fast a topic is sent to each other cluster.",
        field="replicator_dispatch_rate",
        read=record(DispatchRate, check_dispatch_rate, or_default=True),
        namespace=Served("replicatorDispatchRate"),
        topic=Served("replicatorDispatchRate"),
        of_cluster=True,
    ),
    PolicyRow(
        words="How often a consumer may subscribe.",
        field="cluster_subscribe_rate",
        read=record(SubscribeRate, check_subscribe_rate, or_default=True),
        namespace=Served("subscribeRate"),
        topic=Served("subscribeRate"),
        of_cluster=True,
    ),
    PolicyRow(
        words="Whether subscribing creates a subscription.",
        field="auto_subscription_creation_override",
        read=record(AutoSubscriptionCreation, or_default=True),
        namespace=Served("autoSubscriptionCreation"),
        topic=Served("autoSubscriptionCreation"),
    ),
    PolicyRow(
        words="Which types of subscription are allowed; none: those of the broker's settings.",
        field="subscription_types_enabled",
        read=subscription_types,
        namespace=Served("subscriptionTypesEnabled"),
        topic=Served("subscriptionTypesEnabled"),
        unset=(),
    ),
)

SCHEMAS = (
    PolicyRow(
        words="Which schema may follow a topic's present one.",
        field="schema_compatibility_strategy",
        read=strategy(STRATEGY_NAMES),
        namespace=Served("schemaCompatibilityStrategy", method="PUT", can_delete=False),
        topic=Served("schemaCompatibilityStrategy", method="PUT"),
        unset="UNDEFINED",
    ),
    PolicyRow(
        words="The older policy for the same, which counts where the newer one is UNDEFINED.",
        field="schema_auto_update_compatibility_strategy",
        read=strategy(AUTO_UPDATE_STRATEGIES),
        namespace=Served("schemaAutoUpdateCompatibilityStrategy", method="PUT", can_delete=False),
    ),
    PolicyRow(
        words="Whether a producer registers its schema where the topic does not have it.",
        field="is_allow_auto_update_schema",
        read=yes_or_no,
        namespace=Served("isAllowAutoUpdateSchema", can_delete=False),
        in_force=lambda services: services.policies.config.schemas.allow_auto_update_schema,
    ),
    PolicyRow(
        words="Whether producers without a schema are refused by topics that have one.",
        field="schema_validation_enforced",
        read=yes_or_no,
        namespace=Served("schemaValidationEnforced", can_delete=False),
        topic=Served("schemaValidationEnforced"),
    ),
)

# A new policy is a row above. The order is that of the API page.
TABLE = STORAGE + TOPIC_LIFE + PUBLISHING + CONSUMING + SCHEMAS

router = policy_router(NamespaceLevel(), TABLE)
