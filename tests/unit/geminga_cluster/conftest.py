"""What the tests of cluster metadata stand on: sessions with ZooKeeper, the broker's tests'."""

from __future__ import annotations

from tests.unit.geminga_broker import conftest as brokers

zookeeper = brokers.zookeeper
session = brokers.session
coordination = brokers.coordination
requests = brokers.requests
tree = brokers.tree
meddle = brokers.meddle
suspend = brokers.suspend
expire = brokers.expire
reconnect = brokers.reconnect
kill = brokers.kill
settle = brokers.settle
