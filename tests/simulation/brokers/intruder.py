"""Another process that changes the records of brokers in ZooKeeper, as `geminga admin`, a broker of
Apache's or a hand at `zkCli` does: nodes of owners, of brokers and of namespaces go, come again, or
hold something else, at any step of the broker that works with them.

All that it does is undone in the end, but for what brokers mend themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random

from geminga_broker.broker import Broker
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.assignment.split import pieces
from geminga_cluster.namespaces import Namespaces
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.brokers import bundle_data_path
from geminga_protocol.records.cluster.namespaces import Policies, local_policies_path, policies_path
from geminga_protocol.records.cluster.ownership import OWNERSHIP_PATH, BundleOwner
from geminga_runtime.coordination import NodeMissing, NodeNotEmpty
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import Cluster
from geminga_simulation.errors import HostCrashed
from geminga_simulation.host import Host
from geminga_simulation.zookeeper.node_tree import Event

INTRUSION_EACH_S = 0.6
# So long records are away, or hold something else.
SHORT_S_MAX = 1.5
# Shorter than two requests to ZooKeeper, one after the other.
FLICKER_S = 0.008
LOCAL_SHARE = 0.7


class Intruder:
    """Harms ``cluster``, and most of all the namespace ``passing``."""

    def __init__(self, cluster: Cluster, passing: NamespaceName, chance: Random) -> None:
        self._cluster = cluster
        self._zookeeper = cluster.world.zookeeper
        self._passing = passing
        self._chance = chance

    async def intrude(self) -> None:
        """Do one thing after the other. Never ends."""
        while True:
            await asyncio.sleep(2 * INTRUSION_EACH_S * self._chance.random())
            deed = self._chance.choice(DEEDS)
            self._cluster.world.note(f"another process: {deed.__name__}")
            with suppress(GemingaError, HostCrashed, NodeMissing):
                await deed(self)

    def _remove(self, path: str) -> None:
        with suppress(NodeMissing, NodeNotEmpty):
            self._zookeeper.remove(path)

    def _owned(self) -> list[Bundle]:
        """By any broker."""
        brokers = [broker for broker, _ in self._cluster.serving()]
        return sorted(
            (each for broker in brokers for each in broker.ownership.owned.generations), key=str
        )

    async def _short(self) -> None:
        await asyncio.sleep(self._chance.random() * SHORT_S_MAX)

    # Owners and brokers

    async def _erase_owner(self) -> None:
        """A bundle's owner is not known any more."""
        if owned := self._owned():
            self._remove(self._chance.choice(owned).path)

    async def _erase_owner_at_unload(self) -> None:
        """The same, of a bundle that its owner is just about to hand on."""
        host = self._chance.choice(self._cluster.brokers)
        broker = self._cluster.broker(host)
        owned = [] if broker is None else sorted(broker.ownership.owned.generations, key=str)
        if owned:
            bundle = self._chance.choice(owned)
            unloading = asyncio.ensure_future(
                self._cluster.do(host, lambda each: each.ownership.unload(bundle))
            )
            await asyncio.sleep(self._chance.random() * 6 * FLICKER_S)
            self._remove(bundle.path)
            await unloading

    async def _quarrel(self) -> None:
        """No broker gets a bundle, for its node goes as soon as it is made."""
        loop = self._cluster.world.loop

        def changed(event: Event, path: str) -> None:
            if event is Event.CREATED and path.startswith(f"{OWNERSHIP_PATH}/public/"):
                loop.call_soon(self._remove, path)

        self._zookeeper.observers.append(changed)
        try:
            await self._short()
        finally:
            self._zookeeper.observers.remove(changed)

    async def _own_elsewhere(self) -> None:
        """A bundle, or half of one, belongs to a broker that gives it up, but takes its time."""
        if not (owned := self._owned()):
            return
        bundle = self._chance.choice(owned)
        if self._chance.random() < 0.7 and bundle.upper - bundle.lower > 1:
            bundle = pieces(bundle, [(bundle.lower + bundle.upper) // 2])[0]
        else:
            self._remove(bundle.path)
        record = BundleOwner(
            native_url="pulsar://java:6650", http_url="http://java:8080", disabled=True
        )
        self._zookeeper.put(bundle.path, record.encode())
        try:
            await self._short()
        finally:
            self._remove(bundle.path)

    async def _erase_broker(self) -> None:
        """A broker, often the leader, seems to be dead just when bundles need an owner."""
        brokers = [broker for broker, _ in self._cluster.serving()]
        leaders = [each for each in brokers if each.brokers.election.is_leader]
        if brokers:
            broker = self._chance.choice(leaders or brokers)
            self._remove(f"/loadbalance/brokers/{broker.address.broker_id}")
        owned = self._owned()
        for bundle in self._chance.sample(owned, min(len(owned), 4)):
            self._remove(bundle.path)
            await self._look_up(bundle)

    async def _look_up(self, bundle: Bundle) -> None:
        await self._cluster.do_everywhere(lambda each: each.ownership.have_acquired(bundle))

    async def _spoil_history(self) -> None:
        """What the leader wrote of the load of a bundle is gone, or is no valid record."""
        for bundle in self._owned():
            path = bundle_data_path(str(bundle))
            if self._zookeeper.tree.exists(path) is not None:
                if self._chance.random() < 0.5:
                    self._remove(path)
                else:
                    self._zookeeper.put(path, b"{")

    # Namespaces

    @contextmanager
    def _restored(self, path: str) -> Generator[bytes]:
        """What a node holds, which it holds again in the end."""
        value, _ = self._zookeeper.tree.get(path)
        try:
            yield value
        finally:
            self._zookeeper.put(path, value)

    async def _erase_namespace(self) -> None:
        """It is gone for a while, used or not."""
        name = str(self._passing)
        with self._restored(policies_path(name)):
            self._remove(policies_path(name))
            self._remove(local_policies_path(name))
            await self._short()

    async def _mark_namespace(self) -> None:
        """It is marked as deleted for a while, as by a deletion under way."""
        path = policies_path(str(self._passing))
        with self._restored(path) as value:
            marked = replace(Policies.decode(value), deleted=True)
            self._zookeeper.put(path, marked.encode())
            await self._short()

    async def _flicker(self) -> None:
        """Its records go and come again, while brokers cut its bundles and change its policies."""
        name = str(self._passing)
        is_local = self._chance.random() < LOCAL_SHARE
        path = local_policies_path(name) if is_local else policies_path(name)
        with self._restored(path) as value:
            async with asyncio.TaskGroup() as tasks:
                cutting = [tasks.create_task(self._cut(each)) for each in self._cluster.brokers]
                for _ in range(int(SHORT_S_MAX / FLICKER_S / 2)):
                    self._remove(path)
                    await asyncio.sleep(2 * FLICKER_S * self._chance.random())
                    self._zookeeper.put(path, value)
                    await asyncio.sleep(2 * FLICKER_S * self._chance.random())
                for each in cutting:
                    each.cancel()

    async def _cut(self, host: Host) -> None:
        """Have a broker cut its bundles of the namespace. Never ends."""

        async def cut(broker: Broker) -> None:
            owned = sorted(broker.ownership.owned.generations, key=str)
            bundles = [each for each in owned if each.namespace == self._passing]
            if bundles and bundles[0].upper - bundles[0].lower > 1:
                middle = (bundles[0].lower + bundles[0].upper) // 2
                await broker.ownership.split(bundles[0], [middle])

        while True:
            await asyncio.sleep(FLICKER_S * self._chance.random())
            with suppress(GemingaError, HostCrashed):
                await self._cluster.do(host, cut)

    async def _cut_otherwise(self) -> None:
        """A bundle is split in the records, and its owner hears of it late."""
        owned = [each for each in self._owned() if each.namespace == self._passing]
        if not owned:
            return
        bundle = self._chance.choice(owned)
        if bundle.upper - bundle.lower < 4:
            return
        at = bundle.lower + (bundle.upper - bundle.lower) // self._chance.choice((2, 3))
        lower, upper = f"0x{bundle.lower:08x}", f"0x{bundle.upper:08x}"
        async with self._cluster.place.host("setup").coordination() as setup:
            await Namespaces(setup).cut_bundle(self._passing, lower, upper, [f"0x{at:08x}"])


DEEDS: tuple[Callable[[Intruder], Awaitable[None]], ...] = (
    Intruder._erase_owner,
    Intruder._erase_owner_at_unload,
    Intruder._quarrel,
    Intruder._own_elsewhere,
    Intruder._erase_broker,
    Intruder._spoil_history,
    Intruder._erase_namespace,
    Intruder._mark_namespace,
    Intruder._flicker,
    Intruder._cut_otherwise,
)
