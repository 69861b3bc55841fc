"""Clusters that share a configuration store.

What is created in one of them is there in all. While the store is away they keep serving with what
they have read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.geo_clusters import NAMESPACE, REPLICATION, TENANT, cursors, done
from tests.integration.relay import Wire
from tests.integration.rest import rest
from tests.integration.waiting import eventually

import geminga
from pytest_geminga.clusters import CLUSTER_UP, SMALL

EAST, WEST = NAMES = ("east", "west")
TOPIC = f"persistent://{NAMESPACE}/orders"
DEDUPLICATION = f"/admin/v2/namespaces/{NAMESPACE}/deduplication"
STATS = f"/admin/v2/persistent/{NAMESPACE}/orders/stats"
PARTITIONS = f"/admin/v2/persistent/{NAMESPACE}/parted/partitions"
TIMEOUT_S = 60
# Long enough for brokers to notice; that sessions end is a matter of unit tests.
AWAY_S = 1
REFUSED = (
    "Namespace missing local cluster name in clusters list: "
    f"local_cluster=west ns={NAMESPACE} clusters=[east]"
)


@dataclass
class Clusters:
    """Both clusters, and the relay between ``west`` and the store."""

    by_name: dict[str, StandaloneProcess]
    wire: Wire

    async def done(self, name: str, method: str, path: str, body: object = None) -> Any:
        """The answer of a cluster to a request that succeeds."""
        return await asyncio.to_thread(done, self.by_name[name], method, path, body)

    async def answer(self, name: str, method: str, path: str) -> tuple[int, Any]:
        """The answer of a cluster."""
        return await asyncio.to_thread(rest, self.by_name[name].web_service_url, method, path)


@pytest.fixture
async def clusters(zookeeper_address: str, tmp_path: Path) -> AsyncGenerator[Clusters]:
    """Two clusters, each below a path of its own in one ZooKeeper; a third path is the store."""
    async with Wire(zookeeper_address) as wire:
        stores = {EAST: f"zk:{zookeeper_address}", WEST: f"zk:{wire.address}"}

        def start(name: str) -> StandaloneProcess:
            return StandaloneProcess.start(
                tmp_path / name,
                *("--cluster", name, "--zookeeper", f"{zookeeper_address}/{name}"),
                *("--configuration-store", f"{stores[name]}/shared-by-both", *SMALL),
                module=CLUSTER_UP,
            )

        started = [asyncio.create_task(asyncio.to_thread(start, name)) for name in NAMES]
        try:
            running = await asyncio.gather(*started)
            yield Clusters(dict(zip(NAMES, running, strict=True)), wire)
        finally:
            wire.refuses = False
            await asyncio.wait(started)
            for each in started:
                await asyncio.to_thread(each.result().stop)


async def receive(consumer: geminga.Consumer[bytes]) -> bytes:
    """The next message, acknowledged."""
    async with asyncio.timeout(TIMEOUT_S):
        message = await consumer.receive()
        consumer.ack(message)
        return message.data


async def make_namespace(clusters: Clusters) -> None:
    """Create tenant and namespace, each step at one cluster only."""
    for name in NAMES:
        assert await clusters.done(name, "GET", "/admin/v2/clusters") == [EAST, WEST]
    tenant = {"adminRoles": [], "allowedClusters": list(NAMES)}
    await clusters.done(EAST, "PUT", f"/admin/v2/tenants/{TENANT}", tenant)
    await clusters.done(WEST, "PUT", f"/admin/v2/namespaces/{NAMESPACE}", {})
    await clusters.done(EAST, "POST", REPLICATION, list(NAMES))
    await clusters.done(WEST, "POST", DEDUPLICATION, True)  # noqa: FBT003 - a JSON body
    assert await clusters.done(WEST, "GET", REPLICATION) == [EAST, WEST]
    assert await clusters.done(EAST, "GET", DEDUPLICATION) is True


async def test_clusters_share_a_configuration_store_and_go_on_while_it_is_away(
    clusters: Clusters,
) -> None:
    await make_namespace(clusters)
    await clusters.done(EAST, "PUT", PARTITIONS, 2)
    await clusters.done(WEST, "POST", PARTITIONS, 3)
    for name in NAMES:
        assert (await clusters.done(name, "GET", PARTITIONS))["partitions"] == 3
    urls = [clusters.by_name[name].service_url for name in NAMES]
    async with (
        geminga.connect(urls[0]) as here,
        geminga.connect(urls[1]) as there,
        there.consumer(TOPIC, "s") as consumer,
        here.producer(TOPIC) as producer,
    ):
        await producer.send(b"one")
        assert await receive(consumer) == b"one"

        clusters.wire.refuses = True
        clusters.wire.cut()
        await asyncio.sleep(AWAY_S)
        await producer.send(b"two")
        assert await receive(consumer) == b"two"
        async with there.producer(TOPIC) as late:  # a new client of a topic that is loaded
            await late.send(b"three")
        assert await receive(consumer) == b"three"

        clusters.wire.refuses = False
        await clusters.done(EAST, "POST", REPLICATION, [EAST])
        async with asyncio.timeout(TIMEOUT_S):
            while (await clusters.answer(WEST, "GET", STATS))[0] != 412:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        status, said = await clusters.answer(WEST, "GET", STATS)
        assert (status, said["reason"]) == (412, REFUSED)
        # What it has stored is there when the namespace is brought back.
        await clusters.done(WEST, "POST", REPLICATION, list(NAMES))
        # Only what is published from then on is sent.
        known = partial(cursors, clusters.by_name[EAST], "orders")
        await asyncio.to_thread(eventually, known, {WEST}.__eq__)
        await producer.send(b"four")
        assert await receive(consumer) == b"four"


@pytest.mark.full
def test_one_command_starts_clusters_that_share_a_store(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    options = ("--geo", ",".join(NAMES), "--shared-configuration", *SMALL)
    both = StandaloneProcess.start(directory, *options, module=CLUSTER_UP)
    try:
        members = {name: StandaloneProcess(directory / name, both.process) for name in NAMES}
        assert (directory / "configuration-store" / "zoo.cfg").exists()
        for name in NAMES:
            assert done(members[name], "GET", "/admin/v2/clusters") == [EAST, WEST]
            for other in NAMES:
                record = done(members[name], "GET", f"/admin/v2/clusters/{other}")
                assert record["serviceUrl"] == members[other].web_service_url
        tenant = {"adminRoles": [], "allowedClusters": list(NAMES)}
        done(members[EAST], "PUT", f"/admin/v2/tenants/{TENANT}", tenant)
        assert TENANT in done(members[WEST], "GET", "/admin/v2/tenants")
    finally:
        both.stop()
