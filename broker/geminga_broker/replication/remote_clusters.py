"""The other clusters: one client for each, shared by all topics that are replicated there.

A cluster's record has its URLs. When the record changes, the client of the old one closes, and the
replicators that used it get the new one and go on from their cursors. It closes in the background:
a remote broker that does not answer delays neither them nor other clusters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random

from geminga._channels.registry import Access, Channels, ClientOptions
from geminga._transport.connection import ConnectionOptions
from geminga.errors import ClientError
from geminga.tls import Tls
from geminga_broker.replication.errors import ClusterUnreachable
from geminga_cluster.clusters import Clusters
from geminga_cluster.errors import ClusterNotFound
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_protocol.records.errors import MalformedRecord
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import Network
from geminga_runtime.service import Service
from geminga_server.config.service_urls import urls_in
from geminga_server.errors import ConfigError
from geminga_server.http.rest_calls import NO_CALLS, RestCalls
from geminga_server.tls.config import BrokerClientTlsConfig

log = logging.getLogger(__name__)

# ``replicates`` makes the client offer, in CONNECT, that receipts name positions of the source.
OPTIONS = ClientOptions(connection=ConnectionOptions(replicates=True))


CallsOver = Callable[[Tls | None], RestCalls]
"""Makes a REST client for a remote cluster, with TLS as its record says."""


@dataclass(frozen=True, slots=True)
class RemoteRest:
    """How to call the REST side of a remote cluster."""

    # At least one; any of them will do.
    urls: tuple[str, ...]
    calls: RestCalls


class RemoteClusters(Service):
    """The clients of all remote clusters. ``clusters`` has the records; connections are made over
    ``network``.

    ``tls`` is the TLS of this broker's own clients. Where it is enabled, it applies to clusters
    whose record does not mention TLS; whether certificates must be for the called host is always
    taken from it.
    """

    def __init__(
        self,
        clusters: Clusters,
        *,
        network: Network,
        random: Random,
        calls: CallsOver | None = None,
        tls: BrokerClientTlsConfig | None = None,
    ) -> None:
        super().__init__()
        # None for a broker in a test or a simulation, whose REST calls are all refused.
        self._calls = calls
        self._tls = tls or BrokerClientTlsConfig()
        self.clusters = clusters
        self._network = network
        self._random = random
        # The open clients by cluster, each with the record by which it was opened.
        self._open_ones: dict[str, tuple[ClusterData, Channels]] = {}
        # Guards them: of many replicators that start at once, one opens the client. Held while the
        # record is read and the client is made; neither waits for the remote cluster, as the client
        # connects with its first request.
        self._opening = asyncio.Lock()
        # Clients of former records that are not closed yet, in the order in which they were left.
        # Kept, so that ``_close_all`` can finish what a cancelled task has begun.
        self._leaving: dict[Channels, None] = {}
        # How often a record has changed, or may have. ``_record`` compares two values of it, and so
        # notices a change that came while it was reading. Grows only.
        self._changes = 0

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._close_all)
        self.clusters.follow(self._changed)

    async def channels(self, cluster: str) -> Channels:
        """The client of ``cluster``, as its record says now.

        Raises ``ClusterUnreachable`` where it has none or one that does not say where it is, and
        ``CoordinationError``.
        """
        async with self._opening:
            record = await self._record(cluster)
            # Compared by value: a record that was written again without a change is no reason to
            # connect anew. The old client is left only now that the new record is read: while it
            # cannot be, replication goes on as before.
            known = self._open_ones.get(cluster)
            if known is not None and known[0] == record:
                return known[1]
            self._leave(cluster)
            is_tls = record.broker_client_tls_enabled or self._tls.enabled
            url = record.broker_service_url_tls if is_tls else record.broker_service_url
            # Without a URL of the protocol, lookups go over HTTP.
            url = url or (record.service_url_tls if is_tls else record.service_url)
            if not url:
                kind = "brokerServiceUrlTls" if is_tls else "brokerServiceUrl"
                raise ClusterUnreachable(f"the record of cluster {cluster} has no {kind}")
            try:
                channels = Channels(
                    url,
                    OPTIONS,
                    network=self._network,
                    random=self._random,
                    access=Access(
                        tls=_tls_towards(record, self._tls) if is_tls else None,
                        listener_name=record.listener_name or None,
                    ),
                )
            except (ClientError, ValueError) as error:
                raise ClusterUnreachable(f"the record of cluster {cluster}: {error}") from error
            await channels.__aenter__()
            self._open_ones[cluster] = record, channels
            return channels

    async def rest(self, cluster: str) -> RemoteRest:
        """How to call the REST side of ``cluster``, as its record says now.

        Raises ``ClusterUnreachable`` where it has none or one that does not say so, and
        ``CoordinationError``.
        """
        record = await self._record(cluster)
        # Unlike connections of the Pulsar protocol, REST calls fall back to plain HTTP where the
        # record has no TLS URL for them. No client is kept for it: calls are rare.
        wants_tls = record.broker_client_tls_enabled or self._tls.enabled
        is_tls = wants_tls and bool(record.service_url_tls)
        try:
            urls = urls_in((record.service_url_tls if is_tls else record.service_url) or "")
            tls = _tls_towards(record, self._tls) if is_tls else None
        except (ConfigError, ValueError) as error:
            raise ClusterUnreachable(f"the record of cluster {cluster}: {error}") from error
        if not urls:
            raise ClusterUnreachable(f"the record of cluster {cluster} has no serviceUrl")
        return RemoteRest(urls, NO_CALLS if self._calls is None else self._calls(tls))

    async def _record(self, cluster: str) -> ClusterData:
        """The record of ``cluster``. Raises ``ClusterUnreachable``, ``CoordinationError``."""
        # Again where it changed while it was read: that change was notified when the cluster had no
        # client here yet, so ``_changed`` did nothing about it, and is not notified again.
        while True:
            changes = self._changes
            try:
                record = await self.clusters.get(cluster)
            except ClusterNotFound as error:
                raise ClusterUnreachable(
                    f"the cluster {cluster} is not registered here: clusters create {cluster}"
                ) from error
            except MalformedRecord as error:
                raise ClusterUnreachable(f"the record of cluster {cluster}: {error}") from error
            if changes == self._changes:
                return record

    def _changed(self, cluster: str | None) -> None:
        """Check the record of this cluster, or of all that are in use: it may have changed."""
        self._changes += 1
        # In tasks: this is called by the watch of the records, which must not wait. Only clusters
        # that have a client: others read the record when they are first used.
        names = list(self._open_ones) if cluster is None else [cluster]
        for name in names:
            if name in self._open_ones:
                self.spawn(self._look_again(name), name=f"follow cluster {name}")

    async def _look_again(self, cluster: str) -> None:
        """Replace the client if the cluster's record has changed. While the record cannot be read,
        the client is kept."""
        try:
            await self.channels(cluster)
        except ClusterUnreachable as error:
            log.info("remote cluster left", extra={"cluster": cluster, "why": str(error)})
            async with self._opening:
                self._leave(cluster)
        except GemingaError as error:
            log.info("remote cluster not read", extra={"cluster": cluster, "error": str(error)})

    def _leave(self, cluster: str) -> None:
        known = self._open_ones.pop(cluster, None)
        # Closed in the background: replicators that use it find it closed, and ask for the next.
        # Each of them ends with an error of its channel, and begins again at its cursor.
        if known is not None:
            self._leaving[known[1]] = None
            self.spawn(self._close_client(known[1]), name=f"leave cluster {cluster}")

    async def _close_client(self, channels: Channels) -> None:
        await channels.__aexit__(None, None, None)
        del self._leaving[channels]

    async def _close_all(self) -> None:
        """Close all clients side by side, those included that were being closed already: the tasks
        that did so are cancelled with the service."""
        for cluster in list(self._open_ones):
            self._leave(cluster)
        await asyncio.gather(*map(self._close_client, list(self._leaving)))


def _tls_towards(record: ClusterData, own: BrokerClientTlsConfig) -> Tls:
    """TLS as the record says or, where it does not mention TLS, as for this broker's own clients.

    Raises ``ValueError`` for a key without a certificate.
    """
    if not record.broker_client_tls_enabled:
        return tls_of(own)
    trusts_all = record.tls_allow_insecure_connection
    return Tls(
        # As in Pulsar's clients, a trust file is ignored where untrusted certificates are allowed.
        trust_file=None if trusts_all else record.broker_client_trust_certs_file_path or None,
        certificate_file=record.broker_client_certificate_file_path or None,
        key_file=record.broker_client_key_file_path or None,
        checks_hostname=own.check_hostname,
        allows_untrusted=trusts_all,
    )


def tls_of(config: BrokerClientTlsConfig) -> Tls:
    """The TLS of this broker's own clients."""
    return Tls(
        trust_file=config.trust_file or None,
        certificate_file=config.certificate_file or None,
        key_file=config.key_file or None,
        checks_hostname=config.check_hostname,
    )
