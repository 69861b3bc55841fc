"""The consumers of one connection: SUBSCRIBE, FLOW, ACK, REDELIVER, SEEK, UNSUBSCRIBE, CLOSE, and
what they ask.

FLOW, ACK and REDELIVER are synchronous; what needs storage or ZooKeeper runs as a task, one
consumer's commands in the order in which they came. The synchronous ones, and CLOSE, ride on the
right to consume that was found when the consumer was opened; the others ask for it again.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import ClassVar

from geminga_broker.client_session import host_of
from geminga_broker.errors import ConsumerNotFound, InvalidRequest, NotAllowed
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.sessions.commands.command_group import CommandGroup, Handlers, as_task
from geminga_broker.sessions.commands.schemas import schema_of, topic_schemas
from geminga_broker.sessions.session import Session
from geminga_broker.subscriptions.consumer import PERMITS_MAX, Consumer
from geminga_broker.subscriptions.distribution.key_shared_policy import KeySharedPolicy
from geminga_broker.subscriptions.subscribe_request import ConsumerIdentity, SubscribeRequest
from geminga_broker.topics.consuming.subscription_registry import TopicSubscription
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.ack import Ids
from geminga_protocol.pulsar.answers import (
    encode_ack_response,
    encode_active_consumer_change,
    encode_close_consumer,
    encode_last_message_id,
    encode_reached_end_of_topic,
    encode_success,
    message_id,
)
from geminga_protocol.pulsar.commands import encode_command
from geminga_protocol.pulsar.enums import KeySharedMode, SubscriptionType
from geminga_protocol.pulsar.features import knows_end_of_topic
from geminga_protocol.pulsar.integers import signed
from geminga_protocol.pulsar.message import NO_CONSUMER_EPOCH
from geminga_protocol.pulsar.timestamps import iso_time
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.errors import GemingaError
from geminga_server.authorization import Action, Resource

log = logging.getLogger(__name__)

Connected = tuple[Consumer, TopicSubscription, Resource]
"""A consumer, its subscription, and the topic it was allowed to consume from."""

# Since this protocol version clients know ACTIVE_CONSUMER_CHANGE.
ACTIVE_CHANGE_SINCE = 12
NO_TRANSACTIONS = "transactions are not served yet: acknowledge without one"
ONE_MESSAGE = "a cumulative acknowledgement names exactly one message"


def position_of(name: api.MessageIdData) -> Position:
    """Ledger and entry of a message id."""
    return Position(signed(name.ledgerId), signed(name.entryId))


def key_shared_policy(meta: api.KeySharedMeta) -> KeySharedPolicy:
    """How a client wants the keys of a Key_Shared subscription shared."""
    return KeySharedPolicy(
        KeySharedMode(meta.keySharedMode),
        allows_out_of_order=meta.allowOutOfOrderDelivery,
        ranges=tuple((each.start, each.end) for each in meta.hashRanges),
    )


def subscribe_request(
    command: api.CommandSubscribe, *, host: str, partition: int
) -> SubscribeRequest:
    """What a client on ``host`` asks of the topic that is this ``partition``, or none (-1)."""
    return SubscribeRequest(
        subscription=command.subscription,
        type=SubscriptionType(command.subType),
        is_durable=command.durable,
        starts_at_earliest=command.initialPosition == api.CommandSubscribe.Earliest,
        reads_compacted=command.read_compacted,
        start_position=position_of(command.start_message_id)
        if command.HasField("start_message_id")
        else None,
        key_shared=key_shared_policy(command.keySharedMeta),
        properties={pair.key: pair.value for pair in command.subscription_properties},
        consumer=ConsumerIdentity(host, command.consumer_name, command.consumer_id),
        partition=partition,
        priority=command.priority_level,
        epoch=command.consumer_epoch if command.HasField("consumer_epoch") else NO_CONSUMER_EPOCH,
        metadata={pair.key: pair.value for pair in command.metadata},
        takes_any_schema=command.schema.type == api.Schema.AutoConsume,
    )


class ConsumerCommands(CommandGroup):
    """Consumers by the id the client gave them."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._consumers: dict[int, Connected] = {}

    # SUBSCRIBE

    async def _subscribe(self, command: api.CommandSubscribe) -> None:
        session = self._session
        context = session.context
        name = TopicName.parse(command.topic)
        resource = Resource.topic(str(name))
        await session.authorize(Action.CONSUME, resource)
        if command.consumer_id in self._consumers:
            session.send(encode_success(command.request_id))
            return
        topic = await context.topic(name, create=command.force_topic_creation)
        request = subscribe_request(
            command, host=host_of(session.address), partition=name.partition_index
        )
        consumer = Consumer(session, request, clock=context.clock, listener=self)
        if command.HasField("schema"):
            await topic_schemas(context, topic).admit_consumer(schema_of(command.schema))
        subscription = await topic.subscribe(request)
        self._consumers[command.consumer_id] = (consumer, subscription, resource)
        session.send(encode_success(command.request_id))
        subscription.connected(consumer)

    # What a consumer's client is told

    def active_changed(self, consumer: Consumer, *, is_active: bool) -> None:
        """Tell the clients that know the command."""
        if self._session.protocol_version >= ACTIVE_CHANGE_SINCE:
            self._session.send(
                encode_active_consumer_change(consumer.consumer_id, is_active=is_active)
            )

    def reached_end(self, consumer: Consumer) -> None:
        """Tell the clients that know the command."""
        session = self._session
        if knows_end_of_topic(session.protocol_version, session.client_version):
            session.send(encode_reached_end_of_topic(consumer.consumer_id))

    def closed(self, consumer: Consumer) -> None:
        """The topic lets this consumer go (a seek, an unload): the client subscribes again."""
        close = partial(encode_close_consumer, consumer.consumer_id)
        present = self._consumers.get(consumer.consumer_id)
        if present is None or present[0] is not consumer:
            self._session.send(close())
            return
        del self._consumers[consumer.consumer_id]
        self._session.send_when_moved(TopicName.parse(present[2].name), close)

    # FLOW, ACK, REDELIVER

    def _handle_flow(self, command: api.CommandFlow) -> None:
        connected = self._consumers.get(command.consumer_id)
        if connected is None:
            return  # it may have been closed by the topic just now
        if not 0 < command.messagePermits <= PERMITS_MAX:
            # As upstream: there is no answer to say it in, and who counts so, counts wrong.
            raise WireError(f"a FLOW must give 1 to {PERMITS_MAX} permits")
        consumer, subscription, _ = connected
        subscription.flow(consumer, command.messagePermits)

    def acknowledge(self, consumer_id: int, is_cumulative: bool, ids: Ids) -> None:  # noqa: FBT001 (as parsed)
        """A plain ACK: whole entries, no receipt wanted. The busiest command of a consumer."""
        connected = self._consumers.get(consumer_id)
        if connected is None:
            return  # the client groups acknowledgements and may close the consumer meanwhile
        consumer, subscription, _ = connected
        try:
            if not is_cumulative:
                subscription.acknowledge_entries(consumer, ids)
            elif len(ids) == 1:
                subscription.acknowledge_upto(consumer, Position(*ids[0]), (), None)
            else:
                raise InvalidRequest(ONE_MESSAGE)
        except GemingaError as error:
            log.debug(
                "acknowledgement refused", extra={"consumer": consumer.name, "why": str(error)}
            )

    def _handle_ack(self, command: api.CommandAck) -> None:
        connected = self._consumers.get(command.consumer_id)
        if connected is None:
            # The client groups acknowledgements and may close the consumer meanwhile.
            self._answer_ack(command, ConsumerNotFound("the consumer is not connected"))
            return
        if command.txnid_most_bits or command.txnid_least_bits:
            self._answer_ack(command, NotAllowed(NO_TRANSACTIONS))
            return
        consumer, subscription, _ = connected
        on_durable = None
        if command.HasField("request_id"):
            on_durable = partial(self._answer_ack, command)
        try:
            if command.ack_type == api.CommandAck.Individual:
                entries = [
                    (each.ledgerId, each.entryId, each.ack_set) for each in command.message_id
                ]
                subscription.acknowledge(consumer, entries, on_durable)
            elif len(command.message_id) == 1:
                upto = command.message_id[0]
                subscription.acknowledge_upto(consumer, position_of(upto), upto.ack_set, on_durable)
            else:
                raise InvalidRequest(ONE_MESSAGE)
        except GemingaError as error:
            self._answer_ack(command, error)

    def _answer_ack(self, command: api.CommandAck, error: GemingaError | None) -> None:
        session = self._session
        if error is not None:
            session.fail(command, error)
        elif command.HasField("request_id"):
            session.send(encode_ack_response(command.consumer_id, command.request_id))

    def _handle_redeliver(self, command: api.CommandRedeliverUnacknowledgedMessages) -> None:
        connected = self._consumers.get(command.consumer_id)
        if connected is None:
            return
        consumer, subscription, _ = connected
        if command.HasField("consumer_epoch"):
            consumer.begin_epoch(command.consumer_epoch)
        positions = [position_of(each) for each in command.message_ids]
        subscription.redeliver(consumer, positions or None)

    # SEEK, UNSUBSCRIBE, CLOSE, GET_LAST_MESSAGE_ID

    async def _authorized(self, consumer_id: int) -> tuple[Consumer, TopicSubscription]:
        """The consumer, where its client may still consume: it asks for more than its messages."""
        connected = self._consumers.get(consumer_id)
        if connected is None:
            raise InvalidRequest("Consumer not found")
        consumer, subscription, resource = connected
        await self._session.authorize(Action.CONSUME, resource)
        if self._consumers.get(consumer_id) is not connected:
            raise InvalidRequest("Consumer not found")  # the topic closed it meanwhile
        return consumer, subscription

    async def _seek(self, command: api.CommandSeek) -> None:
        """The order on the wire is CLOSE_CONSUMER, then SUCCESS: the other way round clients
        deliver messages from before the seek."""
        _, subscription = await self._authorized(command.consumer_id)
        if command.HasField("message_id"):
            to = command.message_id
            await subscription.seek(position_of(to), to.ack_set)
        elif command.HasField("message_publish_time"):
            await subscription.seek_time(command.message_publish_time)
        else:
            raise InvalidRequest("Message id and message publish time were not present")
        self._session.send(encode_success(command.request_id))

    async def _unsubscribe(self, command: api.CommandUnsubscribe) -> None:
        consumer, subscription = await self._authorized(command.consumer_id)
        await subscription.unsubscribe(consumer, force=command.force)
        self._consumers.pop(command.consumer_id, None)
        self._session.send(encode_success(command.request_id))

    async def _close(self, command: api.CommandCloseConsumer) -> None:
        connected = self._consumers.pop(command.consumer_id, None)
        if connected is not None:
            consumer, subscription, _ = connected
            await subscription.disconnect(consumer)
        self._session.send(encode_success(command.request_id))

    async def _last_message_id(self, command: api.CommandGetLastMessageId) -> None:
        consumer, subscription = await self._authorized(command.consumer_id)
        last, batch_index = await subscription.last_message(
            reads_compacted=consumer.reads_compacted
        )
        mark = subscription.mark_delete
        partition = consumer.partition
        self._session.send(
            encode_last_message_id(
                command.request_id,
                message_id(*last, partition=partition, batch_index=batch_index),
                message_id(*mark, partition=partition) if mark is not None else None,
            )
        )

    async def _stats(self, command: api.CommandConsumerStats) -> None:
        if command.consumer_id not in self._consumers:
            raise ConsumerNotFound(f"Consumer not found: {command.consumer_id} is not connected")
        consumer, subscription = await self._authorized(command.consumer_id)
        self._session.send(encode_consumer_stats(command.request_id, consumer, subscription))

    # The connection's own events

    def resumed(self) -> None:
        """The socket takes more: consumers here may be sent messages again."""
        for _, subscription, _ in list(self._consumers.values()):
            subscription.entries_available()

    def disconnected(self) -> None:
        """The connection is gone, and with it all its consumers."""
        gone, self._consumers = self._consumers, {}
        for consumer, subscription, _ in gone.values():
            self._session.context.topics.spawn(
                subscription.disconnect(consumer), name=f"disconnect {consumer.name}"
            )

    handlers: ClassVar[Handlers] = {
        api.BaseCommand.SUBSCRIBE: as_task(_subscribe, in_order_of="consumer_id"),
        api.BaseCommand.FLOW: _handle_flow,
        api.BaseCommand.ACK: _handle_ack,
        api.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: _handle_redeliver,
        api.BaseCommand.SEEK: as_task(_seek, in_order_of="consumer_id"),
        api.BaseCommand.UNSUBSCRIBE: as_task(_unsubscribe, in_order_of="consumer_id"),
        api.BaseCommand.CLOSE_CONSUMER: as_task(_close, in_order_of="consumer_id"),
        api.BaseCommand.GET_LAST_MESSAGE_ID: as_task(_last_message_id, in_order_of="consumer_id"),
        api.BaseCommand.CONSUMER_STATS: as_task(_stats, in_order_of="consumer_id"),
    }


def encode_consumer_stats(
    request_id: int, consumer: Consumer, subscription: TopicSubscription
) -> bytes:
    """CONSUMER_STATS_RESPONSE; rates are per second."""
    rate_out, throughput_out, rate_redeliver, ack_rate = consumer.meter.rates
    kind = subscription.type
    stats = api.CommandConsumerStatsResponse(
        request_id=request_id,
        msgRateOut=rate_out,
        msgThroughputOut=throughput_out,
        msgRateRedeliver=rate_redeliver,
        consumerName=consumer.name,
        availablePermits=max(0, consumer.permits),
        unackedMessages=consumer.unacknowledged,
        blockedConsumerOnUnackedMsgs=consumer.is_blocked_on_unacknowledged,
        address=consumer.session.address,
        connectedSince=iso_time(consumer.connected_at_ms),
        type=kind.label if kind is not None else None,
        msgRateExpired=subscription.expiry_rate,
        msgBacklog=subscription.backlog_entries,
        messageAckRate=ack_rate,
    )
    return encode_command(
        api.BaseCommand(type=api.BaseCommand.CONSUMER_STATS_RESPONSE, consumerStatsResponse=stats)
    )
