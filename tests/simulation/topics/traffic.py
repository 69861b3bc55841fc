"""What clients do in the simulated cluster, and what they were told: the only thing checks go by.

Two topics. In the *log* a subscription acknowledges two of three messages one by one and so keeps
everything; it is read from its beginning in the end. The *queue* is acknowledged cumulatively, and
what was passed is trimmed away. Both have two producers, each of which numbers its messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from random import Random

from geminga import (
    Client,
    ClientError,
    Consumer,
    ConsumerOptions,
    Message,
    MessageId,
    Producer,
)
from geminga_simulation.event_loop.loop import running_loop
from geminga_simulation.histories.checkers import (
    NoLostAcknowledgement,
    check_acknowledgements,
    check_nothing_invented,
    check_nothing_lost,
    check_order,
)
from geminga_simulation.histories.log import Append, LogHistory

LOG_TOPIC = "persistent://public/default/log"
QUEUE_TOPIC = "persistent://public/default/queue"
SUBSCRIPTION = "settled"
READER = "reader"
PRODUCERS = ("first", "second")
# Messages of one producer, of which so many are sent without a pause between.
MESSAGES = 30
BURST = 5
# How long it is until a client asks again for the last message.
LAST_EACH_S = 0.3
# Of each three in the log the first is never acknowledged; of the queue every fourth is.
LEFT_EACH = 3
CUMULATIVE_EACH = 4
FROM_THE_FIRST = ConsumerOptions(initial_position="earliest")
SHARED = ConsumerOptions(type="shared", initial_position="earliest")
FAILOVER = ConsumerOptions(type="failover", initial_position="earliest")
# Without faults nothing takes so long: a minute passes before a connection gone dark is noticed.
READ_S = 200.0
LOOK_S = 0.02
# Those who pass by come so often, and stay so long, at the most.
PASS_EACH_S_MAX, PASS_S_MAX = 1.0, 4.0
RETRY_S = 0.5
# What is published last: a client that has received it has received everything.
END = b"end"


@dataclass(slots=True)
class Told:
    """What the clients of one topic did and were told."""

    topic: str
    sent: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    stored: set[bytes] = field(default_factory=set[bytes])
    errors: list[str] = field(default_factory=list[str])
    delivered: dict[MessageId, bytes] = field(default_factory=dict[MessageId, bytes])
    # Of these, the ones that are not looked at yet; a message comes again after a re-attachment.
    arrived: asyncio.Queue[Message[bytes]] = field(default_factory=asyncio.Queue[Message[bytes]])
    watch: NoLostAcknowledgement = field(default_factory=NoLostAcknowledgement)
    # Whether a message may come now whose acknowledgement was confirmed.
    may_repeat: Callable[[], bool] = lambda: False
    settled: set[MessageId] = field(default_factory=set[MessageId])
    # Acknowledged, without an answer: it may have arrived or not.
    in_doubt: set[MessageId] = field(default_factory=set[MessageId])
    # What was appended, delivered, read and said to be the last, with the times.
    history: LogHistory[MessageId] = field(default_factory=lambda: LogHistory(may_repeat=True))
    # Everything in the topic's order, and what the subscription still had, both in the end.
    read: list[Message[bytes]] = field(default_factory=list[Message[bytes]])
    again: list[Message[bytes]] = field(default_factory=list[Message[bytes]])


async def publish(client: Client, told: Told, name: str, seconds: float) -> None:
    """Send numbered messages, some close together, and wait for all receipts."""
    producer = await _producer(client, told.topic, name)
    sent = told.sent[name] = []

    loop = running_loop()

    def on_sent(
        asked: Append[MessageId],
        payload: bytes,
        message_id: MessageId | None,
        error: ClientError | None,
    ) -> None:
        if message_id is not None:
            told.stored.add(payload)
            asked.returned_s = loop.now_s
            if message_id.ledger_id >= 0:  # that of a repeat, which was dropped, is not told
                asked.position = message_id
        else:
            told.errors.append(f"{payload!r}: {error}")

    for number in range(MESSAGES):
        await producer.ready()
        sent.append(b"%s/%06d" % (name.encode(), number))
        asked = told.history.append(name, sent[-1], loop.now_s)
        producer.send_nowait(sent[-1], partial(on_sent, asked, sent[-1]))
        if number % BURST == 0:
            await asyncio.sleep(seconds / MESSAGES * BURST)
    await producer.flush()


async def _producer(client: Client, topic: str, name: str) -> Producer[bytes]:
    """A producer, however often no broker takes it at first."""
    while True:
        try:
            # What brokers do with entries is looked at here, so each message is one.
            return await client.producer(topic, name=name, send_timeout_s=None, batching=None)
        except ClientError:
            await asyncio.sleep(RETRY_S)


async def subscribe(client: Client, topic: str, options: ConsumerOptions) -> Consumer[bytes]:
    """A consumer, however often no broker takes it at first."""
    while True:
        try:
            return await client.consumer(topic, SUBSCRIPTION, **options)
        except ClientError:
            await asyncio.sleep(RETRY_S)


async def take_in(consumer: Consumer[bytes], told: Told) -> None:
    """Receive whatever comes when it comes, for the watch goes by the order of arrival: a message
    left in the consumer's queue while another is acknowledged would look late. Never ends."""
    while True:
        message = await consumer.receive()
        if not told.may_repeat():
            told.watch.delivered(message.id)
        told.delivered[message.id] = message.data
        _note_read(told, SUBSCRIPTION, message)
        told.arrived.put_nowait(message)


