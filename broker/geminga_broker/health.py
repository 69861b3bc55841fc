"""Is the broker able to do its work? One message is published and read back, for real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from geminga_broker.errors import StorageUnavailable
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.topics.consuming.subscribe_request import SubscribeRequest
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.producing.producers import Producer
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import AccessMode, SubscriptionType
from geminga_protocol.pulsar.payload import encode_payload
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError

CHECK_TIMEOUT_S = 10.0


class _Probe:
    """A session that belongs to no connection: it only notes what it is sent."""

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.is_writable = True
        self.address = "health check"
        self.client_version = ""
        self.protocol_version = 0
        self.heard = asyncio.Event()

    def send(self, frame: bytes) -> None:
        self.out.append(frame)
        self.heard.set()

    def delivered(self, size_bytes: int) -> None:
        del size_bytes
        self.heard.set()

    def confirmed(self, size_bytes: int) -> None:
        """Nobody counts here."""

    def throttle(self, wait_s: Callable[[float], float]) -> None:
        """One message is never too fast."""

    async def is_alive(self) -> bool:
        return True


class HealthCheck:
    """Publishes to the broker's own topic ``pulsar/<broker id>/healthcheck``."""

    def __init__(self, topics: TopicDirectory, clock: Clock, broker_id: str) -> None:
        self.topic = TopicName.of("persistent", "pulsar", broker_id, "healthcheck")
        self._topics = topics
        self._clock = clock
        self.is_healthy: bool | None = None  # at the last check; None before the first
        self._numbers = count()
        self._running = asyncio.Lock()

    async def run(self) -> None:
        """Raise ``StorageUnavailable`` (or what went wrong) unless the message came back."""
        async with self._running:
            try:
                await self._check()
            except GemingaError:
                self.is_healthy = False
                raise
            self.is_healthy = True

    async def _check(self) -> None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await self._publish_and_read()
        except TimeoutError:
            raise StorageUnavailable(
                f"no message went through in {CHECK_TIMEOUT_S:g} s: are the bookies up, not full?"
            ) from None

    async def _publish_and_read(self) -> None:
        number = next(self._numbers)
        text = f"health check {number} at {self._clock.wall_ms()}".encode()
        topic = await self._topics.get(self.topic, create=True)
        if topic.managed_ledger.pending_count:
            # Another one would wait behind it: a queue that grows as long as nobody takes it.
            raise StorageUnavailable("the message of an earlier health check is not stored yet")
        reading, writing = _Probe(), _Probe()
        consumer = Consumer(
            reading,
            0,
            f"health-check-{number}",
            priority=0,
            partition=-1,
            metadata={},
            clock=self._clock,
            on_active_changed=lambda _, __: None,
            on_closed=lambda _: None,
        )
        producer = Producer(
            writing,
            0,
            f"health-check-{number}",
            epoch=0,
            access_mode=AccessMode.SHARED,
            metadata={},
            connected_at_ms=self._clock.wall_ms(),
            on_closed=lambda _: None,
        )
        request = SubscribeRequest(consumer.name, SubscriptionType.EXCLUSIVE, is_durable=False)
        subscription = await topic.subscribe(request)
        subscription.connected(consumer)
        try:
            subscription.flow(consumer, 1)
            await topic.connect_producer(producer)
            metadata = api.MessageMetadata(
                producer_name=producer.name, sequence_id=0, publish_time=self._clock.wall_ms()
            )
            producer.append_all([(encode_payload(metadata, text), 1, producer, 0, 0)])
            while not any(text in frame for frame in reading.out):
                reading.heard.clear()
                await reading.heard.wait()
        finally:
            producer.disconnect()
            await subscription.disconnect(consumer)
