"""How topics are compacted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """What holds for every topic of a broker."""

    threshold_bytes: Annotated[int, Ge(0)] = 0
    """A topic is compacted when so much is not compacted yet, where its namespace does not say;
    0: never by itself (brokerServiceCompactionThresholdInBytes)."""
    check_s: Annotated[float, Gt(0)] = 60.0
    """How often topics are looked at for that (brokerServiceCompactionMonitorIntervalInSeconds)."""
    retain_null_key: bool = False
    """Whether messages without a key stay (topicCompactionRetainNullKey)."""
    read_bytes_per_s_max: Annotated[int, Gt(0)] = 64 * 1024 * 1024
    """A compaction reads no faster, so that those who publish and consume go on as before."""