def _note_read(told: Told, reader: str, message: Message[bytes]) -> None:
    """What comes may have been sent long ago: only that it is there now is known."""
    told.history.read(
        reader,
        message.id,
        message.data,
        called_s=-inf,
        returned_s=running_loop().now_s,
    )


async def ask_for_the_last(consumer: Consumer[bytes], told: Told) -> None:
    """Ask now and then for the last message, and note the answer. Never ends."""
    loop = running_loop()
    while True:
        await asyncio.sleep(LAST_EACH_S)
        called_s = loop.now_s
        try:
            last = await consumer.last_message_id()
        except ClientError:
            continue
        is_empty = last.ledger_id < 0
        # A queue is empty again when all of it is trimmed away.
        if not told.may_repeat() and not (is_empty and told.topic == QUEUE_TOPIC):
            position = None if is_empty else last
            told.history.last("asker", position, called_s=called_s, returned_s=loop.now_s)


async def pass_by(client: Client, topic: str, chance: Random) -> None:
    """Read the topic from its first message with a subscription of one's own, which is mostly
    removed then: brokers read from bookies what they have no more in memory, and make and delete
    cursors, while all else goes on. Never ends."""
    for number in count():
        await asyncio.sleep(chance.random() * PASS_EACH_S_MAX)
        with suppress(ClientError, TimeoutError):
            async with (
                asyncio.timeout(chance.random() * PASS_S_MAX),
                await client.consumer(topic, f"passer-{number}", **FROM_THE_FIRST) as consumer,
            ):
                for _ in range(chance.randrange(MESSAGES)):
                    consumer.ack(await consumer.receive())
                if chance.randrange(LEFT_EACH):
                    await consumer.unsubscribe()


async def settle_some(consumer: Consumer[bytes], told: Told) -> None:
    """Acknowledge two of three one by one, and note what was confirmed. Never ends."""
    while True:
        message = await told.arrived.get()
        if _number(message.data) % LEFT_EACH:
            await _acknowledge(consumer, told, message, {message.id})


async def settle_all(consumer: Consumer[bytes], told: Told) -> None:
    """Now and then acknowledge everything up to a message. Never ends."""
    while True:
        message = await told.arrived.get()
        if _number(message.data) % CUMULATIVE_EACH == 0:
            passed = {each for each in told.delivered if each <= message.id}
            await _acknowledge(consumer, told, message, passed, cumulative=True)


async def _acknowledge(
    consumer: Consumer[bytes],
    told: Told,
    message: Message[bytes],
    meant: set[MessageId],
    *,
    cumulative: bool = False,
) -> None:
    told.in_doubt |= meant - told.settled
    try:
        await consumer.ack_confirmed(message, cumulative=cumulative)
    except ClientError:
        return
    told.watch.confirmed(meant)
    told.settled |= meant
    told.in_doubt -= meant


async def until_delivered(told: Told) -> None:
    """Return when everything stored was delivered to the subscription.

    What was not delivered in good time is left to the checks: it may be lost.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(READ_S):
            while not told.stored <= set(told.delivered.values()):  # noqa: ASYNC110 -- calm times
                await asyncio.sleep(LOOK_S)


async def publish_end(client: Client, told: Told) -> None:
    """Publish the message behind all others."""
    producer = await _producer(client, told.topic, "end")
    async with asyncio.timeout(READ_S):
        await producer.send(END)


async def read_all(client: Client, told: Told) -> None:
    """Read the topic from its first message to its last; stops early where that does not come."""
    reader = await client.consumer(told.topic, READER, **FROM_THE_FIRST)
    async for message in _until_end(reader):
        reader.ack(message)
        told.read.append(message)
        _note_read(told, READER, message)


async def receive_the_rest(client: Client, told: Told, options: ConsumerOptions) -> None:
    """Take what the subscription still has; stops early where the end does not come."""
    consumer = await client.consumer(told.topic, SUBSCRIPTION, **options)
    async for message in _until_end(consumer):
        told.again.append(message)
        _note_read(told, SUBSCRIPTION, message)


async def _until_end(consumer: Consumer[bytes]) -> AsyncIterator[Message[bytes]]:
    deadline_s = asyncio.get_running_loop().time() + READ_S
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout_at(deadline_s):
                message = await consumer.receive()
            if message.data == END:
                return
            yield message


def check_log(told: Told) -> None:
    """Everything stored is there, in order, and exactly what was not settled comes again."""
    told.history.check()
    _check_content(told, [message.data for message in told.read])
    check_acknowledgements(
        {message.id for message in told.read},
        told.settled,
        {message.id for message in told.again},
        in_doubt=told.in_doubt,
    )


def check_queue(told: Told) -> None:
    """Everything stored was delivered, in order, and what was settled does not come again."""
    told.history.check()
    in_order = dict(sorted(told.delivered.items()))
    again = {message.id: message.data for message in told.again}
    _check_content(told, [*in_order.values(), *again.values()])
    check_acknowledgements(in_order, told.settled, again, in_doubt=told.in_doubt)


def _check_content(told: Told, payloads: Sequence[bytes]) -> None:
    assert told.errors == []
    check_nothing_lost(told.stored, payloads)
    check_nothing_invented([each for sent in told.sent.values() for each in sent], payloads)
    for name, sent in told.sent.items():
        check_order(sent, [each for each in payloads if each.startswith(name.encode())])


def _number(payload: bytes) -> int:
    return int(payload.rpartition(b"/")[2])
