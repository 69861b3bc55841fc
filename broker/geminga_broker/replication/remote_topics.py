"""Partitioned topics in the clusters that they are replicated to, over these clusters' REST.

A partition is replicated to the topic of the same name. If the remote topic had another number of
partitions, clients of the two clusters would see different topics. So the whole partitioned topic
is created there first, and gets further partitions when it gets them here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable

from geminga_broker.replication.errors import PartitionsDiffer, RemoteRefused
from geminga_broker.replication.remote_clusters import RemoteClusters
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import BrokerCalls, RestAnswer, RestCall

log = logging.getLogger(__name__)

# How long a remote cluster may take to answer one call.
CALL_TIMEOUT_S = 10.0
# At most so many topics are being created in remote clusters in the background. Others are left to
# their replicators. A namespace that gets another cluster may have very many topics. Each task here
# waits for a REST call of up to 10 s.
CREATIONS_MAX = 1000


class RemoteTopics(Service):
    """Creates topics in the clusters of ``remotes``."""

    def __init__(self, remotes: RemoteClusters, *, is_enabled: bool) -> None:
        super().__init__()
        # Whether topics are created there at all (``ReplicationConfig.creates_remote_topics``).
        self.is_enabled = is_enabled
        self._remotes = remotes
        # How many topics are being created in the background.
        self._creating = 0

    def create_soon(self, topic: TopicName, partitions: int, clusters: Iterable[str]) -> None:
        """Create a topic with so many partitions in ``clusters`` in the background. What fails is
        done later by the replicator of the first partition that has something to replicate."""
        if not self.is_enabled:
            return
        for cluster in clusters:
            # Counted here, not in the task, which starts in a later turn.
            if self._creating < CREATIONS_MAX:
                self._creating += 1
                self.spawn(self._create_later(topic, partitions, cluster), name=f"create {topic}")

    async def _create_later(self, topic: TopicName, partitions: int, cluster: str) -> None:
        try:
            await self.create(topic, partitions, cluster)
        except GemingaError as error:
            log.warning(
                "topic not created in remote cluster",
                extra={"topic": str(topic), "cluster": cluster, "why": str(error)},
            )
        finally:
            self._creating -= 1

    async def create_in_each(
        self, topic: TopicName, partitions: int, clusters: Iterable[str]
    ) -> None:
        """Create a topic with so many partitions in all of ``clusters``, where it is not there yet.

        Raises the first of the errors of ``create``, when all are done.
        """
        if self.is_enabled:
            await _all(self.create(topic, partitions, cluster) for cluster in clusters)

    async def grow_in_each(
        self, topic: TopicName, partitions: int, clusters: Iterable[str]
    ) -> None:
        """Give a partitioned topic so many partitions in all of ``clusters``.

        Raises, when all are done, the first ``RemoteRefused``, ``ReplicationError`` or
        ``CoordinationError``.
        """
        await _all(self._grow(topic, partitions, cluster) for cluster in clusters)

    async def create(self, topic: TopicName, partitions: int, cluster: str) -> None:
        """Create a topic with so many partitions in ``cluster``, or see that it has as many.

        Raises ``PartitionsDiffer``, ``RemoteRefused``, ``ClusterUnreachable`` and
        ``CoordinationError``.
        """
        # "Local" is the remote cluster: it must not create the topic in its own remote clusters,
        # which include this one.
        answer = await self._ask(cluster, topic, "PUT", partitions, "createLocalTopicOnly=true")
        if answer.is_success:
            log.info(
                "topic created in remote cluster",
                extra={"topic": str(topic), "cluster": cluster, "partitions": partitions},
            )
            return
        if answer.status != 409:
            raise RemoteRefused(cluster, answer.status, answer.reason)
        # It exists: another broker has created it just now, or it has other partitions. 409 does
        # not tell the two apart, so the number is asked for.
        answer = await self._ask(cluster, topic, "GET")
        found = answer.json()
        if not answer.is_success or not isinstance(found, dict):
            raise RemoteRefused(cluster, answer.status, answer.reason)
        there = found.get("partitions")
        # 0 partitions is the answer for a topic that is not partitioned.
        there = there if isinstance(there, int) else 0
        if there != partitions:
            raise PartitionsDiffer(str(topic), partitions, cluster, there)

    async def _grow(self, topic: TopicName, partitions: int, cluster: str) -> None:
        answer = await self._ask(cluster, topic, "POST", partitions, "updateLocalTopicOnly=true")
        if not answer.is_success:
            raise RemoteRefused(cluster, answer.status, answer.reason)

    async def _ask(
        self,
        cluster: str,
        topic: TopicName,
        method: str,
        partitions: int | None = None,
        query: str = "",
    ) -> RestAnswer:
        """Call the REST route of a topic's partitions at the first broker of ``cluster`` that can
        be reached. Raises ``RemoteRefused`` where none can be."""
        # The first URL stands for all: ``BrokerCalls`` puts each of them in its place in turn. A
        # PUT that is repeated at the next broker finds the topic of the first attempt, which is a
        # success as well.
        remote = await self._remotes.rest(cluster)
        url = f"{remote.urls[0]}/admin/v2/{topic.url_path}/partitions"
        body = b"" if partitions is None else b"%d" % partitions
        headers = {"content-type": "application/json"}
        target = f"{url}?{query}" if query else url
        call = RestCall(method, target, headers, body, timeout_s=CALL_TIMEOUT_S)
        try:
            return await BrokerCalls(remote.calls, remote.urls).call(call)
        except ServerUnreachable as error:
            raise RemoteRefused(cluster, 500, str(error)) from error


async def _all(works: Iterable[Coroutine[object, object, None]]) -> None:
    """Do all ``works`` side by side to their ends, then raise the first error."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None:
            raise outcome
