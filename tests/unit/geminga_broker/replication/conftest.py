"""What replicators stand on: a ZooKeeper, and a remote broker in memory that does as it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest
from tests.unit.geminga.fake_broker import FakeBroker
from tests.unit.geminga.fake_network import FakeNetwork
from tests.unit.geminga_broker.replication.far_rest import FarRest

from geminga_broker.replication.remote_clusters import RemoteClusters
from geminga_cluster.clusters import Clusters
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_runtime.coordination import Coordination

REMOTE = "west"


@pytest.fixture
def far_network() -> FakeNetwork:
    """What leads to other clusters."""
    return FakeNetwork()


@pytest.fixture
def far(far_network: FakeNetwork) -> FakeBroker:
    """The only broker of the remote cluster."""
    return FakeBroker(far_network, "far")


@pytest.fixture
def far_rest() -> FarRest:
    """What the remote cluster has over REST."""
    return FarRest(REMOTE)


@pytest.fixture
async def remotes(
    coordination: Coordination, far: FakeBroker, far_network: FakeNetwork, far_rest: FarRest
) -> AsyncIterator[RemoteClusters]:
    """The remote clusters, of which ``west`` is registered."""
    clusters = Clusters(coordination)
    record = ClusterData(service_url=f"http://{REMOTE}", broker_service_url=far.url)
    await clusters.create(REMOTE, record)
    async with RemoteClusters(
        clusters, network=far_network, random=Random(1), calls=lambda _: far_rest
    ) as opened:
        yield opened
