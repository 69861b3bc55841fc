"""Messages in chunks: each comes whole, once for an acknowledgement, and one whose producer went
in the midst of it never comes.

One producer sends messages of one to six chunks, others send some chunks of a message and are gone;
the topic drops repeats, so that in the end it has each whole message once, in the order of sending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from tests.simulation.features.stage import (
    CALM_S_MAX,
    LIVE_S,
    RETRY_S,
    Errand,
    Log,
    opened,
    taking,
)
from tests.simulation.topics.reading import channels

from geminga import Client, ClientError, Consumer, Message, MessageId, Opening
from geminga._channels.producer_channel import ProducerChannel, ProducerChannelOptions
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.checkers import NoLostAcknowledgement, check_nothing_lost

# What brokers of the story take in one entry (``CONFIG``).
ENTRY_BYTES_MAX = 2048
MESSAGES = 25
CHUNKS_MAX = 6
QUEUE_SIZES = (1, 4, 30)
SETTLED_SHARE = 0.7
# What was begun and not finished is given up after so long.
CHUNK_TIMEOUT_S = 20.0
# Who reads everything in the end comes later than that. As in Apache Pulsar's client, a chunk that
# comes without those before it is given up where its message was published longer ago.
OLD_CHUNKS_TIMEOUT_S = 3600.0
# More messages are never begun, of which most are broken off: with less room a consumer drops what
# it has of a good one, again and again, where there are so many between its chunks.
CHUNKED_MESSAGES_MAX = 100
SHIFT_S_MAX = 1.5
REST_S_MAX = 0.3


def content(number: int, size: int) -> bytes:
    """A message that says itself whether it is whole."""
    head = b"%d %d " % (number, size)
    pattern = b"%d." % number
    return head + (pattern * (size // len(pattern) + 1))[:size]


def is_whole(payload: bytes) -> bool:
    """Whether it is what was sent as a message."""
    number, size, _ = payload.split(b" ", 2)
    return payload == content(int(number), int(size))


class Chunks(Errand):
    """A producer of large messages, such as do not come to their end, and consumers that share."""

    name = "chunks"
    policies = Policies(deduplication_enabled=True)

    async def open(self) -> None:
        """The subscriptions, from the first message on."""
        self.log = Log(self.stage.clock)
        self.sizes = [
            int(self.chance.random() * CHUNKS_MAX * ENTRY_BYTES_MAX) for _ in range(MESSAGES)
        ]
        self.watch = NoLostAcknowledgement()
        self.settled: set[int] = set()
        self.in_doubt: set[int] = set()
        self.came: list[int] = []
        await self.keep(self.topic())
        await self.keep(self.topic(), "shared")

    async def live(self) -> None:
        """Send, break off, and settle."""
        client, other = self.stage.clients
        async with asyncio.TaskGroup() as tasks:
            endless = [
                tasks.create_task(self._work(other)),
                tasks.create_task(self._break_off()),
            ]
            await self._publish(client)
            for task in endless:
                task.cancel()

    def _producer_options(self) -> ProducerChannelOptions:
        return ProducerChannelOptions(send_timeout_s=None, close_timeout_s=0.0)

    async def _publish(self, client: Client) -> None:
        opening = partial(
            client.producer,
            self.topic(),
            name="steady",
            send_timeout_s=None,
            batching=None,
            chunking=True,
        )
        async with await opened(opening) as producer:
            for number, size in enumerate(self.sizes):
                self.log.send(producer, content(number, size))
                await self.pause(2 * LIVE_S / MESSAGES)
            await producer.flush()

    async def _break_off(self) -> None:
        """Send some of the chunks of a message, and go; never ends."""
        number = MESSAGES
        while True:
            await self.pause(LIVE_S / 4)
            async with channels(self.stage.cluster, "other-client") as own:
                channel: ProducerChannel[None] = ProducerChannel(
                    own, TopicName.parse(self.topic()), self._producer_options()
                )
                with suppress(ClientError):
                    await channel.open()
                    self._send_some(channel, number)
                    await channel.flush()
                    self.deeds += 1
                await channel.close()
            number += 1

    def _send_some(self, channel: ProducerChannel[None], number: int) -> None:
        count = self.chance.randint(2, CHUNKS_MAX)
        body = content(number, count * 1000)
        size = len(body) // count + 1
        for chunk_id in range(self.chance.randrange(1, count)):
            metadata = MessageMetadata(
                producer_name=channel.name,
                sequence_id=0,
                publish_time=self.stage.clock.wall_ms(),
                uuid=f"{channel.name}-0",
                num_chunks_from_msg=count,
                total_chunk_msg_size=len(body),
                chunk_id=chunk_id,
            )
            chunk = body[chunk_id * size : (chunk_id + 1) * size]
            channel.send(encode_payload(metadata, chunk), 0, None, is_chunk=True)

    def _consumer(
        self, client: Client, subscription: str, *, chunk_timeout_s: float = CHUNK_TIMEOUT_S
    ) -> Opening[Consumer[bytes]]:
        return client.consumer(
            self.topic(),
            subscription,
            type="shared" if subscription == "shared" else "exclusive",
            initial_position="earliest",
            nack_delay_s=0.3,
            chunk_timeout_s=chunk_timeout_s,
            chunked_messages_max=CHUNKED_MESSAGES_MAX,
            receiver_queue_size=self.chance.choice(QUEUE_SIZES),
        )

    async def _work(self, client: Client) -> None:
        """Come, settle some messages, and leave; never ends. One consumer at a time, for the chunks
        of a message that several consumers share come to one of them only by chance."""
        while True:
            consumer = await opened(partial(self._consumer, client, "shared"))
            came: asyncio.Queue[Message[bytes]] = asyncio.Queue()
            try:
                async with taking(consumer.receive, partial(self._came, came)):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self.chance.random() * SHIFT_S_MAX):
                            while True:
                                await self._settle(consumer, await came.get())
            finally:
                with suppress(ClientError):
                    await consumer.close()
            await self.pause(REST_S_MAX)

    def _came(self, came: asyncio.Queue[Message[bytes]], message: Message[bytes]) -> None:
        number = self._number_of(message)
        self.came.append(number)
        if not self.stage.cluster.has_former_owner():
            self.watch.delivered(number)
        came.put_nowait(message)

    def _number_of(self, message: Message[bytes]) -> int:
        number = int(message.data.partition(b" ")[0])
        if not is_whole(message.data):
            raise InvariantViolated(f"of message {number} came {len(message.data)} bytes")
        if number >= MESSAGES:
            raise InvariantViolated(f"message {number} came, of which some chunks were sent")
        return number

    async def _settle(self, consumer: Consumer[bytes], message: Message[bytes]) -> None:
        number = self._number_of(message)
        await self.pause(REST_S_MAX)
        if self.chance.random() > SETTLED_SHARE:
            return
        self.in_doubt.add(number)
        with suppress(ClientError):
            await consumer.ack_confirmed(message)
            self.watch.confirmed([number])
            self.settled.add(number)

    async def finish(self) -> None:
        """Read the whole topic, and what is left to be settled."""
        if self.log.failed:
            raise InvariantViolated(f"{self.name}: {self.log.failed}")
        everything = await self._read("keeper", set(range(MESSAGES)))
        if list(dict.fromkeys(everything)) != list(range(MESSAGES)):
            raise InvariantViolated(f"the topic has {everything} instead of each number once")
        left = set(range(MESSAGES)) - self.settled - self.in_doubt
        again = set(await self._read("shared", left))
        if again & self.settled:
            raise InvariantViolated(f"{sorted(again & self.settled)} came again, acknowledged")

    async def _read(self, subscription: str, expected: set[int]) -> list[int]:
        """What comes, with ids that came once; until all is there that is expected."""
        found: dict[MessageId, int] = {}

        def came(message: Message[bytes]) -> None:
            found[message.id] = self._number_of(message)

        client = self.stage.clients[0]
        opening = partial(
            self._consumer, client, subscription, chunk_timeout_s=OLD_CHUNKS_TIMEOUT_S
        )
        consumer = await opened(opening)
        async with taking(consumer.receive, came):
            with suppress(TimeoutError):
                async with asyncio.timeout(CALM_S_MAX):
                    while not expected <= set(found.values()):  # noqa: ASYNC110 -- calm times
                        await asyncio.sleep(RETRY_S)
        await consumer.close()
        check_nothing_lost(expected, found.values())
        numbers = [found[each] for each in sorted(found)]
        if len(set(numbers)) != len(numbers):
            raise InvariantViolated(f"{subscription} has messages twice: {_by_id(found)}")
        return numbers


def _by_id(found: dict[MessageId, int]) -> Sequence[str]:
    return [f"{each}={number}" for each, number in sorted(found.items())]
