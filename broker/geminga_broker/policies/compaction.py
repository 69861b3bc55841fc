"""When and how topics are compacted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge, Gt

from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.levels import LONG_MAX, Levels, nearest
from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """What holds for a topic."""

    threshold_bytes: Annotated[int, Ge(0), Upstream("brokerServiceCompactionThresholdInBytes")] = 0
    """A topic is compacted when so much is not compacted yet, where its namespace does not say; 0:
    never by itself."""
    check_s: Annotated[
        float, Gt(0), Upstream("brokerServiceCompactionMonitorIntervalInSeconds")
    ] = 60.0
    """How often topics are looked at for that."""
    retain_null_key: Annotated[bool, Upstream("topicCompactionRetainNullKey")] = False
    """Whether messages without a key stay."""
    read_bytes_per_s_max: Annotated[int, Gt(0)] = 64 * 1024 * 1024
    """A compaction reads no faster, so that those who publish and consume go on as before."""


# How much of ``__change_events`` may be uncompacted. Brokers read it from its beginning.
CHANGE_EVENTS_THRESHOLD_BYTES = 1


def compaction(config: CompactionConfig, said: Levels) -> CompactionConfig:
    """What holds for a topic of which the levels say this."""
    threshold_bytes = nearest(
        said.topic.compaction_threshold_bytes,
        said.namespace.compaction_threshold_bytes,
        config.threshold_bytes,
    )
    return replace(config, threshold_bytes=max(threshold_bytes, 0))


def check_compaction_threshold(threshold_bytes: int) -> None:
    """Raise ``InvalidPolicy`` for a threshold that is none."""
    if not 0 <= threshold_bytes <= LONG_MAX:
        raise InvalidPolicy("compactionThreshold must be 0 or more")
