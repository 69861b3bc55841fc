"""How topics are replicated to other clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Gt

from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """Of all topics of a broker; the defaults are upstream's."""

    pending_messages_max: Annotated[int, Gt(0), Upstream("replicationProducerQueueSize")] = 1000
    """So many entries of a topic may be without a receipt of the remote cluster; with 1, each is
    sent when the one before is stored there."""
    start_at: Annotated[Literal["latest", "earliest"], Upstream("replicationStartAt")] = "latest"
    """Whether a topic that begins to be replicated sends only what is published from then on, or
    all that it has."""
    creates_remote_topics: Annotated[bool, Upstream("createTopicToRemoteClusterForReplication")] = (
        True
    )
    """Whether a partitioned topic is made in the clusters that it is replicated to."""
    stall_timeout_s: Annotated[float, Gt(0)] = 60.0
    """An entry that has waited so long for its receipt has all that is on its way sent anew, over
    a new connection where the old one is of no use."""
    retry_first_s: Annotated[float, Gt(0)] = 0.1
    """How long a replicator waits before it tries again; doubled up to the next setting."""
    retry_limit_s: Annotated[float, Gt(0)] = 5.0
    """The longest such wait."""
