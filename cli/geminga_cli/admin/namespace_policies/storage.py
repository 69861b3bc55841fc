"""The policies of storage, and of the creation and deletion of topics, a row each."""

from __future__ import annotations

import argparse
from typing import Any

from geminga_cli.admin.namespace_policies.policy import ON_OR_OFF, Policy, is_on
from geminga_cli.admin.operation import Given, option, switch
from geminga_cli.admin.values import SECONDS_A_MINUTE, compact, seconds, size_bytes

MIB = 1 << 20

QUOTA_TYPE = option(
    "-t",
    "--type",
    default="destination_storage",
    choices=("destination_storage", "message_age"),
    help="limit by size (default) or by age",
)


def retention(given: Given) -> dict[str, int]:
    """In minutes and MiB, as they are stored: less than one of these keeps nothing.

    Negative numbers are no limit.
    """
    # ``RetentionPolicies`` of Pulsar. Rounded down, as upstream does: 90 s are kept as 1 minute.
    time_s, size = given.time, given.size
    return {
        "retentionTimeInMinutes": time_s if time_s < 0 else time_s // SECONDS_A_MINUTE,
        "retentionSizeInMB": size if size < 0 else size // MIB,
    }


def backlog_quota(given: Given) -> dict[str, Any]:
    """A limit of size, of age, or both."""
    # A limit that is not given is -1, which is none. ``BacklogQuotaImpl`` of Pulsar.
    if given.limit is None and given.limitTime is None:
        raise argparse.ArgumentTypeError("one of --limit and --limitTime is needed")
    return {
        "limitSize": -1 if given.limit is None else given.limit,
        "limitTime": -1 if given.limitTime is None else given.limitTime,
        "policy": given.policy,
    }


def persistence(given: Given) -> dict[str, Any]:
    """The quorums, and how often positions of subscriptions are stored."""
    return {
        # ``PersistencePolicies`` of Pulsar.
        "bookkeeperEnsemble": given.bookkeeper_ensemble,
        "bookkeeperWriteQuorum": given.bookkeeper_write_quorum,
        "bookkeeperAckQuorum": given.bookkeeper_ack_quorum,
        "managedLedgerMaxMarkDeleteRate": given.ml_mark_delete_max_rate,
    }


def auto_topic_creation(given: Given) -> dict[str, Any]:
    """Whether topics are created by use, and how many partitions these have."""
    # ``AutoTopicCreationOverrideImpl`` of Pulsar; switched off, it has no other members.
    if not is_on(given):
        return {"allowAutoTopicCreation": False}
    # The number is needed for partitioned topics, and senseless for others.
    if (given.num_partitions is None) == (given.type == "partitioned"):
        raise argparse.ArgumentTypeError("--num-partitions goes with --type partitioned")
    return compact(
        {
            "allowAutoTopicCreation": True,
            "topicType": given.type,
            "defaultNumPartitions": given.num_partitions,
        }
    )


def delayed_delivery(given: Given) -> dict[str, Any]:
    """Whether messages may be delayed, how exactly and for how long."""
    return {
        # ``DelayedDeliveryPoliciesImpl`` of Pulsar.
        "active": is_on(given),
        "tickTime": given.time,
        "maxDeliveryDelayInMillis": given.maxDelay * 1_000,
    }


def inactive_topics(given: Given) -> dict[str, Any]:
    """Which inactive topics are deleted, and after how long."""
    on, off = given.enable_delete_while_inactive, given.disable_delete_while_inactive
    if on == off:
        raise argparse.ArgumentTypeError(
            "one of --enable-delete-while-inactive and --disable-delete-while-inactive is needed"
        )
    return {
        # ``InactiveTopicPolicies`` of Pulsar.
        "inactiveTopicDeleteMode": given.delete_mode,
        "maxInactiveDurationSeconds": given.max_inactive_duration,
        "deleteWhileInactive": on,
    }


