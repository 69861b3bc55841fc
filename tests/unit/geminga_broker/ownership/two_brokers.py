"""Two brokers of one cluster, and a namespace of theirs."""

from __future__ import annotations

from geminga_broker.ownership.addresses.address import BrokerAddress
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName

SHOP = NamespaceName("acme", "shop")
ORDERS = TopicName.parse("persistent://acme/shop/orders")
HERE = BrokerAddress("127.0.0.1:28080", "pulsar://127.0.0.1:26650", "http://127.0.0.1:28080")
THERE = BrokerAddress("127.0.0.1:2", "pulsar://127.0.0.1:1", "http://127.0.0.1:2")
