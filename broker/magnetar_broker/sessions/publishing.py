"""The producers of one connection: PRODUCER, SEND, CLOSE_PRODUCER.

SEND is the hot path: one call a message, no task, no future. Everything else may take its time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from magnetar_server.authorization import Action, Resource

from magnetar_broker.topics.producers import AccessMode, Producer
from magnetar_protocol.errors import WireError
from magnetar_protocol.pulsar import api_pb2 as api
from magnetar_protocol.pulsar.answers import (
    encode_close_producer,
    encode_producer_success,
    encode_send_error,
    encode_success,
)
from magnetar_protocol.pulsar.payload import verify_checksum
from magnetar_protocol.pulsar.send import SendCommand
from magnetar_protocol.pulsar.topic_names import TopicName

if TYPE_CHECKING:
    from magnetar_broker.sessions.connection import Connection


class Publishing:
    """Producers by the id the client gave them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._producers: dict[int, Producer] = {}
        self._closed: set[int] = set()
        self.handlers: dict[int, Callable[[Any], None]] = {
            api.BaseCommand.PRODUCER: self._handle_producer,
            api.BaseCommand.CLOSE_PRODUCER: self._handle_close,
        }

    # The hot path

    def publish(self, sent: SendCommand, buffer: bytes, end: int) -> None:
        """Take one message or batch: check its checksum and hand it to the topic's log."""
        producer_id, sequence_id, messages, highest_sequence_id, _, payload_start = sent
        producer = self._producers.get(producer_id)
        if producer is None:
            self._refuse_unknown(producer_id)
            return
        if not verify_checksum(buffer, payload_start, end):
            self._refuse(producer_id, sequence_id, api.ChecksumError, "checksum failed on the way")
            return
        payload = buffer[payload_start:end]
        size = len(payload)
        producer.messages_in += messages
        producer.bytes_in += size
        self._connection.published(size)
        producer.append((payload, messages, producer, sequence_id, highest_sequence_id))

    def publish_unusual(
        self, command: api.CommandSend, buffer: bytes, payload_start: int, end: int
    ) -> None:
        """A SEND with fields the fast decoder leaves alone (transactions, markers)."""
        if command.txnid_most_bits or command.txnid_least_bits:
            self._refuse(
                command.producer_id,
                command.sequence_id,
                api.NotAllowedError,
                "transactions are not served yet: send without one",
            )
            return
        self.publish(
            (
                command.producer_id,
                command.sequence_id,
                command.num_messages,
                command.highest_sequence_id,
                command.is_chunk,
                payload_start,
            ),
            buffer,
            end,
        )

    def _refuse(
        self, producer_id: int, sequence_id: int, error: api.ServerError.ValueType, reason: str
    ) -> None:
        self._connection.send(encode_send_error(producer_id, sequence_id, error, reason))

    def _refuse_unknown(self, producer_id: int) -> None:
        """Messages of a producer that was closed meanwhile are dropped: it will send them again.

        One that never was is a broken client.
        """
        if producer_id in self._closed:
            return
        raise WireError(f"SEND for producer {producer_id}, which this connection does not have")

    # Opening

    def _handle_producer(self, command: api.CommandProducer) -> None:
        self._connection.start(
            command.request_id, self._open(command), after=("producer", command.producer_id)
        )

    async def _open(self, command: api.CommandProducer) -> None:
        connection = self._connection
        context = connection.context
        name = TopicName.parse(command.topic)
        connection.authorize(Action.PRODUCE, Resource.topic(str(name)))
        if command.producer_id in self._producers:
            present = self._producers[command.producer_id]
            if present.epoch >= command.epoch and present.name == command.producer_name:
                self._answer(command, present)
                return
        topic = await context.topics.get(name, create=True)
        producer_name = command.producer_name or await context.next_producer_name()
        producer = Producer(
            connection,
            command.producer_id,
            producer_name,
            epoch=command.epoch,
            is_name_given=bool(command.producer_name) and command.user_provided_producer_name,
            access_mode=AccessMode(command.producer_access_mode),
            metadata={pair.key: pair.value for pair in command.metadata},
            connected_at_ms=context.clock.wall_ms(),
            on_closed=self._closed_by_topic,
        )
        await topic.connect_producer(producer)
        if command.initial_subscription_name:
            await topic.create_subscription(command.initial_subscription_name)
        self._producers[command.producer_id] = producer
        self._closed.discard(command.producer_id)
        self._answer(command, producer)

    def _answer(self, command: api.CommandProducer, producer: Producer) -> None:
        self._connection.send(
            encode_producer_success(
                command.request_id, producer.name, topic_epoch=producer.topic_epoch
            )
        )

    # Closing

    def _handle_close(self, command: api.CommandCloseProducer) -> None:
        self._connection.start(
            command.request_id, self._close(command), after=("producer", command.producer_id)
        )

    async def _close(self, command: api.CommandCloseProducer) -> None:
        producer = self._producers.pop(command.producer_id, None)
        if producer is not None:
            self._closed.add(command.producer_id)
            producer.disconnect()
        self._connection.send(encode_success(command.request_id))

    def _closed_by_topic(self, producer: Producer) -> None:
        """The topic moves, ends, or gave the name to another connection: the client looks again."""
        if self._producers.get(producer.producer_id) is producer:
            del self._producers[producer.producer_id]
            self._closed.add(producer.producer_id)
        self._connection.send(encode_close_producer(producer.producer_id))

    def disconnected(self) -> None:
        """The connection is gone, and with it all its producers."""
        for producer in list(self._producers.values()):
            producer.disconnect()
        self._producers.clear()
