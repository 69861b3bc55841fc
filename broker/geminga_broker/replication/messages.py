"""Which entries of a log are replicated to a cluster, and which are passed over. Pure."""

from __future__ import annotations

from enum import Enum

from geminga_protocol.pulsar.api_pb2 import MessageMetadata


class Verdict(Enum):
    """What becomes of an entry."""

    SEND = "sent"
    # Replicated by the cluster that it was published to, and by no other: it would go in circles.
    FROM_ELSEWHERE = "from another cluster"
    # Its producer has named the clusters that get it.
    NOT_SELECTED = "not for that cluster"
    EXPIRED = "expired"
    # Written by a broker, for its own cluster.
    MARKER = "marker"


def judge(metadata: MessageMetadata, remote: str, *, expires_before_ms: int) -> Verdict:
    """Whether an entry is replicated to the cluster ``remote``. Messages that were published before
    ``expires_before_ms`` (Unix time) have expired in this cluster."""
    if metadata.HasField("marker_type"):
        return Verdict.MARKER
    # So an entry travels one step only: clusters are replicated to each other in pairs.
    if metadata.replicated_from:
        return Verdict.FROM_ELSEWHERE
    # A message that is not to be replicated at all names ``__local__``, which is no cluster.
    if metadata.replicate_to and remote not in metadata.replicate_to:
        return Verdict.NOT_SELECTED
    # Last: it would not be counted as expired if it is not meant for that cluster.
    if metadata.publish_time < expires_before_ms:
        return Verdict.EXPIRED
    return Verdict.SEND
