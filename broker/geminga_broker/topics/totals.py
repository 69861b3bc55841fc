"""What all topics of a broker have together, for the load it reports."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_broker.topics.non_persistent import NonPersistentTopic
from geminga_broker.topics.persistent import PersistentTopic


@dataclass(slots=True)
class TopicTotals:
    """Rates are per second."""

    producers: int = 0
    consumers: int = 0
    rate_in: float = 0.0
    throughput_in: float = 0.0
    rate_out: float = 0.0
    throughput_out: float = 0.0

    def add(self, topic: PersistentTopic | NonPersistentTopic) -> None:
        """Count one topic."""
        rate_in, throughput_in, rate_out, throughput_out = topic.meter.rates
        self.producers += len(topic.producers)
        self.consumers += sum(len(each.consumers) for each in topic.subscriptions.values())
        self.rate_in += rate_in
        self.throughput_in += throughput_in
        self.rate_out += rate_out
        self.throughput_out += throughput_out
