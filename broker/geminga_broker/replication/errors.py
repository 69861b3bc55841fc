"""Why a topic is not replicated at the moment."""

from __future__ import annotations

from geminga_runtime.errors import GemingaError


class ReplicationError(GemingaError):
    """A topic cannot be replicated to a cluster until somebody changes something there or here."""


class ClusterUnreachable(ReplicationError):
    """It is not known where the remote cluster is."""


class PartitionsDiffer(ReplicationError):
    """The topic has other partitions in the remote cluster."""

    def __init__(self, topic: str, here: int, remote: str, there: int) -> None:
        super().__init__(
            f"{topic} has {_partitions(here)} here and {_partitions(there)} in {remote}: give it "
            "as many there, or delete one of the two"
        )
        self.topic = topic
        self.here = here
        self.remote = remote
        self.there = there


class RemoteRefused(ReplicationError):
    """The remote cluster does not do what it is asked over REST, or does not answer."""

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
    """The remote cluster does not take the schema of a message."""

    def __init__(self, topic: str, version: int, remote: str, why: str) -> None:
        super().__init__(
            f"{remote} does not take version {version} of the schema of {topic}: {why}. Change the "
            "schema or the compatibility strategy there, or take the cluster out"
        )


def _partitions(count: int) -> str:
    return f"{count} partitions" if count else "no partitions"
