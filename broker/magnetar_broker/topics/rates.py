"""Rates from counters: what grew since the last look, per second.

Stats show averages over a period (upstream: a minute). A ``Meter`` is looked at by a timer, never
on the hot path: whoever counts only adds to plain integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from magnetar_broker.topics.consumer import Consumer
    from magnetar_broker.topics.producers import Producer


class Meter:
    """Turns some growing counters into rates per second.

    ``now_s`` is None for one that begins in the middle of its topic's period: its first rates are
    averages over the whole of it.
    """

    def __init__(self, now_s: float | None, *counters: int) -> None:
        self._at_s = now_s
        self._counters = counters
        self.rates: tuple[float, ...] = (0.0,) * len(counters)

    def tick(self, now_s: float, *counters: int, period_s: float = 0.0) -> None:
        """The counters' values now: the rates become those since the last tick, or those of the
        ``period_s`` that ends now where there was none yet."""
        elapsed_s = period_s if self._at_s is None else now_s - self._at_s
        if elapsed_s <= 0:
            return
        self.rates = tuple(
            max(0.0, (now - before) / elapsed_s)
            for now, before in zip(counters, self._counters, strict=True)
        )
        self._at_s = now_s
        self._counters = counters

    def elapsed_s(self, now_s: float) -> float:
        """Seconds since the last tick."""
        return 0.0 if self._at_s is None else now_s - self._at_s


class MeteredSubscription(Protocol):
    """A subscription as far as its rates go."""

    messages_out_before: int

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
        producer.meter.tick(now_s, producer.messages_in, producer.bytes_in, period_s=period_s)
    topic.meter.tick(now_s, topic.messages_in, topic.bytes_in, messages_out, bytes_out)
