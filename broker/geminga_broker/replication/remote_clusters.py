"""The other clusters: one client for each, shared by all topics that are replicated there.

A cluster's record says where it is. When the record changes, the client of the old one closes:
replicators that used it ask again, and go on with the new one where their cursors stand.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from random import Random

from geminga._channels.channel import Access, Channels, ClientOptions
from geminga._transport.connection import ConnectionOptions
from geminga.errors import ClientError
from geminga.tls import Tls
from geminga_broker.replication.errors import ClusterUnreachable
from geminga_cluster.clusters import Clusters
from geminga_cluster.errors import ClusterNotFound
from geminga_protocol.records.clusters import ClusterData
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import Network
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

OPTIONS = ClientOptions(connection=ConnectionOptions(replicates=True))


class RemoteClusters(Service):
    """``clusters`` has their records; connections are made over ``network``."""

    def __init__(self, clusters: Clusters, *, network: Network, random: Random) -> None:
        super().__init__()
        self.clusters = clusters
        self._network = network
        self._random = random
        # By cluster, with the record by which each was opened.
        self._open_ones: dict[str, tuple[ClusterData, Channels]] = {}
        self._opening = asyncio.Lock()

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._close_all)
        self.clusters.follow(self._changed)

    async def channels(self, cluster: str) -> Channels:
        """The client of ``cluster``, as its record says now.

        Raises ``ClusterUnreachable`` where it has none or one that does not say where it is, and
        ``CoordinationError``.
        """
        async with self._opening:
            try:
                record = await self.clusters.get(cluster)
            except ClusterNotFound as error:
                raise ClusterUnreachable(
                    f"the cluster {cluster} is not registered here: clusters create {cluster}"
                ) from error
            known = self._open_ones.get(cluster)
            if known is not None and known[0] == record:
                return known[1]
            await self._leave(cluster)
            channels = _client_of(cluster, record, self._network, self._random)
            await channels.__aenter__()
            self._open_ones[cluster] = record, channels
            return channels

    def _changed(self, cluster: str | None) -> None:
        """Look at the records of this cluster, or of all that are in use."""
        names = list(self._open_ones) if cluster is None else [cluster]
        for name in names:
            if name in self._open_ones:
                self.spawn(self._look_again(name), name=f"follow cluster {name}")

    async def _look_again(self, cluster: str) -> None:
        """Close the client of a record that does not hold any more. While records cannot be read,
        it goes on."""
        try:
            await self.channels(cluster)
        except ClusterUnreachable as error:
            log.info("remote cluster left", extra={"cluster": cluster, "why": str(error)})
            async with self._opening:
                await self._leave(cluster)
        except GemingaError as error:
            log.info("remote cluster not read", extra={"cluster": cluster, "error": str(error)})

    async def _leave(self, cluster: str) -> None:
        known = self._open_ones.pop(cluster, None)
        if known is not None:
            await known[1].__aexit__(None, None, None)

    async def _close_all(self) -> None:
        for cluster in list(self._open_ones):
            await self._leave(cluster)


def _client_of(cluster: str, record: ClusterData, network: Network, random: Random) -> Channels:
    """A client by what the record says. Raises ``ClusterUnreachable``."""
    is_tls = record.broker_client_tls_enabled
    url = record.broker_service_url_tls if is_tls else record.broker_service_url
    url = url or (record.service_url_tls if is_tls else record.service_url)
    if not url:
        kind = "brokerServiceUrlTls" if is_tls else "brokerServiceUrl"
        raise ClusterUnreachable(f"the record of cluster {cluster} has no {kind}")
    tls = None
    if is_tls:
        tls = Tls(
            trust_file=record.broker_client_trust_certs_file_path or None,
            certificate_file=record.broker_client_certificate_file_path or None,
            key_file=record.broker_client_key_file_path or None,
            allows_untrusted=record.tls_allow_insecure_connection,
        )
    try:
        return Channels(
            url,
            OPTIONS,
            network=network,
            random=random,
            access=Access(tls=tls, listener_name=record.listener_name or None),
        )
    except ClientError as error:
        raise ClusterUnreachable(f"the record of cluster {cluster}: {error}") from error
