"""The REST application on a ZooKeeper in memory and a broker that only remembers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import cast
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI
from tests.unit.geminga.fake_network import FakeNetwork
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers
from tests.unit.geminga_broker.replication.far_rest import FarRest

from geminga_broker.admin.administration import Administration
from geminga_broker.admin.app import create_app
from geminga_broker.admin.bundle_calls import BundleCalls
from geminga_broker.admin.documents.internal_stats import Document
from geminga_broker.admin.documents.subscription_stats import (
    new_consumer_stats,
    new_subscription_stats,
)
from geminga_broker.admin.documents.topic_stats import (
    TopicStats,
    new_publisher_stats,
    new_topic_stats,
)
from geminga_broker.admin.services import Services
from geminga_broker.admin.topics.stats import StatsQuery
from geminga_broker.compaction.errors import CompactionRunning
from geminga_broker.compaction.report import CompactionReport, CompactionStatus
from geminga_broker.errors import (
    NotAllowed,
    StorageUnavailable,
    TopicBusy,
    TopicExists,
    TopicNotFound,
)
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.metrics.exposition import render
from geminga_broker.metrics.snapshot import BrokerSnapshot, TopicSnapshot
from geminga_broker.non_persistent_topics import NonPersistentTopics
from geminga_broker.ownership.addresses.address import BrokerAddress
from geminga_broker.ownership.brokers import Brokers
from geminga_broker.ownership.clusters import ServingClusters
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.policies.effective import PolicyConfig
from geminga_broker.policies.resolver import PolicyResolver
from geminga_broker.replication.remote_clusters import RemoteClusters
from geminga_broker.replication.remote_topics import RemoteTopics
from geminga_broker.schemas.registry import SchemaRegistry
from geminga_broker.schemas.storage import SchemaStorage
from geminga_broker.topic_policies.store import TopicPolicyStore
from geminga_broker.topics.topic import Topic
from geminga_cluster.clusters import Clusters
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.partitioned_topics import PartitionedTopics
from geminga_cluster.persistent_topics import PersistentTopics, topic_path
from geminga_cluster.tenants import Tenants
from geminga_ledger import Ledgers
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.brokers import AdvertisedListener, LocalBrokerData
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_protocol.records.cluster.namespaces import BundlesData, Policies
from geminga_protocol.records.cluster.tenants import TenantInfo
from geminga_protocol.records.cluster.topic_policies import NO_TOPIC_POLICIES, TopicPolicies
from geminga_runtime.coordination import (
    Coordination,
    delete_tree,
)
from geminga_server.authorization import (
    Action,
    NotAuthorized,
    Principal,
    Resource,
    allow_all,
)
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestAnswer, RestCall
from geminga_simulation.event_loop.clock import SimulatedClock

CONFIGURATION = {"keepAliveIntervalSeconds": "30"}
ADDRESS = BrokerAddress("127.0.0.1:28080", "pulsar://127.0.0.1:26650", "http://127.0.0.1:28080")
OUTSIDE = AdvertisedListener(
    broker_service_url="pulsar://outside:6650", broker_http_url="http://outside:8080"
)
PUBLIC_DEFAULT = NamespaceName("public", "default")


@dataclass
class RememberingBroker:
    """An ``Administration``, and its directory of topics, that serves no message; topics may be
    busy, and it may be unhealthy."""

    coordination: Coordination
    volatile: set[TopicName] = field(default_factory=set)
    busy: set[str] = field(default_factory=set)
    copied: list[tuple[str, str]] = field(default_factory=list)
    done: list[tuple[str, str]] = field(default_factory=list)
    properties: dict[str, Mapping[str, str]] = field(default_factory=dict)
    queries: list[StatsQuery] = field(default_factory=list)
    compaction: CompactionReport = field(default_factory=CompactionReport)
    is_healthy: bool = True

    @property
    def topics(self) -> RememberingBroker:
        return self

    async def create(self, topic: TopicName, properties: Mapping[str, str]) -> None:
        if await self._exists(topic):
            raise TopicExists(str(topic))
        self.properties[str(topic)] = properties
        if topic.is_persistent:
            await self.coordination.create(topic_path(topic), make_parents=True)
        else:
            self.volatile.add(topic)

    async def delete_doomed(self, topic: TopicName) -> None:
        await self.delete(topic, force=True)

    async def settled(self, namespace: NamespaceName) -> None:
        """Nothing is under way."""

    async def delete(self, topic: TopicName, *, force: bool) -> None:
        await self._check(topic)
        if str(topic) in self.busy and not force:
            raise TopicBusy("Topic has active producers/subscriptions")
        self.volatile.discard(topic)
        await delete_tree(self.coordination, topic_path(topic))

    async def topic_stats(self, topic: TopicName, query: StatsQuery) -> TopicStats:
        await self._check(topic)
        self.queries.append(query)
        stats = new_topic_stats()
        subscription = new_subscription_stats()
        subscription["consumers"] = [new_consumer_stats()]
        stats["subscriptions"] = {"s": subscription}
        stats["publishers"] = [new_publisher_stats()]
        stats["msgInCounter"] = 5
        return stats

    async def internal_stats(self, topic: TopicName, *, with_metadata: bool) -> Document:
        await self._check(topic)
        return {"of": str(topic), "withMetadata": with_metadata}

    async def unload_topic(self, topic: TopicName) -> None:
        await self._note("unload", topic)

    async def trim_topic(self, topic: TopicName) -> None:
        await self._note("trim", topic)

    async def terminate_topic(self, topic: TopicName) -> Position:
        await self._note("terminate", topic)
        return Position(7, 11)

    async def truncate_topic(self, topic: TopicName) -> None:
        await self._note("truncate", topic)

    async def compact_topic(self, topic: TopicName) -> None:
        if self.compaction.status is CompactionStatus.RUNNING:
            raise CompactionRunning
        await self._note("compaction", topic)

    async def compaction_report(self, topic: TopicName) -> CompactionReport:
        await self._check(topic)
        return self.compaction

    async def _note(self, what: str, topic: TopicName) -> None:
        await self._check(topic)
        self.done.append((what, str(topic)))

    async def persistent_topic(self, topic: TopicName, *, create: bool = False) -> Topic:
        if not create:
            await self._check(topic)
        raise NotAllowed("this broker serves no topic")

    async def subscription_names(self, topic: TopicName) -> list[str]:
        await self._check(topic)
        return [f"of {topic.local}"]

    async def copy_subscriptions(self, source: TopicName, target: TopicName) -> bool:
        try:
            await self._check(source)
        except TopicNotFound:
            return False
        await self._check(target)
        self.copied.append((str(source), str(target)))
        return True

    def non_persistent_in(self, namespace: NamespaceName) -> list[TopicName]:
        return sorted((topic for topic in self.volatile if topic.namespace == namespace), key=str)

    def metrics_text(self) -> Iterator[str]:
        topic = TopicSnapshot(namespace="public/default", name="persistent://public/default/t")
        snapshot = BrokerSnapshot(topics=[topic])
        return render(snapshot, cluster="standalone", version="4.0.6", host="here")

    async def check_health(self) -> None:
        if not self.is_healthy:
            raise StorageUnavailable("no bookie answers")

    async def _exists(self, topic: TopicName) -> bool:
        if not topic.is_persistent:
            return topic in self.volatile
        return await self.coordination.exists(topic_path(topic)) is not None

    async def _check(self, topic: TopicName) -> None:
        if not await self._exists(topic):
            raise TopicNotFound(str(topic))


@pytest.fixture
def broker(coordination: Coordination) -> RememberingBroker:
    """The broker behind the application."""
    return RememberingBroker(coordination)


class MemoryCalls:
    """Requests of brokers to each other: to the application at each ``host:port``."""

    prefers_tls = False

    def __init__(self) -> None:
        self.apps: dict[str, FastAPI] = {}
        self.asked: list[str] = []

    async def call(self, call: RestCall) -> RestAnswer:
        self.asked.append(f"{call.method} {call.url}")
        if urlsplit(call.url).netloc not in self.apps:
            raise ServerUnreachable(f"{urlsplit(call.url).netloc} is away")
        mounts = {f"http://{at}": httpx.ASGITransport(app=app) for at, app in self.apps.items()}
        async with httpx.AsyncClient(mounts=mounts, follow_redirects=True) as client:
            answer = await client.request(
                call.method, call.url, headers=dict(call.headers), content=call.body
            )
        return RestAnswer(answer.status_code, answer.content)


@pytest.fixture
def calls() -> MemoryCalls:
    """What the brokers ask each other."""
    return MemoryCalls()


class RememberedPolicies:
    """What topics say of themselves."""

    def __init__(self) -> None:
        self.said: dict[str, TopicPolicies] = {}

    async def ready(self, namespace: NamespaceName) -> None:
        """It is known."""

    def known(self, topic: TopicName) -> TopicPolicies:
        """What the topic says."""
        return self.said.get(str(topic.base), NO_TOPIC_POLICIES)

    async def local(self, topic: TopicName) -> TopicPolicies:
        """The same."""
        return self.known(topic)

    async def change(
        self, topic: TopicName, change: Callable[[TopicPolicies], TopicPolicies]
    ) -> None:
        """Have it say something else."""
        self.said[str(topic)] = change(self.known(topic))

    async def delete(self, topic: TopicName) -> None:
        """It says nothing any more."""
        self.said.pop(str(topic), None)


@pytest.fixture
def far_rest() -> FarRest:
    """The brokers of the clusters ``east`` and ``west``."""
    return FarRest("east", "west")


def non_persistent_topics_of(
    ownership: Ownership, broker: RememberingBroker, calls: MemoryCalls
) -> NonPersistentTopics:
    ask_owner = BundleCalls(calls, unload_timeout_s=1.0).non_persistent_topics
    return NonPersistentTopics(ownership, here=broker.non_persistent_in, ask_owner=ask_owner)


@pytest.fixture
async def services(
    coordination: Coordination,
    broker: RememberingBroker,
    ledgers: MemoryLedgers,
    calls: MemoryCalls,
    far_rest: FarRest,
) -> AsyncIterator[Services]:
    """A cluster like a fresh real standalone: ``public/default`` in four bundles, and no more."""
    clusters, tenants = Clusters(coordination), Tenants(coordination)
    namespaces = Namespaces(coordination)
    await clusters.create(
        "standalone",
        ClusterData(
            service_url="http://127.0.0.1:28080", broker_service_url="pulsar://127.0.0.1:26650"
        ),
    )
    for tenant in ("public", "pulsar"):
        await tenants.create(tenant, TenantInfo(allowed_clusters=("standalone",)))
    policies = Policies(replication_clusters=("standalone",), bundles=BundlesData.equal(4))
    await namespaces.create(PUBLIC_DEFAULT, policies)
    serving = ServingClusters("standalone", namespaces, clusters)
    ownership = Ownership(coordination, namespaces, ADDRESS, clusters=serving)
    brokers = Brokers(coordination, SimulatedClock(), ADDRESS, LocalBrokerData, version="4.0.6")
    storage = SchemaStorage(coordination, cast(Ledgers, ledgers), ManagedLedgerConfig())
    remotes = RemoteClusters(
        clusters, network=FakeNetwork(), random=Random(1), calls=lambda _: far_rest
    )
    remote_topics = RemoteTopics(remotes, is_enabled=True)
    async with ownership, brokers, remotes, remote_topics:
        yield Services(
            cluster="standalone",
            version="4.0.6",
            broker=cast(Administration, broker),
            metrics_text=broker.metrics_text,
            check_health=broker.check_health,
            clusters=clusters,
            tenants=tenants,
            namespaces=namespaces,
            partitioned_topics=PartitionedTopics(coordination),
            persistent_topics=PersistentTopics(coordination),
            non_persistent_topics=non_persistent_topics_of(ownership, broker, calls),
            ownership=ownership,
            brokers=brokers,
            schemas=SchemaRegistry(storage, SimulatedClock()),
            policies=PolicyResolver(PolicyConfig(), namespaces.policies),
            topic_policies=cast(TopicPolicyStore, RememberedPolicies()),
            authorize=allow_all,
            calls=calls,
            remote_topics=remote_topics,
            configuration=CONFIGURATION,
        )


@pytest.fixture
def app(services: Services) -> FastAPI:
    """The application."""
    app = create_app(services)
    assert isinstance(services.calls, MemoryCalls)
    services.calls.apps[ADDRESS.broker_id] = app
    return app


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A real HTTP client on the application, without sockets."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:28080") as opened:
        yield opened


@pytest.fixture
def rival_broker(coordination: Coordination) -> RememberingBroker:
    """The topics of the other broker."""
    return RememberingBroker(coordination)


@pytest.fixture
async def rival(
    services: Services,
    session: Callable[[str], Coordination],
    rival_broker: RememberingBroker,
    calls: MemoryCalls,
) -> AsyncIterator[Ownership]:
    """Another broker, at ``127.0.0.1:2``, on the same ZooKeeper; both answer REST."""
    other = session("rival")
    address = BrokerAddress(
        "127.0.0.1:2",
        "pulsar://127.0.0.1:1",
        "http://127.0.0.1:2",
        listeners={"outside": OUTSIDE},
    )
    brokers = Brokers(other, SimulatedClock(), address, LocalBrokerData, version="4.0.6")
    namespaces = Namespaces(other)
    async with Ownership(other, namespaces, address) as ownership, brokers:
        own = replace(
            services,
            broker=cast(Administration, rival_broker),
            non_persistent_topics=non_persistent_topics_of(ownership, rival_broker, calls),
            namespaces=namespaces,
            ownership=ownership,
            brokers=brokers,
        )
        calls.apps[address.broker_id] = create_app(own)
        yield ownership


@pytest.fixture
def refusing_client(services: Services) -> httpx.AsyncClient:
    """A client whose every question about rights is answered with no."""

    async def refuse(principal: Principal, action: Action, resource: Resource) -> None:
        raise NotAuthorized(principal.role, str(action), str(resource))

    app = create_app(replace(services, authorize=refuse))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:28080")
