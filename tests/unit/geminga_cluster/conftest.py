"""What the tests of cluster metadata stand on: sessions with ZooKeeper."""

from __future__ import annotations

from tests.unit import simulated_zookeeper

zookeeper = simulated_zookeeper.zookeeper
sessions = simulated_zookeeper.sessions
session = simulated_zookeeper.session
coordination = simulated_zookeeper.coordination
requests = simulated_zookeeper.requests
store = simulated_zookeeper.store
tree = simulated_zookeeper.tree
meddle = simulated_zookeeper.meddle
suspend = simulated_zookeeper.suspend
expire = simulated_zookeeper.expire
reconnect = simulated_zookeeper.reconnect
kill = simulated_zookeeper.kill
settle = simulated_zookeeper.settle
