"""The rates of a topic and of all who are connected to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from geminga_broker.counting.meter import Meter
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.topics.producing.producers import Producer


class MeteredSubscription(Protocol):
    """A subscription as far as its rates go."""

    @property
    def consumers(self) -> list[Consumer]:
        """Connected consumers."""
        ...

    @property
    def messages_out(self) -> int:
        """Messages sent."""
        ...

    @property
    def bytes_out(self) -> int:
        """Bytes sent."""
        ...


class MeteredTopic(Protocol):
    """A topic as far as its rates go."""

    meter: Meter
    messages_in: int
    bytes_in: int

    @property
    def producers(self) -> Iterable[Producer]:
        """Connected producers."""
        ...

    @property
    def subscriptions(self) -> Mapping[str, MeteredSubscription]:
        """Subscriptions by name."""
        ...


def tick_topic(topic: MeteredTopic, now_s: float) -> None:
    """Renew the rates of a topic, its producers and its consumers."""
    messages_out = bytes_out = 0
    period_s = topic.meter.elapsed_s(now_s)
    for subscription in topic.subscriptions.values():
        messages_out += subscription.messages_out
        bytes_out += subscription.bytes_out
        for consumer in subscription.consumers:
            consumer.meter.tick(
                now_s,
                consumer.messages_out,
                consumer.bytes_out,
                consumer.messages_redelivered,
                consumer.messages_acknowledged,
                period_s=period_s,
            )
    for producer in topic.producers:
        producer.meter.tick(
            now_s, producer.messages_in, producer.bytes_in, producer.chunks_in, period_s=period_s
        )
    topic.meter.tick(now_s, topic.messages_in, topic.bytes_in, messages_out, bytes_out)
