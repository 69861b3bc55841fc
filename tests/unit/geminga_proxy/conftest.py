"""A proxy on a simulated network, between clients and brokers that say what a test wants."""

from __future__ import annotations

from tests.unit import simulated_zookeeper
from tests.unit.geminga_proxy import world

zookeeper = simulated_zookeeper.zookeeper
sessions = simulated_zookeeper.sessions
session = simulated_zookeeper.session
coordination = simulated_zookeeper.coordination
suspend = simulated_zookeeper.suspend
reconnect = simulated_zookeeper.reconnect
settle = simulated_zookeeper.settle
place = world.place
