"""The number of a topic's partitions; a topic without partitions has no such node.

Facts: ``PartitionedTopicMetadata`` of Apache Pulsar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from geminga_protocol.records.encodings.json_records import JsonRecord

# Below it lies one node for each partitioned topic, /TENANT/NAMESPACE/DOMAIN/TOPIC. The partitions
# themselves have no node here: they are the topics TOPIC-partition-0 and so on, which exist when
# each is first used or created.
PARTITIONED_TOPICS_PATH = "/admin/partitioned-topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedTopicMetadata(JsonRecord):
    """One partitioned topic. ``deleted`` is set while its partitions are being deleted."""

    partitions: int = 0
    deleted: bool = False
    properties: Mapping[str, str] | None = None


def partitioned_topic_path(namespace: str, domain: str, encoded_local_name: str) -> str:
    """The node of a partitioned topic: ``namespace`` is ``tenant/name``, ``domain`` the scheme."""
    return f"{PARTITIONED_TOPICS_PATH}/{namespace}/{domain}/{encoded_local_name}"
