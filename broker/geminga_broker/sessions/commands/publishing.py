"""The producers of one connection: PRODUCER, SEND, CLOSE_PRODUCER.

SEND is the hot path: one loop over all messages of a read, no task, no future. It rides on the
right to produce that was found when the producer was opened. All else may take its time.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import ClassVar

from geminga_broker.errors import BrokerError, NotAllowed
from geminga_broker.managed_ledger.append_request import AppendRequest, one_by_one, publisher_of
from geminga_broker.sessions.commands.command_group import CommandGroup, Handlers, as_task
from geminga_broker.sessions.commands.schemas import schema_of, topic_schemas
from geminga_broker.sessions.session import Session
from geminga_broker.topics.producing.producers import Producer, ProducerRequest
from geminga_broker.topics.producing.replicated import ReplicatorProducer
from geminga_protocol.errors import ChecksumMismatch, WireError
from geminga_protocol.framing import Bounds
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import (
    encode_close_producer,
    encode_producer_success,
    encode_send_error,
    encode_success,
)
from geminga_protocol.pulsar.enums import AccessMode
from geminga_protocol.pulsar.integers import signed, unsigned
from geminga_protocol.pulsar.message_count import take_payload
from geminga_protocol.pulsar.replication import is_replicator
from geminga_protocol.pulsar.send import parse_send
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_server.authorization import Action, Resource

log = logging.getLogger(__name__)

# Messages for a producer that was closed may still come for a moment; those for one closed long
# ago end the connection.
CLOSED_PRODUCERS_MAX = 10_000


def _goes_along(following: Producer | None, producer: Producer | None) -> bool:
    """Whether messages of ``following`` may be in one run with those of ``producer``."""
    return (
        following is not None
        and producer is not None
        and not following.is_closed
        and not producer.is_closed
        and following.append_all == producer.append_all
    )


class ProducerCommands(CommandGroup):
    """Producers by the id the client gave them."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._producers: dict[int, Producer] = {}
        self._closed: dict[int, None] = {}

    # The hot path

    def take_sends(self, buffer: bytes, bounds: Bounds, index: int) -> int:
        """Take the SENDs among the frames from ``bounds[index]`` on, up to the first other command.

        Returns where that one stands. Consecutive messages of a producer go to its topic together,
        with those of others if the topic takes them so.
        """
        run: list[AppendRequest] = []
        run_of, run_messages, run_bytes, run_start = -1, 0, 0, 0
        producer: Producer | None = None
        while index < len(bounds):
            start, end = bounds[index]
            sent = parse_send(buffer, start, end)
            if sent is None:
                break
            index += 1
            # How many messages it says to be is not believed: its metadata is what consumers get.
            producer_id, sequence_id, _, highest_sequence_id, is_chunk, payload_start = sent
            if producer_id != run_of:
                self._count(producer, len(run) - run_start, run_messages, run_bytes)
                following = self._producers.get(producer_id)
                if not _goes_along(following, producer):
                    self._append(producer, run)
                    run, following = [], self._find(producer_id)
                run_messages, run_bytes, run_start = 0, 0, len(run)
                run_of, producer = producer_id, following
            if producer is None:
                continue
            try:
                payload, messages = take_payload(buffer, payload_start, end)
            except WireError as error:
                self._refuse_payload(producer_id, sequence_id, error)
                continue
            run.append((payload, messages, producer, sequence_id, highest_sequence_id))
            run_messages += messages or 1
            run_bytes += end - payload_start
            if is_chunk:
                producer.chunks_in += 1
        self._count(producer, len(run) - run_start, run_messages, run_bytes)
        self._append(producer, run)
        return index

    def _count(
        self, producer: Producer | None, entries: int, messages: int, size_bytes: int
    ) -> None:
        if producer is None or producer.is_closed:
            return
        producer.messages_in += messages
        producer.bytes_in += size_bytes
        producer.entries_taken += entries
        self._session.published(size_bytes)

    def _append(self, producer: Producer | None, run: list[AppendRequest]) -> None:
        """Append a run, of ``producer`` in the end, as it says."""
        if producer is None or not run or producer.is_closed:
            return
        try:
            self._hand_over(producer, run)
        except BrokerError as error:
            # The topic is going: the client is told so by CLOSE_PRODUCER and sends again elsewhere.
            log.info("publish refused", extra={"producer": producer.name, "error": str(error)})

    def _hand_over(self, producer: Producer, run: list[AppendRequest]) -> None:
        """Append ``run``; where some of it is not allowed, the rest all the same."""
        try:
            producer.append_all(run)
        except NotAllowed as error:
            if len(run) > 1:
                for each in one_by_one(run):
                    self._hand_over(producer, [each])
                return
            publisher_of(run[0]).fail(run[0], error)

    def _find(self, producer_id: int) -> Producer | None:
        """The producer; None for one that was closed, whose messages will come again.

        Raises ``WireError`` for one that never was, or is still waiting to be let in.
        """
        producer = self._producers.get(producer_id)
        if producer is not None and producer.is_waiting:
            raise WireError(f"SEND for producer {producer_id}, which is not ready yet")
        if producer is None and producer_id not in self._closed:
            raise WireError(f"SEND for producer {producer_id}, which this connection does not have")
        return producer

    def publish_unusual(
        self, command: api.CommandSend, buffer: bytes, payload_start: int, end: int
    ) -> None:
        """A SEND with fields the fast decoder leaves alone (transactions, markers)."""
        producer = self._find(command.producer_id)
        if producer is None:
            return
        try:
            payload, messages = take_payload(buffer, payload_start, end)
        except WireError as error:
            self._refuse_payload(command.producer_id, command.sequence_id, error)
            return
        sequence_id, highest = command.sequence_id, command.highest_sequence_id
        item = (payload, messages, producer, sequence_id, highest)
        self._count(producer, 1, messages or 1, len(payload))
        if command.txnid_most_bits or command.txnid_least_bits:
            producer.fail(item, NotAllowed("transactions are not served yet: send without one"))
            return
        self._append(producer, [item])

    def _refuse_payload(self, producer_id: int, sequence_id: int, error: WireError) -> None:
        """Nothing of it is stored: nobody else is to stumble over it."""
        is_changed = isinstance(error, ChecksumMismatch)
        code = api.ChecksumError if is_changed else api.MetadataError
        self._refuse(producer_id, sequence_id, code, str(error))

    def _refuse(
        self, producer_id: int, sequence_id: int, error: api.ServerError.ValueType, reason: str
    ) -> None:
        self._session.send(encode_send_error(producer_id, sequence_id, error, reason))

    # Opening

    async def _open(self, command: api.CommandProducer) -> None:
        session = self._session
        context = session.context
        name = TopicName.parse(command.topic)
        resource = Resource.topic(str(name))
        await session.authorize(Action.PRODUCE, resource)
        if command.initial_subscription_name:
            await session.authorize(Action.CONSUME, resource)
        present = self._producers.get(command.producer_id)
        if present is not None:
            is_same = present.epoch >= command.epoch and command.producer_name in ("", present.name)
            if is_same and not present.is_waiting:
                self._answer(command, present)
                return
            self._take_out(present)
            present.disconnect()
        topic = await context.topic(name, create=True)
        request = ProducerRequest(
            command.producer_id,
            command.producer_name or await context.next_producer_name(),
            epoch=command.epoch,
            access_mode=AccessMode(command.producer_access_mode),
            topic_epoch=signed(command.topic_epoch) if command.HasField("topic_epoch") else None,
            is_encrypting=command.encrypted,
            metadata={pair.key: pair.value for pair in command.metadata},
        )
        kind = ReplicatorProducer if is_replicator(request.name) else Producer
        producer = kind(
            session,
            request,
            connected_at_ms=context.clock.wall_ms(),
            on_closed=partial(self._closed_by_topic, name),
            on_settled=partial(self._settled, command),
        )
        if isinstance(producer, ReplicatorProducer):
            # Without a log there are no positions.
            producer.is_positioned = session.tells_source_positions and name.is_persistent
        schema = schema_of(command.schema) if command.HasField("schema") else None
        producer.schema_version = await topic_schemas(context, topic).admit_producer(schema)
        if command.initial_subscription_name:
            await topic.create_subscription(command.initial_subscription_name, from_earliest=True)
        await topic.connect_producer(producer)
        # Nothing was awaited since the topic let it in: whom the topic knows is known here too.
        self._producers[command.producer_id] = producer
        self._closed.pop(command.producer_id, None)
        self._answer(command, producer)

    def _answer(self, command: api.CommandProducer, producer: Producer) -> None:
        epoch = producer.topic_epoch
        self._session.send(
            encode_producer_success(
                command.request_id,
                producer.name,
                last_sequence_id=producer.last_sequence_id(),
                schema_version=producer.schema_version,
                topic_epoch=None if epoch is None else unsigned(epoch),
                is_ready=not producer.is_waiting,
            )
        )

    def _settled(
        self, command: api.CommandProducer, producer: Producer, refusal: BrokerError | None
    ) -> None:
        """A producer that waited to be the exclusive one is let in, or waits in vain."""
        if self._producers.get(producer.producer_id) is not producer:
            return  # gone meanwhile: nobody waits for an answer
        if refusal is None:
            self._answer(command, producer)
            return
        self._take_out(producer)
        self._session.fail(command, refusal)

    # Closing

    async def _close(self, command: api.CommandCloseProducer) -> None:
        producer = self._producers.get(command.producer_id)
        if producer is not None:
            self._take_out(producer)
            try:
                await producer.drained()
            finally:
                producer.disconnect()
        self._session.send(encode_success(command.request_id))

    def _closed_by_topic(self, name: TopicName, producer: Producer) -> None:
        """The topic moves, ends, or gave the name to another connection: the client looks again."""
        if self._producers.get(producer.producer_id) is producer:
            self._take_out(producer)
        close = partial(encode_close_producer, producer.producer_id)
        self._session.send_when_moved(name, close)

    def _take_out(self, producer: Producer) -> None:
        """Take nothing more from ``producer``; what it sent meanwhile is no error."""
        del self._producers[producer.producer_id]
        self._closed[producer.producer_id] = None
        while len(self._closed) > CLOSED_PRODUCERS_MAX:
            del self._closed[next(iter(self._closed))]

    def disconnected(self) -> None:
        """The connection is gone, and with it all its producers."""
        for producer in list(self._producers.values()):
            producer.disconnect()
        self._producers.clear()

    handlers: ClassVar[Handlers] = {
        api.BaseCommand.PRODUCER: as_task(_open, in_order_of="producer_id"),
        api.BaseCommand.CLOSE_PRODUCER: as_task(_close, in_order_of="producer_id"),
    }
