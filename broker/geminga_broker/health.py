"""The health check of a broker: publishes one message, and reads it back from the bookies' log."""

from __future__ import annotations

import asyncio
from itertools import count

from geminga_broker.errors import StorageUnavailable
from geminga_broker.topics.directory import TopicDirectory
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError

CHECK_TIMEOUT_S = 10.0


class HealthCheck:
    """Publishes to the broker's own topic ``pulsar/<broker id>/healthcheck``."""

    def __init__(self, topics: TopicDirectory, clock: Clock, broker_id: str) -> None:
        self.topic = TopicName.of("persistent", "pulsar", broker_id, "healthcheck")
        self._topics = topics
        self._clock = clock
        self.is_healthy: bool | None = None  # at the last check; None before the first
        # Numbers the messages, so that each is known again.
        self._numbers = count()
        # One check at a time: monitoring may ask faster than bookies answer. Others wait their
        # turn, and then make a check of their own: an answer is never older than its question.
        self._running = asyncio.Lock()

    async def run(self) -> None:
        """Raise ``StorageUnavailable``, or the error that came, unless the message came back."""
        async with self._running:
            try:
                # Covers loading the topic, too, which asks ZooKeeper.
                async with asyncio.timeout(CHECK_TIMEOUT_S):
                    await self._publish_and_read()
            except GemingaError:
                self.is_healthy = False
                raise
            except TimeoutError:
                # The check was cut off, but the message is still queued in the log, and may be
                # stored later: the next check finds it pending.
                self.is_healthy = False
                raise StorageUnavailable(
                    f"no message went through in {CHECK_TIMEOUT_S:g} s: are the bookies up, not "
                    "full?"
                ) from None
            self.is_healthy = True

    async def _publish_and_read(self) -> None:
        number, now_ms = next(self._numbers), self._clock.wall_ms()
        # Loaded for the first check, and again where it was unloaded as unused.
        topic = await self._topics.get(self.topic, create=True)
        if topic.managed_ledger.pending_count:
            # Another message would wait behind it, and the queue would grow with every check.
            raise StorageUnavailable("the message of an earlier health check is not stored yet")
        # With metadata, as any message: whatever reads this topic can decode it.
        metadata = api.MessageMetadata(
            producer_name=f"health-check-{number}", sequence_id=0, publish_time=now_ms
        )
        text = f"health check {number} at {now_ms}".encode()
        # Without a producer: the message takes the way of those that brokers publish themselves.
        position = await topic.publishing.internal.publish(encode_payload(metadata, text))
        # Read from the log, not from a subscription: none is needed that way.
        if text not in await topic.managed_ledger.reader.read_one(position):
            raise StorageUnavailable(f"what is at {position} is not the message that was published")
