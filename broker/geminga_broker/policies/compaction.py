"""When and how topics are compacted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge, Gt

from geminga_broker.policies.levels import Levels, nearest
from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """What holds for a topic: the broker's settings, of which namespaces and topics may set the
    threshold."""

    threshold_bytes: Annotated[int, Ge(0), Upstream("brokerServiceCompactionThresholdInBytes")] = 0
    """A topic is compacted when so many bytes are not compacted yet, where its namespace does not
    say; 0: only on request."""
    check_s: Annotated[
        float, Gt(0), Upstream("brokerServiceCompactionMonitorIntervalInSeconds")
    ] = 60.0
    """How often the broker checks whether topics are due."""
    retain_null_key: Annotated[bool, Upstream("topicCompactionRetainNullKey")] = False
    """Whether messages without a key stay."""
    read_bytes_per_s_max: Annotated[int, Gt(0)] = 64 * 1024 * 1024
    """A compaction reads no faster, so that it does not slow down producers and consumers."""


# How much of ``__change_events`` may be uncompacted: hardly anything, for every broker that loads a
# topic reads all of it first. 1 and not 0, which would mean "only on request".
CHANGE_EVENTS_THRESHOLD_BYTES = 1


def compaction(config: CompactionConfig, levels: Levels) -> CompactionConfig:
    """The settings of a topic."""
    threshold_bytes = nearest(
        levels.topic.compaction_threshold_bytes,
        levels.namespace.compaction_threshold_bytes,
        config.threshold_bytes,
    )
    # Other writers of the record may have left a negative threshold: it means none, as 0 does.
    return replace(config, threshold_bytes=max(threshold_bytes, 0))
