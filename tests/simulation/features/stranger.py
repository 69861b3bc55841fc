"""One connection of a client that knows the protocol, and nothing else: it sends whatever commands
come to its mind, in any order and without waiting for answers, about consumers and producers that
it has, had, or never had.

Its broker owes it an answer to each, and keeps what it confirms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from geminga import ClientError
from geminga._transport.connection import Connection, ConnectionOptions, EntryHandler
from geminga._transport.service_urls import BrokerAddress, Route
from geminga.errors import BrokerFailed, BrokerRefused, RequestTimedOut
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.ack import LIKE_IDS_MIN
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import encode_command
from geminga_protocol.pulsar.enums import AccessMode, SubscriptionType
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.send import encode_send
from geminga_runtime.clock import Clock
from geminga_runtime.network import Network
from geminga_scenarios.cluster import BROKER_PORT
from geminga_simulation.errors import InvariantViolated

OPTIONS = ConnectionOptions()
# So few of each that commands often meet one that is there, and as often one that is not.
CONSUMERS = (1, 2, 3)
PRODUCERS = (1, 2)
SUBSCRIPTIONS = ("one", "two", "three")
# No client may make these.
FORBIDDEN = ("", ".", "pulsar.dedup", "pulsar.repl.other", "__compaction")
FORBIDDEN_SHARE = 0.1
PRODUCER_NAMES = ("", "same")
PERMITS_MAX = 10
# Acknowledgements of so many messages that the broker decodes them otherwise.
MANY_SHARE = 0.2
MESSAGES_A_SEND_MAX = 3
PAUSE_S_MAX = 0.06
# Longer than a client waits for an answer.
ANSWER_S_MAX = 2 * OPTIONS.operation_timeout_s
INTERNAL_ERROR = "internal error of the broker"

Positions = dict[tuple[int, int], bytes]


@dataclass(slots=True)
class Told:
    """What all strangers of a topic were told: the messages that are stored, by their places, and
    how many of their requests were done and refused. ``sent`` is all that they ever sent."""

    stored: Positions = field(default_factory=Positions)
    sent: set[bytes] = field(default_factory=set[bytes])
    answers: int = 0
    refusals: int = 0


class _Consumer:
    """Hands on what it is sent."""

    def __init__(self, on_entry: EntryHandler) -> None:
        self.on_entry = on_entry

    def told(self, command: BaseCommand) -> None:
        """As ``ConsumerHandler``."""

    def detached(self, connection: Connection, broker_url: str | None) -> None:
        """As ``ConsumerHandler``."""


@dataclass(slots=True)
class _Producer:
    """Notes where messages of its stranger are stored, which are ``payloads`` by their numbers, its
    own and those of producers that had its id before. ``is_ready``: the broker has let it in."""

    told: Told
    payloads: dict[int, bytes]
    is_ready: bool = False

    def receipt(self, receipt: api.CommandSendReceipt) -> None:
        """As ``ProducerHandler``."""
        payload = self.payloads.pop(receipt.sequence_id, None)
        if payload is None:
            raise InvariantViolated(f"a receipt for {receipt.sequence_id}, which was not sent")
        place = receipt.message_id.ledgerId, receipt.message_id.entryId
        if self.told.stored.setdefault(place, payload) != payload:
            raise InvariantViolated(f"{self.told.stored[place]!r} and {payload!r} are at {place}")

    def send_error(self, error: api.CommandSendError) -> None:
        """As ``ProducerHandler``."""
        self.payloads.pop(error.sequence_id, None)

    def detached(self, connection: Connection, broker_url: str | None) -> None:
        """As ``ProducerHandler``."""
        del connection, broker_url
        self.is_ready = False


class Stranger:
    """``name`` is in all that it sends. ``is_calm``: nothing but it disturbs the cluster."""

    def __init__(
        self, name: str, topic: str, told: Told, chance: Random, clock: Clock, *, is_calm: bool
    ) -> None:
        self._name = name
        self._topic = topic
        self._told = told
        self._chance = chance
        self._clock = clock
        self._is_calm = is_calm
        # Places of messages that it was sent, whatever became of the consumer.
        self._places: list[tuple[int, int]] = []
        self._producers: dict[int, _Producer] = {}
        # What was sent and has no receipt, by its number.
        self._payloads: dict[int, bytes] = {}
        self._numbers = 0
        self._connection: Connection

    async def visit(self, network: Network, host: str, seconds: float) -> None:
        """Send commands to the broker on ``host`` for so long, or until the connection breaks.
        Raises ``InvariantViolated``; ``ClientError`` and ``OSError`` where it cannot connect."""
        connection = Connection(Route(BrokerAddress(host, BROKER_PORT)), OPTIONS)
        await network.connect(lambda: connection, host, BROKER_PORT)
        await connection.ready()
        self._connection = connection
        self._producers = {number: _Producer(self._told, self._payloads) for number in PRODUCERS}
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        try:
            async with asyncio.TaskGroup() as tasks:
                asking: list[asyncio.Task[None]] = []
                while loop.time() < end_s and connection.is_open:
                    words = self._chance.choice(WORDS)(self)
                    if words is not None:
                        asking.append(tasks.create_task(words))
                    await asyncio.sleep(self._chance.random() * PAUSE_S_MAX)
                # Who waits to be the exclusive producer may wait for ever.
                if asking:
                    await asyncio.wait(asking, timeout=ANSWER_S_MAX)
                for each in asking:
                    each.cancel()
        finally:
            connection.close()

    async def _ask(
        self, command: BaseCommand, then: Callable[[BaseCommand], None] | None = None
    ) -> None:
        try:
            answer = await self._connection.request(command)
        except RequestTimedOut as error:
            if self._is_calm:
                raise InvariantViolated(f"{self._name} gets no answer: {error}") from error
        except BrokerFailed as error:
            if error.message == INTERNAL_ERROR:
                raise InvariantViolated(f"{self._name} asks for {command}: {error}") from error
            self._told.refusals += 1
        except BrokerRefused:
            self._told.refusals += 1
        except ClientError:
            pass  # the connection broke
        else:
            self._told.answers += 1
            if then is not None:
                then(answer)

    def _place(self) -> api.MessageIdData:
        """That of a message, or of none."""
        ledger_id, entry_id = self._chance.choice([*self._places[-20:], (0, 0)])
        return api.MessageIdData(
            ledgerId=max(0, ledger_id + self._chance.choice((0, 0, 0, -1, 1))),
            entryId=max(0, entry_id + self._chance.choice((0, 0, 0, -1, 1, 40, 40))),
        )

    def _consumer_id(self) -> int:
        return self._chance.choice(CONSUMERS)

    # Consumers

    def _subscribe(self) -> Coroutine[Any, Any, None]:
        number, chance = self._consumer_id(), self._chance
        names = FORBIDDEN if chance.random() < FORBIDDEN_SHARE else SUBSCRIPTIONS
        self._connection.consumers[number] = _Consumer(self._entry_arrived)
        part = api.CommandSubscribe(
            topic=self._topic,
            subscription=chance.choice(names),
            subType=api.CommandSubscribe.SubType.ValueType(chance.choice([*SubscriptionType])),
            consumer_id=number,
            consumer_name=chance.choice(("", "same", self._name)),
            durable=chance.random() < 0.8,
            read_compacted=chance.random() < 0.1,
            initialPosition=api.CommandSubscribe.Earliest,
        )
        return self._ask(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=part))

    def _entry_arrived(
        self, command: api.CommandMessage, buffer: bytes, start: int, end: int
    ) -> None:
        del buffer, start, end
        self._places.append((command.message_id.ledgerId, command.message_id.entryId))

    def _flow(self) -> None:
        permits = self._chance.randint(1, PERMITS_MAX)
        part = api.CommandFlow(consumer_id=self._consumer_id(), messagePermits=permits)
        self._connection.write(encode_command(BaseCommand(type=BaseCommand.FLOW, flow=part)))

    def _acknowledge(self) -> Coroutine[Any, Any, None] | None:
        part = api.CommandAck(consumer_id=self._consumer_id())
        part.ack_type = self._chance.choice((api.CommandAck.Individual, api.CommandAck.Cumulative))
        if self._chance.random() < MANY_SHARE:
            part.message_id.extend([self._place()] * LIKE_IDS_MIN)
        else:
            part.message_id.extend(self._place() for _ in range(self._chance.choice((1, 1, 2))))
        command = BaseCommand(type=BaseCommand.ACK, ack=part)
        if self._chance.random() < 0.5:
            return self._ask(command)
        self._connection.write(encode_command(command))
        return None

    def _redeliver(self) -> None:
        part = api.CommandRedeliverUnacknowledgedMessages(consumer_id=self._consumer_id())
        if self._chance.random() < 0.5:
            part.message_ids.append(self._place())
        kind = BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES
        command = BaseCommand(type=kind, redeliverUnacknowledgedMessages=part)
        self._connection.write(encode_command(command))

    def _seek(self) -> Coroutine[Any, Any, None]:
        part = api.CommandSeek(consumer_id=self._consumer_id())
        roll = self._chance.random()
        if roll < 0.4:
            part.message_id.CopyFrom(self._place())
        elif roll < 0.8:
            part.message_publish_time = self._clock.wall_ms() - self._chance.randrange(3000)
        return self._ask(BaseCommand(type=BaseCommand.SEEK, seek=part))

    def _unsubscribe(self) -> Coroutine[Any, Any, None]:
        is_forced = self._chance.random() < 0.3
        part = api.CommandUnsubscribe(consumer_id=self._consumer_id(), force=is_forced)
        return self._ask(BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe=part))

    def _close_consumer(self) -> Coroutine[Any, Any, None]:
        part = api.CommandCloseConsumer(consumer_id=self._consumer_id())
        return self._ask(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=part))

    def _last_message_id(self) -> Coroutine[Any, Any, None]:
        part = api.CommandGetLastMessageId(consumer_id=self._consumer_id())
        return self._ask(BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=part))

    def _stats(self) -> Coroutine[Any, Any, None]:
        part = api.CommandConsumerStats(consumer_id=self._consumer_id())
        return self._ask(BaseCommand(type=BaseCommand.CONSUMER_STATS, consumerStats=part))

    # Producers

    def _open_producer(self) -> Coroutine[Any, Any, None]:
        number, chance = self._chance.choice(PRODUCERS), self._chance
        producer = self._producers[number] = _Producer(self._told, self._payloads)
        self._connection.producers[number] = producer
        modes = [*AccessMode, AccessMode.SHARED, AccessMode.SHARED]
        part = api.CommandProducer(
            topic=self._topic,
            producer_id=number,
            producer_name=chance.choice(PRODUCER_NAMES),
            producer_access_mode=api.ProducerAccessMode.ValueType(chance.choice(modes)),
        )
        if chance.random() < 0.2:
            part.topic_epoch = chance.randrange(3)

        def opened(answer: BaseCommand) -> None:
            del answer
            producer.is_ready = self._producers[number] is producer

        return self._ask(BaseCommand(type=BaseCommand.PRODUCER, producer=part), opened)

    def _send(self) -> None:
        for number, producer in self._producers.items():
            for _ in range(self._chance.randint(1, MESSAGES_A_SEND_MAX) * producer.is_ready):
                self._numbers += 1
                body = f"{self._name}/{self._numbers}".encode()
                metadata = api.MessageMetadata(
                    producer_name=self._name,
                    sequence_id=self._numbers,
                    publish_time=self._clock.wall_ms(),
                )
                payload = encode_payload(metadata, body)
                self._told.sent.add(body)
                self._payloads[self._numbers] = body
                self._connection.write(encode_send(number, self._numbers, len(payload)), payload)

    def _close_producer(self) -> Coroutine[Any, Any, None]:
        number = self._chance.choice(PRODUCERS)
        self._producers[number].is_ready = False
        part = api.CommandCloseProducer(producer_id=number)
        return self._ask(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=part))


# What is said more often stands here more often.
WORDS: tuple[Callable[[Stranger], Coroutine[Any, Any, None] | None], ...] = (
    *(Stranger._subscribe,) * 5,
    *(Stranger._flow,) * 4,
    *(Stranger._acknowledge,) * 4,
    Stranger._redeliver,
    *(Stranger._seek,) * 2,
    Stranger._unsubscribe,
    Stranger._close_consumer,
    Stranger._last_message_id,
    Stranger._stats,
    *(Stranger._open_producer,) * 3,
    *(Stranger._send,) * 5,
    Stranger._close_producer,
)


async def keep_visiting(
    stranger: Stranger, network: Network, host: Callable[[], str], until_s: float
) -> None:
    """Visit the broker that is on ``host()`` then, again and again until that time."""
    loop = asyncio.get_running_loop()
    while loop.time() < until_s:
        with suppress(ClientError, OSError):
            await stranger.visit(network, host(), until_s - loop.time())
        await asyncio.sleep(PAUSE_S_MAX)
