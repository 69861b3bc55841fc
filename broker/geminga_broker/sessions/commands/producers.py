"""The producers of one connection: PRODUCER, SEND, CLOSE_PRODUCER.

SEND is the hot path: one loop over all messages of a read, no task, no future. It relies on the
right to produce that was checked when the producer was opened. The other commands run as tasks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from geminga_broker.errors import BrokerError, NotAllowed
from geminga_broker.managed_ledger.writing.append_request import (
    AppendRequest,
    one_by_one,
    publisher_of,
)
from geminga_broker.sessions.commands.command_group import CommandGroup, Handlers, as_task
from geminga_broker.sessions.commands.schemas import schema_of
from geminga_broker.topics.producers.producer import Producer, ProducerRequest
from geminga_broker.topics.producers.replicator_producer import ReplicatorProducer
from geminga_broker.topics.topic_schemas import TopicSchemas
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
from geminga_protocol.pulsar.messages.integers import signed, unsigned
from geminga_protocol.pulsar.messages.message_count import take_payload
from geminga_protocol.pulsar.messages.replication import is_replicator
from geminga_protocol.pulsar.send import parse_send
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_server.authorization import Action, Resource

log = logging.getLogger(__name__)

# Messages for a producer that was closed may still come for a moment, and are dropped: the client
# sends them again. A connection remembers so many closed producers; a SEND for one that was closed
# longer ago ends the connection.
CLOSED_PRODUCERS_MAX = 10_000


@dataclass(slots=True, eq=False)
class ProducerCommands(CommandGroup):
    """Serves the producers of one connection."""

    # By the id that the client gave them; those that wait for exclusive access are in it, too. An
    # id is in at most one of both. No producer that the topic has closed stays in ``_producers``.
    _producers: dict[int, Producer] = field(default_factory=dict, init=False)
    # The ids of closed producers, the oldest first. A dict as an ordered set: the oldest is found
    # at the front.
    _closed: dict[int, None] = field(default_factory=dict, init=False)

    # The hot path

    def take_sends(self, buffer: bytes, bounds: Bounds, index: int) -> int:
        """Take the SENDs among the frames from ``bounds[index]`` on, up to the first other command.

        Returns the index of that one. HOT. Consecutive messages are collected into a run, which is
        appended with one call: all those of a producer, and of the producers after it whose topic
        takes their messages by the same call.
        """
        run: list[AppendRequest] = []
        #     run:  [ p1 p1 p1 │ p2 p2 │ p3 ...      all of one topic, by equal ``append_all``
        #                              ▲
        #                          run_start          of p3, the present ``producer``
        #
        # The part of the run that is of the last producer: its id, where it begins, and its sizes,
        # which are added to the producer's counters once and not with every message.
        run_of, run_messages, run_bytes, run_start = -1, 0, 0, 0
        producer: Producer | None = None
        while index < len(bounds):
            start, end = bounds[index]
            sent = parse_send(buffer, start, end)
            if sent is None:
                break
            index += 1
            # The number of messages in the command is ignored: that in the metadata is what
            # consumers get.
            producer_id, sequence_id, _, highest_sequence_id, is_chunk, payload_start = sent
            # Another producer than that of the message before: end its part of the run, and the run
            # too if this one's messages do not go the same way.
            if producer_id != run_of:
                # Counted before the run is appended: a topic without a log confirms within the
                # append, and confirmed bytes must have been counted as published.
                self._count(producer, len(run) - run_start, run_messages, run_bytes)
                following = self._producers.get(producer_id)
                if (
                    following is None
                    or producer is None
                    or following.is_closed
                    or producer.is_closed
                    or following.append_all != producer.append_all
                ):
                    self._append(producer, run)
                    # Looked for after the append, which may have closed producers.
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
            # As they came on the wire, which is what back-pressure is about.
            run_bytes += end - payload_start
            if is_chunk:
                producer.chunks_in += 1
        self._count(producer, len(run) - run_start, run_messages, run_bytes)
        self._append(producer, run)
        return index

    def _count(
        self, producer: Producer | None, entries: int, messages: int, size_bytes: int
    ) -> None:
        """Add to the counters of ``producer``, and to the bytes that are not durable yet."""
        if producer is None or producer.is_closed:
            return
        producer.messages_in += messages
        producer.bytes_in += size_bytes
        producer.entries_taken += entries
        self.session.published(size_bytes)

    def _append(self, producer: Producer | None, run: list[AppendRequest]) -> None:
        """Append ``run`` to the topic of ``producer``, which is that of all its messages."""
        if producer is None or not run or producer.is_closed:
            return
        try:
            self._hand_over(producer, run)
        except BrokerError as error:
            # The topic is closing. The client learns that by CLOSE_PRODUCER, and sends the messages
            # again to the broker that has the topic then. ``disconnect`` of the topic has closed
            # this producer, or is about to: no message of it is taken any more.
            log.info("publish refused", extra={"producer": producer.name, "error": str(error)})

    def _hand_over(self, producer: Producer, run: list[AppendRequest]) -> None:
        """Append ``run``. Where a message in it is not allowed, only that one is refused."""
        try:
            producer.append_all(run)
        except NotAllowed as error:
            # The log took none of it (``ManagedLedger.append_all``), so that no message is stored
            # twice by this.
            if len(run) > 1:
                for each in one_by_one(run):
                    self._hand_over(producer, [each])
                return
            publisher_of(run[0]).fail(run[0], error)

    def _find(self, producer_id: int) -> Producer | None:
        """The producer; None for one that was closed, whose messages will come again.

        Raises ``WireError`` for one that never was, or still waits for exclusive access.
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
        """Take one SEND with fields that the fast decoder leaves alone (transactions, markers)."""
        producer = self._find(command.producer_id)
        # Dropped without an answer: the producer was closed, and its client sends them again.
        if producer is None:
            return
        try:
            payload, messages = take_payload(buffer, payload_start, end)
        except WireError as error:
            self._refuse_payload(command.producer_id, command.sequence_id, error)
            return
        sequence_id, highest = command.sequence_id, command.highest_sequence_id
        item = (payload, messages, producer, sequence_id, highest)
        # Counted even where it is refused below: a refusal counts the bytes off again.
        self._count(producer, 1, messages or 1, len(payload))
        if command.txnid_most_bits or command.txnid_least_bits:
            producer.fail(item, NotAllowed("transactions are not served yet: send without one"))
            return
        self._append(producer, [item])

    def _refuse_payload(self, producer_id: int, sequence_id: int, error: WireError) -> None:
        """Answer SEND_ERROR. The message is not stored: every consumer would fail on it."""
        # Clients may send a damaged message again. Damage on the way ends with another attempt;
        # metadata that cannot be decoded stays so.
        is_changed = isinstance(error, ChecksumMismatch)
        code = api.ChecksumError if is_changed else api.MetadataError
        self.session.send(encode_send_error(producer_id, sequence_id, code, str(error)))

    # Opening

    async def open_producer(self, command: api.CommandProducer) -> None:
        """PRODUCER: open one, or answer again for one that is open.

        A producer with the same id that is another one, or an older attempt of the client, is
        closed first.
        """
        session = self.session
        context = session.context
        name = TopicName.parse(command.topic)
        resource = Resource("topic", str(name))
        await session.authorize(Action.PRODUCE, resource)
        if command.initial_subscription_name:
            await session.authorize(Action.CONSUME, resource)
        # Commands of one producer id run one after the other. So whatever has the id now is
        # complete, or waits for exclusive access.
        present = self._producers.get(command.producer_id)
        if present is not None:
            is_same = present.epoch >= command.epoch and command.producer_name in ("", present.name)
            # A repeated request of the client, unless it has a newer epoch or another name. Clients
            # repeat PRODUCER when they did not see its answer in time.
            if is_same and not present.is_waiting:
                self._answer(command, present)
                return
            self._take_out(present)
            present.disconnect()
        # The order from here on: the topic, the schema, the first subscription, the producer. What
        # was made before a failure stays; a client that tries again finds it.
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
        schemas = TopicSchemas(topic, context.topics.services.schemas)
        producer.schema_version = await schemas.admit_producer(schema)
        if command.initial_subscription_name:
            await topic.subscribing.create(command.initial_subscription_name, from_earliest=True)
        # If the connection is lost during this wait, the task is cancelled, and
        # ``TopicEpoch.admit`` takes the producer out again.
        await topic.publishing.connect(producer)
        # Nothing was awaited since the topic let it in: a producer that the topic knows is known
        # here, too, and closed with the connection.
        self._producers[command.producer_id] = producer
        self._closed.pop(command.producer_id, None)
        self._answer(command, producer)

    def _answer(self, command: api.CommandProducer, producer: Producer) -> None:
        epoch = producer.topic_epoch
        self.session.send(
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
        """Answer PRODUCER a second time: one that waited for exclusive access got it, or never
        will."""
        if self._producers.get(producer.producer_id) is not producer:
            return  # closed meanwhile: its client waits for no answer
        if refusal is None:
            self._answer(command, producer)
            return
        self._take_out(producer)
        self.session.fail(command, refusal)

    # Closing

    async def close_producer(self, command: api.CommandCloseProducer) -> None:
        """CLOSE_PRODUCER; one for an unknown producer succeeds, for the topic may have closed it.

        The answer comes after the receipts of all that the producer sent.
        """
        producer = self._producers.get(command.producer_id)
        if producer is not None:
            # At once: a SEND behind this command would be a mistake of the client.
            self._take_out(producer)
            try:
                # Waits for bookies. The producer keeps its name in the topic until then.
                await producer.drained()
            finally:
                producer.disconnect()
        self.session.send(encode_success(command.request_id))

    def _closed_by_topic(self, name: TopicName, producer: Producer) -> None:
        """Tell the client to look the topic up again: it moves, ends, or has given the producer's
        name to another connection."""
        if self._producers.get(producer.producer_id) is producer:
            self._take_out(producer)
        # Also sent if the client's own CLOSE_PRODUCER has taken it out: that one waits for receipts
        # which do not come any more.
        close = partial(encode_close_producer, producer.producer_id)
        self.session.send_when_moved(name, close)

    def _take_out(self, producer: Producer) -> None:
        """Take nothing more from ``producer``; messages that are on their way are no error."""
        del self._producers[producer.producer_id]
        self._closed[producer.producer_id] = None
        while len(self._closed) > CLOSED_PRODUCERS_MAX:
            del self._closed[next(iter(self._closed))]

    def disconnected(self) -> None:
        """Disconnect all producers."""
        # A copy, as a producer that is disconnected may be taken out.
        for producer in list(self._producers.values()):
            producer.disconnect()
        self._producers.clear()

    handlers: ClassVar[Handlers] = {
        api.BaseCommand.PRODUCER: as_task(open_producer, in_order_of="producer_id"),
        api.BaseCommand.CLOSE_PRODUCER: as_task(close_producer, in_order_of="producer_id"),
    }
