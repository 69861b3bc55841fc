"""The policies of producers, of consumers and of schemas, a row each."""

from __future__ import annotations

from typing import Any

from geminga_cli.admin.namespace_policies.policy import ON_OR_OFF, Policy, is_on, limit, rate
from geminga_cli.admin.operation import Given, option, switch
from geminga_cli.admin.values import words

# The arguments of the three policies of dispatch rates.
DISPATCH_RATE = (
    rate("--msg-dispatch-rate", "-md", what="messages in a period"),
    rate("--byte-dispatch-rate", "-bd", what="bytes in a period"),
    option(
        "--dispatch-rate-period",
        "-dt",
        read=int,
        default=1,
        metavar="SECONDS",
        help="how long a period is (default: 1)",
    ),
    switch("--relative-to-publish-rate", "-rp", help="the rate is added to that of publishing"),
)


def dispatch_rate(given: Given) -> dict[str, Any]:
    """The rate that the options of ``DISPATCH_RATE`` give."""
    return {
        # ``DispatchRateImpl`` of Pulsar.
        "dispatchThrottlingRateInMsg": given.msg_dispatch_rate,
        "dispatchThrottlingRateInByte": given.byte_dispatch_rate,
        "ratePeriodInSecond": given.dispatch_rate_period,
        "relativeToPublishRate": given.relative_to_publish_rate,
    }


# Producers.
PUBLISHING = (
    Policy(
        "deduplication",
        "whether a message that is sent twice is stored once",
        "deduplication",
        ON_OR_OFF,
        is_on,
    ),
    Policy(
        # Longer is cheaper, and a topic that moves reads more of its log again.
        "deduplication-snapshot-interval",
        "how many seconds lie between snapshots of producers' sequence ids",
        "deduplicationSnapshotInterval",
        (
            option(
                "--interval", "-i", read=int, required=True, metavar="SECONDS", help="the interval"
            ),
        ),
        lambda given: given.interval,
        can_remove=False,
    ),
    Policy(
        "encryption-required",
        "whether producers must encrypt what they send",
        "encryptionRequired",
        ON_OR_OFF,
        is_on,
        can_remove=False,
    ),
    Policy(
        "publish-rate",
        "how much may be published to a topic in a second",
        "publishRate",
        (
            rate("--msg-publish-rate", "-m", what="messages in a second"),
            rate("--byte-publish-rate", "-b", what="bytes in a second"),
        ),
        lambda given: {
            # ``PublishRate`` of Pulsar: always by the second.
            "publishThrottlingRateInMsg": given.msg_publish_rate,
            "publishThrottlingRateInByte": given.byte_publish_rate,
        },
    ),
    limit(
        "max-producers-per-topic",
        "maxProducersPerTopic",
        "how many producers a topic may have",
        "--max-producers-per-topic",
        "-p",
    ),
)

# Consumers and subscriptions, and replicators, which consume for other clusters.
CONSUMING = (
    limit(
        "max-consumers-per-topic",
        "maxConsumersPerTopic",
        "how many consumers a topic may have",
        "--max-consumers-per-topic",
        "-c",
    ),
    limit(
        "max-consumers-per-subscription",
        "maxConsumersPerSubscription",
        "how many consumers a subscription may have",
        "--max-consumers-per-subscription",
        "-c",
    ),
    limit(
        "max-subscriptions-per-topic",
        "maxSubscriptionsPerTopic",
        "how many subscriptions a topic may have",
        "--max-subscriptions-per-topic",
        "-m",
    ),
    limit(
        "max-unacked-messages-per-consumer",
        "maxUnackedMessagesPerConsumer",
        "how many messages a consumer may hold unacknowledged",
        # pulsar-admin names this option after the topic, although the limit is for a consumer. The
        # second name is ours.
        "--max-unacked-messages-per-topic",
        "--max-unacked-messages-per-consumer",
        "-c",
    ),
    limit(
        "max-unacked-messages-per-subscription",
        "maxUnackedMessagesPerSubscription",
        "how many messages a subscription's consumers may hold unacknowledged",
        "--max-unacked-messages-per-subscription",
        "-c",
    ),
    Policy(
        "dispatch-rate",
        "how fast messages are sent to a topic's consumers",
        "dispatchRate",
        DISPATCH_RATE,
        dispatch_rate,
    ),
    Policy(
        "subscription-dispatch-rate",
        "how fast messages are sent to each subscription's consumers",
        "subscriptionDispatchRate",
        DISPATCH_RATE,
        dispatch_rate,
    ),
    Policy(
        "replicator-dispatch-rate",
        "how fast a topic is replicated to each other cluster",
        "replicatorDispatchRate",
        DISPATCH_RATE,
        dispatch_rate,
    ),
    Policy(
        "subscribe-rate",
        "how often a consumer may subscribe",
        "subscribeRate",
        (
            rate("--subscribe-rate", "-sr", what="times in a period"),
            option(
                "--subscribe-rate-period",
                "-st",
                read=int,
                default=30,
                metavar="SECONDS",
                help="how long a period is (default: 30)",
            ),
        ),
        lambda given: {
            # ``SubscribeRate`` of Pulsar: it slows down consumers that reconnect in a loop.
            "subscribeThrottlingRatePerConsumer": given.subscribe_rate,
            "ratePeriodInSecond": given.subscribe_rate_period,
        },
    ),
    Policy(
        "subscription-types-enabled",
        "which types of subscriptions are allowed",
        "subscriptionTypesEnabled",
        (
            option(
                "--types",
                "-t",
                read=words,
                required=True,
                metavar="A,B",
                help="of Exclusive, Shared, Failover, Key_Shared",
            ),
        ),
        lambda given: given.types,
    ),
)

SCHEMAS = (
    Policy(
        "schema-compatibility-strategy",
        "which new schemas are compatible with the existing ones",
        "schemaCompatibilityStrategy",
        (
            option(
                "--compatibility",
                "-c",
                required=True,
                read=str.upper,
                metavar="STRATEGY",
                help="FULL, BACKWARD, FORWARD, these with _TRANSITIVE, ALWAYS_COMPATIBLE, "
                "ALWAYS_INCOMPATIBLE, UNDEFINED",
            ),
        ),
        lambda given: given.compatibility,
        method="PUT",
        can_remove=False,
    ),
    Policy(
        "is-allow-auto-update-schema",
        "whether clients may add new schemas",
        "isAllowAutoUpdateSchema",
        ON_OR_OFF,
        is_on,
        can_remove=False,
    ),
    Policy(
        "schema-validation-enforce",
        "whether producers without a schema are refused",
        "schemaValidationEnforced",
        ON_OR_OFF,
        is_on,
        can_remove=False,
        shows_applied=True,
    ),
)
