"""Why a topic is not replicated at the moment."""

from __future__ import annotations

from geminga_runtime.errors import GemingaError


class ReplicationError(GemingaError):
    """A topic cannot be replicated to a cluster. The replicator retries; mostly an operator has to
    change something, here or there."""


class ClusterUnreachable(ReplicationError):
    """The record of the remote cluster is missing, or does not say how to reach it."""


class PartitionsDiffer(ReplicationError):
    """The topic has other partitions in the remote cluster."""

    def __init__(self, topic: str, here: int, remote: str, there: int) -> None:
        # Both clusters are named: the operator may mend it on either side.
        super().__init__(
            f"{topic} has {_partitions(here)} here and {_partitions(there)} in {remote}: give it "
            "as many there, or delete one of the two"
        )
        self.topic = topic
        self.here = here
        self.remote = remote
        self.there = there


class RemoteRefused(ReplicationError):
    """The remote cluster refuses a REST request, or does not answer it."""

    def __init__(self, remote: str, status: int, reason: str) -> None:
        super().__init__(f"{remote} refuses it: {reason}")
        self.remote = remote
        self.status = status
        self.reason = reason


class ReplicationStalled(ReplicationError):
    """The remote cluster confirms nothing."""

    def __init__(self, remote: str, limit_s: float) -> None:
        super().__init__(f"{remote} confirmed nothing for {limit_s:g} seconds")


class SchemaRefused(ReplicationError):
    """The remote cluster refuses the schema of a message."""

    def __init__(self, topic: str, version: int, remote: str, why: str) -> None:
        super().__init__(
            f"{remote} does not take version {version} of the schema of {topic}: {why}. Change the "
            "schema or the compatibility strategy there, or take the cluster out"
        )


def _partitions(count: int) -> str:
    return f"{count} partitions" if count else "no partitions"
