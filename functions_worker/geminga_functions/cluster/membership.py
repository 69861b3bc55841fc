"""Which workers exist, and which of them leads, read from the stats of their common subscription.

The name of a worker's consumer is ``id:host:port``, as upstream's are.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_functions.errors import ClusterUnknown
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestCall, RestCalls

# A broker answers from memory; the topic may be moving to another one.
STATS_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, order=True)
class WorkerInfo:
    """A worker, and the address of its REST interface."""

    worker_id: str
    hostname: str
    port: int

    @classmethod
    def parse(cls, consumer_name: str) -> WorkerInfo | None:
        """The worker with that consumer; None if the consumer is no worker's."""
        # From both ends: an IPv6 address in the middle has colons, too.
        worker_id, _, rest = consumer_name.partition(":")
        hostname, _, port = rest.rpartition(":")
        if not worker_id or not hostname or not port.isascii() or not port.isdecimal():
            return None
        return cls(worker_id, hostname, int(port))

    def __str__(self) -> str:
        return f"{self.worker_id}:{self.hostname}:{self.port}"

    @property
    def url(self) -> str:
        """The URL of its REST interface."""
        return f"http://{self.hostname}:{self.port}"


@dataclass(frozen=True, slots=True)
class Members:
    """The workers that consume, sorted by id, and the leader, whose consumer is active."""

    workers: tuple[WorkerInfo, ...]
    leader: WorkerInfo | None

    def find(self, worker_id: str) -> WorkerInfo | None:
        """The worker with this id; None if there is none."""
        return next((each for each in self.workers if each.worker_id == worker_id), None)


@dataclass(frozen=True, slots=True)
class Membership:
    """Reads the members from the stats of the topic that all workers consume."""

    # Nothing is remembered: each question is a request to a broker.
    calls: RestCalls
    # Where a broker answers with the stats of the topic.
    url: str
    # The subscription that all workers share.
    subscription: str

    async def members(self) -> Members:
        """The workers at this moment. Raises ``ClusterUnknown``."""
        try:
            answer = await self.calls.call(RestCall("GET", self.url, timeout_s=STATS_TIMEOUT_S))
        except ServerUnreachable as error:
            raise ClusterUnknown(str(error)) from error
        stats = answer.json()
        if not answer.is_success or not isinstance(stats, dict):
            raise ClusterUnknown(answer.reason)
        # Without it no worker has subscribed yet: there are no members, and no leader.
        subscription = stats.get("subscriptions", {}).get(self.subscription, {})
        names = [each.get("consumerName", "") for each in subscription.get("consumers", [])]
        # A set: a worker that reconnects may have two consumers for a moment.
        workers = {worker for name in names if (worker := WorkerInfo.parse(name)) is not None}
        # Empty between two consumers; and the stats may be older than the end of the active one.
        leader = WorkerInfo.parse(subscription.get("activeConsumerName") or "")
        return Members(tuple(sorted(workers)), leader if leader in workers else None)
