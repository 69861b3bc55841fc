"""Listens to all clients of a simulated cluster, whatever its story is about, and watches its
ZooKeeper from outside of the simulated world."""

from __future__ import annotations

from tests.histories.client_histories import ClientHistories
from tests.histories.owners import Owners, bundle_at, covers, owner_in

from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.brokers import LEADER_PATH
from geminga_scenarios.cluster import FORMER_OWNER_S, Cluster
from geminga_simulation.histories.ownership import Change
from geminga_simulation.zookeeper.node_tree import Event
from geminga_simulation.zookeeper.server import SimulatedZooKeeper


def listen(cluster: Cluster) -> ClientHistories:
    """The histories of all clients that the cluster makes from now on; ``check`` them in the
    end. To be called before the cluster opens."""

    def knows_until_s(broker: str) -> float:
        return cluster.knows_until_s(broker.removeprefix("pulsar://").partition(":")[0])

    owners = Owners(knows_until_s)
    zookeeper = cluster.place.zookeeper
    observer = NodeObserver(zookeeper, owners)
    zookeeper.observers.append(observer)
    now_s = cluster.world.loop.time

    def has_former_owner(topic: str, broker: str) -> bool:
        """Never of who is the owner, and was when what comes now was sent."""
        if not cluster.has_former_owner():
            return False
        since_s = observer.owned_since_s(TopicName.parse(topic), broker)
        return since_s is None or now_s() < since_s + FORMER_OWNER_S

    histories = ClientHistories(now_s, owners, has_former_owner=has_former_owner)

    def changed(_: Event, path: str) -> None:
        """Two that take themselves for the leader do so when there is another."""
        if path == LEADER_PATH:
            note_leaders(cluster, histories)

    zookeeper.observers.append(changed)
    cluster.network_of = lambda host: histories.network(host.network, host.name)
    return histories


class NodeObserver:
    """Tells ``owners`` of the nodes of bundles and of the leader, in the moment they change."""

    def __init__(self, zookeeper: SimulatedZooKeeper, owners: Owners) -> None:
        self._zookeeper = zookeeper
        self._owners = owners
        # Who stands in a node, the session that made it, and when.
        self._present: dict[str, tuple[str, int, float]] = {}

    def __call__(self, event: Event, path: str) -> None:
        if event is Event.CREATED:
            value, stat = self._zookeeper.tree.get(path)
            owner = owner_in(path, value)
            if owner is not None:
                self._present[path] = owner, stat.ephemeral_owner, self._zookeeper.loop.now_s
                self._tell(Change.ACQUIRED, path, owner)
        elif event is Event.DELETED and path in self._present:
            owner, session_id, _ = self._present.pop(path)
            is_alive = self._zookeeper.is_alive(session_id)
            self._tell(Change.RELEASED if is_alive else Change.EXPIRED, path, owner)

    def owned_since_s(self, topic: TopicName, broker: str) -> float | None:
        """Since when a bundle with the topic is this broker's; None where none is."""
        found = [
            since_s
            for path, (owner, _, since_s) in self._present.items()
            if owner == broker and covers(bundle_at(path), topic)
        ]
        return min(found, default=None)

    def _tell(self, change: Change, path: str, owner: str) -> None:
        now_s = self._zookeeper.loop.now_s
        self._owners.changed(change, path, owner, called_s=now_s, returned_s=now_s)


def note_leaders(cluster: Cluster, histories: ClientHistories) -> None:
    """Hear which brokers say now that they lead all of them."""
    now_s = cluster.world.loop.now_s
    for broker, _ in cluster.serving():
        if broker.brokers.election.is_leader:
            name = broker.address.broker_id.partition(":")[0]
            known_s = min(cluster.knows_until_s(name), now_s)
            histories.owners.leads(broker.address.broker_id, called_s=known_s, returned_s=now_s)
