"""Which entries of a log are replicated to a cluster, and which are passed over. Pure."""

from __future__ import annotations

from enum import Enum

from geminga_protocol.pulsar.api_pb2 import MessageMetadata


class Verdict(Enum):
    """What becomes of an entry."""

    SEND = "sent"
    FROM_ELSEWHERE = "from another cluster"
    """Its own cluster replicates it, so that it does not go round in circles."""
    NOT_SELECTED = "not for that cluster"
    EXPIRED = "expired"
    MARKER = "marker"
    """Written by a broker, for its own cluster."""


def judge(metadata: MessageMetadata, remote: str, *, expires_before_ms: int) -> Verdict:
    """What becomes of an entry on the way to ``remote``. Messages that were published before
    ``expires_before_ms`` are too old to be delivered anywhere."""
    if metadata.HasField("marker_type"):
        return Verdict.MARKER
    if metadata.replicated_from:
        return Verdict.FROM_ELSEWHERE
    # That of a message which is not to be replicated names no cluster: ``__local__``.
    if metadata.replicate_to and remote not in metadata.replicate_to:
        return Verdict.NOT_SELECTED
    if metadata.publish_time < expires_before_ms:
        return Verdict.EXPIRED
    return Verdict.SEND
