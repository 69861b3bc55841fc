"""A topic for registries of producers: it lets a producer in as soon as its turn has come."""

from __future__ import annotations

from typing import cast

from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.producers.publish_path import PublishPath


class LenientTopic:
    """Settles each promoted producer at once."""

    def producer_left(self, producer: Producer) -> None:
        """Not of interest here."""

    def producer_promoted(self, producer: Producer) -> None:
        """Let it in."""
        producer.settle(None)


# Registries refer to their topic weakly: this one lives as long as the tests.
TOPIC = cast(PublishPath, LenientTopic())
