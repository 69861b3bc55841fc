"""Readers as Java's client has them: no durable subscription, and a topic that ends for them where
the broker says that its last message is. They stand on the client's channels, as whatever moves
entries without looking into them does.

Such a reader asks for the last message only when it has read the one that it was told of, and takes
up to there what must come. It acknowledges now and then, in the midst of a batch the entry before.
A broker that answers with the end of what it knew before, or forgets to send on, is noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from tests.simulation.accounts import check_accounts
from tests.simulation.listened import listen

from geminga import (
    EARLIEST,
    Client,
    ClientError,
    MessageId,
    Producer,
)
from geminga._channels.consumer_channel import ConsumerChannel, ConsumerChannelOptions
from geminga._channels.registry import Channels, ClientOptions
from geminga_ledger import LedgerConfig
from geminga_protocol.pulsar.api_pb2 import CommandMessage, MessageIdData
from geminga_protocol.pulsar.messages.integers import signed
from geminga_protocol.pulsar.messages.payload import open_payload
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_scenarios.cluster import Cluster, Shape
from geminga_scenarios.verdicts import raise_loop_failures
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.histories.checkers import check_nothing_lost, check_order
from geminga_simulation.world import World

TOPIC = "persistent://public/default/read"
MESSAGES = 60
BURST_MAX = 12
QUEUE_MAX = 20
# Of so many messages one is acknowledged.
ACKNOWLEDGED_EACH = 3
PAUSE_S_MAX = 0.05
RETRY_S = 0.3
# Without faults nothing takes so long: a minute passes before a connection gone dark is noticed.
READ_S = 200.0


@dataclass(slots=True)
class Published:
    """What producers know: each one's messages, and where those stand that have a receipt.

    ``is_compacted``: readers are content with the newest message of each key. ``is_strict``: the
    topic has one owner at a time. A broker that has not heard yet that it lost its session, and
    with it the topic to another, answers with the end it knew.
    """

    is_strict: bool = True
    topic: str = TOPIC
    is_compacted: bool = False
    sent: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    stored: dict[bytes, MessageId] = field(default_factory=dict[bytes, MessageId])
    last: MessageId = EARLIEST
    is_over: bool = False

    def receipt(
        self, payload: bytes, message_id: MessageId | None, error: ClientError | None
    ) -> None:
        """The broker has stored a message."""
        assert message_id is not None, error
        self.stored[payload] = message_id
        self.last = max(self.last, message_id)


async def publish(client: Client, published: Published, name: str, chance: Random) -> None:
    """Send in bursts, and wait for all receipts."""
    producer = await producer_of(client, published.topic, name)
    sent = published.sent[name] = []
    while len(sent) < MESSAGES:
        for _ in range(min(chance.randint(1, BURST_MAX), MESSAGES - len(sent))):
            await producer.ready()
            sent.append(b"%s/%d" % (name.encode(), len(sent)))
            producer.send_nowait(sent[-1], partial(published.receipt, sent[-1]))
        await asyncio.sleep(chance.random())
    await producer.flush()


async def producer_of(client: Client, topic: str, name: str) -> Producer[bytes]:
    """A producer, however often no broker takes it at first."""
    while True:
        try:
            # Readers count entries, so each message is one.
            return await client.producer(topic, name=name, send_timeout_s=None, batching=None)
        except ClientError:
            await asyncio.sleep(RETRY_S)


class Reader:
    """A channel that begins, also when it comes back, behind the message it had last."""

    def __init__(
        self, channels: Channels, published: Published, name: str, queue_size: int
    ) -> None:
        options = ConsumerChannelOptions(
            name=name, receiver_queue_size=queue_size, read_compacted=published.is_compacted
        )
        topic = TopicName.parse(published.topic)
        self.channel = ConsumerChannel(channels, topic, name, options, is_durable=False)
        self._start = MessageIdData.FromString(EARLIEST.to_bytes())
        self.channel.start = lambda: self._start
        self.channel.on_entry = self._entry_arrived
        self.channel.on_reset = self._forget_arrived
        self.name = name
        self.last = EARLIEST
        self.read: list[bytes] = []
        self._arrived: asyncio.Queue[tuple[MessageIdData, bytes]] = asyncio.Queue()

    def _entry_arrived(self, command: CommandMessage, buffer: bytes, start: int, end: int) -> None:
        _, body_start = open_payload(buffer, start, end)
        self._arrived.put_nowait((command.message_id, buffer[body_start:end]))

    def _forget_arrived(self) -> int:
        forgotten = self._arrived.qsize()
        for _ in range(forgotten):
            self._arrived.get_nowait()
        return forgotten

    async def last_message_id(self) -> MessageId:
        """What the broker says is the topic's last message. Raises ``ClientError``."""
        return _id((await self.channel.last_message_id()).last_message_id)

    async def read_upto(self, last: MessageId, chance: Random) -> None:
        """Take everything up to ``last``, which is there."""
        try:
            async with asyncio.timeout(READ_S):
                while self.last < last:
                    message_id, payload = await self._arrived.get()
                    self.channel.return_permits(1)
                    if _id(message_id) > self.last:  # else it comes again, after a return
                        self.last = _id(message_id)
                        self._start = message_id
                        self.read.append(payload)
                        await self._rest(chance)
        except TimeoutError:
            raise InvariantViolated(
                f"{self.name} has {self.last} and was told of {last}, but nothing came"
            ) from None

    async def _rest(self, chance: Random) -> None:
        """Now and then acknowledge, and take some time."""
        if self.channel.is_connected and not chance.randrange(ACKNOWLEDGED_EACH):
            upto = self.last.ledger_id, self.last.entry_id - chance.randint(0, 1)
            self.channel.acknowledge_up_to(upto)
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() * PAUSE_S_MAX)


