"""What becomes of a topic that is used before it was created: pure reading of the policies."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_protocol.records.namespaces import Policies


@dataclass(frozen=True, slots=True)
class AutoCreation:
    """Whether using a topic creates it, and with how many partitions (0: not partitioned)."""

    is_allowed: bool = True
    partitions: int = 0


# The broker's own setting, which a namespace may override.
AUTO_CREATION_DEFAULT = AutoCreation()


def auto_creation(
    policies: Policies, default: AutoCreation = AUTO_CREATION_DEFAULT
) -> AutoCreation:
    """What holds in a namespace with these policies."""
    override = policies.auto_topic_creation_override
    if override is None:
        return default
    if override.topic_type != "partitioned":
        return AutoCreation(override.allowed)
    return AutoCreation(override.allowed, override.default_num_partitions or 1)