# What of the messages is kept, and where. Each row makes get-, set- and remove-. The paths are
# those of ``Namespaces`` of Pulsar.
STORAGE = (
    Policy(
        "retention",
        "what is kept of acknowledged messages",
        "retention",
        (
            option(
                "--time",
                "-t",
                read=seconds,
                required=True,
                metavar="TIME",
                help="how long: 90 (seconds), 100m, 3h, 2d, 5w; 0: not at all, -1: without limit",
            ),
            option(
                "--size",
                "-s",
                read=size_bytes,
                required=True,
                metavar="SIZE",
                help="how much of a topic: 4096 (bytes), 10M, 16G, 3T; 0: nothing, -1: all",
            ),
        ),
        retention,
    ),
    Policy(
        "persistence",
        "on how many bookies messages are stored",
        "persistence",
        (
            option("--bookkeeper-ensemble", "-e", read=int, default=2, help="bookies of a ledger"),
            option("--bookkeeper-write-quorum", "-w", read=int, default=2, help="copies written"),
            option("--bookkeeper-ack-quorum", "-a", read=int, default=2, help="copies waited for"),
            option(
                "--ml-mark-delete-max-rate",
                "-r",
                read=float,
                default=0.0,
                help="how many times a second positions are stored; 0: no limit",
            ),
        ),
        persistence,
    ),
    Policy(
        "backlog-quota",
        "how large and how old a backlog may be",
        "backlogQuota",
        (
            option("-l", "--limit", read=size_bytes, metavar="SIZE", help="how much: 10M, 16G"),
            option(
                "-lt", "--limitTime", read=seconds, metavar="TIME", help="how old: 100m, 3h, 2d"
            ),
            option(
                "-p",
                "--policy",
                required=True,
                choices=(
                    "producer_request_hold",
                    "producer_exception",
                    "consumer_backlog_eviction",
                ),
                help="at the limit: producers wait, are refused, or old messages are skipped",
            ),
            QUOTA_TYPE,
        ),
        backlog_quota,
        # Read as a map of all types, written one type at a time.
        shown_at="backlogQuotaMap",
        plural="backlog-quotas",
        query=(("backlogQuotaType", "type"),),
    ),
    Policy(
        # Without it, messages of a subscription without consumers are kept for ever.
        "message-ttl",
        "after how many seconds messages expire",
        "messageTTL",
        (
            option(
                "--messageTTL",
                "-ttl",
                read=seconds,
                required=True,
                metavar="TIME",
                help="90 (seconds), 100m, 3h, 2d, 5w; 0: never",
            ),
        ),
        lambda given: given.messageTTL,
    ),
    Policy(
        "compaction-threshold",
        "how many uncompacted bytes start a compaction",
        "compactionThreshold",
        (
            option(
                "--threshold",
                "-t",
                read=size_bytes,
                required=True,
                metavar="SIZE",
                help="10M, 16G, 3T; 0: any amount",
            ),
        ),
        lambda given: given.threshold,
        method="PUT",
    ),
    Policy(
        "delayed-delivery",
        "whether messages may be delayed",
        "delayedDelivery",
        (
            *ON_OR_OFF,
            option(
                "--time",
                "-t",
                read=int,
                default=1_000,
                metavar="MILLISECONDS",
                help="how exactly (default: 1000)",
            ),
            option(
                "--maxDelay",
                "-md",
                read=seconds,
                default=0,
                metavar="TIME",
                help="how long at most: 1s, 1m, 5h, 3d; 0: no limit (default)",
            ),
        ),
        delayed_delivery,
    ),
)

# When topics and subscriptions are created and deleted.
TOPIC_LIFE = (
    Policy(
        "auto-topic-creation",
        "whether topics are created by use",
        "autoTopicCreation",
        (
            *ON_OR_OFF,
            option(
                "--type",
                "-t",
                default="non-partitioned",
                choices=("partitioned", "non-partitioned"),
                help="the kind of topics that are created (default: non-partitioned)",
            ),
            option("--num-partitions", "-n", read=int, help="how many partitions these have"),
        ),
        auto_topic_creation,
    ),
    Policy(
        "auto-subscription-creation",
        "whether subscriptions are created by use",
        "autoSubscriptionCreation",
        (switch("--enable", "-e", help="yes; without it: no"),),
        lambda given: {"allowAutoSubscriptionCreation": given.enable},
    ),
    Policy(
        # All four are one policy: what is not given cannot stay as it was.
        "inactive-topic-policies",
        "when inactive topics are deleted",
        "inactiveTopicPolicies",
        (
            switch("--enable-delete-while-inactive", "-e", help="they are deleted"),
            switch("--disable-delete-while-inactive", "-d", help="they are not"),
            option(
                "--max-inactive-duration",
                "-t",
                read=seconds,
                required=True,
                metavar="TIME",
                help="after this time without use: 1s, 10s, 1m, 5h, 3d",
            ),
            option(
                "--delete-mode",
                "-m",
                required=True,
                choices=("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"),
                help="which topics are deleted",
            ),
        ),
        inactive_topics,
    ),
)