def _id(proto: MessageIdData) -> MessageId:
    return MessageId(signed(proto.ledgerId), signed(proto.entryId))


def channels(cluster: Cluster, name: str) -> Channels:
    """What readers on a host of this name share, to be entered."""
    host = cluster.world.host(name)
    options = ClientOptions()
    return Channels(
        cluster.service_url, options, network=cluster.network_of(host), random=host.random
    )


async def read_late(
    channels: Channels, published: Published, name: str, chance: Random, *, begin_s_max: float
) -> list[bytes]:
    """Begin to read at some moment."""
    await asyncio.sleep(chance.random() * begin_s_max)
    return await read_all(channels, published, name, chance)


async def read_all(
    channels: Channels, published: Published, name: str, chance: Random
) -> list[bytes]:
    """Read until the topic ends, after all is published."""
    while True:
        reader = Reader(channels, published, name, chance.randint(1, QUEUE_MAX))
        try:
            await reader.channel.open()
            break
        except ClientError:
            await asyncio.sleep(RETRY_S)
    await _read_to_the_end(reader, published, chance)
    await reader.channel.close()
    return reader.read


async def _read_to_the_end(reader: Reader, published: Published, chance: Random) -> None:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + READ_S
    while loop.time() < end_s:
        is_over, confirmed = published.is_over, published.last
        if not is_over:
            end_s = loop.time() + READ_S
        try:
            last = await reader.last_message_id()
        except ClientError:
            await asyncio.sleep(RETRY_S)
            continue
        if last < confirmed and published.is_strict:
            raise InvariantViolated(f"{reader.name} was told that {last} is last, not {confirmed}")
        if last > reader.last:
            await reader.read_upto(last, chance)
        elif is_over and last >= confirmed:
            return
        await asyncio.sleep(chance.random() * RETRY_S)
    raise InvariantViolated(f"{reader.name} has {reader.last} and never heard of {published.last}")


def check_read(published: Published, read: Sequence[bytes]) -> None:
    """A reader has read everything, each producer's in its order."""
    check_nothing_lost(set(published.stored), read)
    for name, sent in published.sent.items():
        check_order(sent, [each for each in read if each.startswith(name.encode())])


async def story(
    live_through: Callable[[Cluster, FaultMenu, Random], Coroutine[Any, Any, Published]],
    menu: FaultMenu,
    shape: Shape,
    ledgers: LedgerConfig,
) -> int:
    """Tell ``live_through`` in a world of its own; returns how many messages it was about."""
    async with World() as world:
        cluster = Cluster(world, shape, ledgers)
        histories = listen(cluster)
        await cluster.open()
        client, other = world.host("client"), world.host("other-client")
        for host in (client, other):
            host.start(lambda _: asyncio.Event().wait())
        try:
            told = await client.run(live_through(cluster, menu, world.loop.stream("story")))
        except ExceptionGroup as group:  # of the story's tasks the first that failed tells why
            raise group.exceptions[0] from group
        await check_accounts(cluster)
        raise_loop_failures(world)
    histories.check()
    return len(told.stored)
