"""Whether a topic that is used before it was created is created by that. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from geminga_broker.policies.errors import InvalidPolicy
from geminga_protocol.records.cluster.namespaces import AutoTopicCreation, Policies
from geminga_server.config import Upstream

# Each partition is a topic with ledgers and cursors of its own. Upstream has no limit, and advises
# against more than 1,000.
PARTITIONS_MAX = 10_000
PARTITIONED = "partitioned"
TOPIC_TYPES = (PARTITIONED, "non-partitioned")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoCreationConfig:
    """What holds where a namespace does not set it."""

    auto_topic_creation: Annotated[bool, Upstream("allowAutoTopicCreation")] = True
    """Using a topic creates it, where its namespace does not say."""
    auto_topic_partitions: Annotated[int, Ge(0), Upstream("defaultNumPartitions")] = 0
    """With how many partitions it is created then; 0: not partitioned."""


@dataclass(frozen=True, slots=True)
class AutoCreation:
    """Whether using a topic creates it, and with how many partitions (0: not partitioned)."""

    is_allowed: bool = True
    partitions: int = 0


# What holds for system topics, whatever namespaces and config say: brokers need them.
ALWAYS = AutoCreation()


def auto_creation(config: AutoCreationConfig, policies: Policies) -> AutoCreation:
    """What holds in a namespace with these policies. A topic cannot set it: it does not exist."""
    # Whole: a namespace that sets it sets both values.
    override = policies.auto_topic_creation_override
    if override is None:
        return AutoCreation(config.auto_topic_creation, config.auto_topic_partitions)
    # The number of partitions counts for partitioned topics only; where it is missing, one is
    # created. Upstream's check makes it impossible for a record to lack it; other writers do not
    # check.
    if override.topic_type != PARTITIONED:
        return AutoCreation(override.allowed)
    return AutoCreation(override.allowed, override.default_num_partitions or 1)


def check_auto_topic_creation(policy: AutoTopicCreation) -> None:
    """Raise ``InvalidPolicy`` for an unknown type, or an impossible number of partitions."""
    # Where nothing is created, type and number have no effect: whatever they are is accepted.
    if not policy.allowed:
        return
    # The texts are upstream's, as tools show them.
    refused = "Invalid configuration for autoTopicCreationOverride. the detail is "
    count = policy.default_num_partitions
    if policy.topic_type not in TOPIC_TYPES:
        raise InvalidPolicy(f"{refused}Unknown topic type [{policy.topic_type}]")
    if policy.topic_type != PARTITIONED:
        if count is not None:
            raise InvalidPolicy(
                f"{refused}[defaultNumPartitions] is not allowed to be set when the type is "
                "non-partition."
            )
    elif count is None:
        raise InvalidPolicy(
            f"{refused}[defaultNumPartitions] cannot be null when the type is partitioned."
        )
    elif not 0 < count <= PARTITIONS_MAX:
        bound = "less than 1" if count < 1 else f"more than {PARTITIONS_MAX}"  # upstream has no max
        raise InvalidPolicy(
            f"{refused}[defaultNumPartitions] cannot be {bound} for partition type."
        )
