"""Proves that rates are per second, whenever a producer or consumer came."""

from __future__ import annotations

from tests.unit.geminga_broker.clients_and_logs import NotedSession, consumer_of

from geminga_broker.counting.meter import Meter
from geminga_broker.topics.non_persistent import NonPersistentTopic, VolatileSubscription
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import SystemClock


def test_a_consumer_that_came_within_the_period_has_rates_at_its_end() -> None:
    topic = NonPersistentTopic(TopicName.parse("non-persistent://t/n/x"), SystemClock())
    topic.meter = Meter(1000.0, 0, 0, 0, 0)
    subscription = VolatileSubscription(topic, "sub")
    topic.subscriptions["sub"] = subscription
    consumer = consumer_of(NotedSession())
    subscription.consumers.append(consumer)
    consumer.messages_out = 30
    topic.tick(1010.0)
    assert consumer.meter.rates[0] == 3.0
    consumer.messages_out = 40
    topic.tick(1020.0)
    assert consumer.meter.rates[0] == 1.0
