"""The consumers of one connection: SUBSCRIBE, FLOW, ACK, REDELIVER, SEEK, UNSUBSCRIBE, CLOSE, and
their requests for the last message id and for stats.

FLOW, ACK and REDELIVER are synchronous; what needs storage or ZooKeeper runs as a task, one
consumer's commands in the order in which they came. The synchronous ones, and CLOSE, rely on the
right to consume that was checked when the consumer subscribed; the others check it again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from geminga_broker.client_session import host_of
from geminga_broker.errors import ConsumerNotFound, InvalidRequest, NotAllowed
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.sessions.commands.command_group import CommandGroup, Handlers, as_task
from geminga_broker.sessions.commands.schemas import schema_of
from geminga_broker.subscriptions.consumer import PERMITS_MAX, Consumer, ConsumerEvent
from geminga_broker.subscriptions.decisions.key_shared_policy import KeySharedPolicy
from geminga_broker.subscriptions.subscribe_request import ConsumerIdentity, SubscribeRequest
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.subscriptions.subscription_registry import TopicSubscription
from geminga_broker.topics.topic_schemas import TopicSchemas
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
from geminga_protocol.pulsar.message import NO_CONSUMER_EPOCH
from geminga_protocol.pulsar.messages.integers import signed
from geminga_protocol.pulsar.messages.timestamps import iso_time
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.errors import GemingaError
from geminga_server.authorization import Action, Resource

log = logging.getLogger(__name__)

# What every command of a consumer needs: the consumer, its subscription, which stays the same for
# its whole life, and the topic that the client was allowed to consume from.
Connected = tuple[Consumer, TopicSubscription, Resource]

# The protocol version since which clients know ACTIVE_CONSUMER_CHANGE. Upstream's
# ``Commands.peerSupportsActiveConsumerListener``.
ACTIVE_CHANGE_SINCE = 12
NO_TRANSACTIONS = "transactions are not served yet: acknowledge without one"
# Everything up to one message is acknowledged; several make no sense.
ONE_MESSAGE = "a cumulative acknowledgement names exactly one message"


# Unsigned on the wire, signed in Java: -1:-1 and the largest numbers are EARLIEST and LATEST.
def position_of(name: api.MessageIdData) -> Position:
    """Ledger and entry of a message id."""
    return Position(signed(name.ledgerId), signed(name.entryId))


def subscribe_request(
    command: api.CommandSubscribe, *, host: str, partition: int
) -> SubscribeRequest:
    """What a SUBSCRIBE of a client on ``host`` asks of a topic; ``partition`` is the topic's
    number, or -1 for one that is not a partition."""
    sharing = command.keySharedMeta
    return SubscribeRequest(
        subscription=command.subscription,
        type=SubscriptionType(command.subType),
        is_durable=command.durable,
        starts_at_earliest=command.initialPosition == api.CommandSubscribe.Earliest,
        reads_compacted=command.read_compacted,
        start_position=position_of(command.start_message_id)
        if command.HasField("start_message_id")
        else None,
        key_shared=KeySharedPolicy(
            KeySharedMode(sharing.keySharedMode),
            allows_out_of_order=sharing.allowOutOfOrderDelivery,
            ranges=tuple((each.start, each.end) for each in sharing.hashRanges),
        ),
        properties={pair.key: pair.value for pair in command.subscription_properties},
        consumer=ConsumerIdentity(host, command.consumer_name, command.consumer_id),
        partition=partition,
        priority=command.priority_level,
        epoch=command.consumer_epoch if command.HasField("consumer_epoch") else NO_CONSUMER_EPOCH,
        metadata={pair.key: pair.value for pair in command.metadata},
        takes_any_schema=command.schema.type == api.Schema.AutoConsume,
    )


@dataclass(slots=True, eq=False)
class ConsumerCommands(CommandGroup):
    """Serves the consumers of one connection."""

    # By the id that the client gave them.
    _consumers: dict[int, Connected] = field(default_factory=dict, init=False)

    # SUBSCRIBE

    async def subscribe(self, command: api.CommandSubscribe) -> None:
        """SUBSCRIBE; one for a consumer that is connected already succeeds."""
        session = self.session
        context = session.context
        name = TopicName.parse(command.topic)
        resource = Resource("topic", str(name))
        await session.authorize(Action.CONSUME, resource)
        # A client repeats SUBSCRIBE when it did not see its answer in time. One consumer's commands
        # run one after the other, so the first is over by now.
        if command.consumer_id in self._consumers:
            session.send(encode_success(command.request_id))
            return
        # The order from here on: the topic, the schema, the subscription. All may take requests;
        # the consumer is known nowhere yet.
        topic = await context.topic(name, create=command.force_topic_creation)
        request = subscribe_request(
            command, host=host_of(session.address), partition=name.partition_index
        )
        consumer = Consumer(session, request, clock=context.clock, tell=self.tell)
        if command.HasField("schema"):
            # Before the subscription knows the consumer: one with an incompatible schema gets no
            # message.
            schemas = TopicSchemas(topic, context.topics.services.schemas)
            await schemas.admit_consumer(schema_of(command.schema))
        subscription = await topic.subscribing.subscribe(request)
        # Nothing is awaited from here on: FLOW and ACK find the consumer as soon as the client has
        # the answer, and it gets no message before that.
        self._consumers[command.consumer_id] = (consumer, subscription, resource)
        # Queued before the first message can be: ``connected`` may dispatch at once.
        session.send(encode_success(command.request_id))
        subscription.connected(consumer)

    def tell(self, consumer: Consumer, event: ConsumerEvent) -> None:
        """Tell the client what happened to its consumer, if it knows the command."""
        session, consumer_id = self.session, consumer.consumer_id
        match event:
            case ConsumerEvent.ACTIVE | ConsumerEvent.INACTIVE:
                if session.protocol_version >= ACTIVE_CHANGE_SINCE:
                    is_active = event is ConsumerEvent.ACTIVE
                    session.send(encode_active_consumer_change(consumer_id, is_active=is_active))
            case ConsumerEvent.REACHED_END:
                if knows_end_of_topic(session.protocol_version, session.client_version):
                    session.send(encode_reached_end_of_topic(consumer_id))
            case ConsumerEvent.CLOSED:
                close = partial(encode_close_consumer, consumer_id)
                present = self._consumers.get(consumer_id)
                # Its id may stand for another consumer by now. Or the client has closed it itself,
                # and waits for the answer.
                if present is None or present[0] is not consumer:
                    session.send(close())
                    return
                del self._consumers[consumer_id]
                session.send_when_moved(TopicName.parse(present[2].name), close)

    # FLOW, ACK, REDELIVER

    def flow(self, command: api.CommandFlow) -> None:
        """FLOW: the client can take so many messages more."""
        connected = self._consumers.get(command.consumer_id)
        if connected is None:
            return  # it may have been closed by the topic just now
        # The bound keeps the sum of permits a number that stats can show.
        if not 0 < command.messagePermits <= PERMITS_MAX:
            # As upstream: FLOW has no answer that could say so, and a client that sends this has
            # miscounted its permits.
            raise WireError(f"a FLOW must give 1 to {PERMITS_MAX} permits")
        consumer, subscription, _ = connected
        subscription.flow(consumer, command.messagePermits)

    def acknowledge(self, consumer_id: int, is_cumulative: bool, ids: Ids) -> None:  # noqa: FBT001 (as parsed)
        """A plain ACK: whole entries, without a receipt. HOT: the busiest command of a consumer."""
        connected = self._consumers.get(consumer_id)
        if connected is None:
            return  # the client groups acknowledgements and may close the consumer meanwhile
        # Without a look at the rights: this is called for each acknowledgement that comes alone.
        consumer, subscription, _ = connected
        try:
            if not is_cumulative:
                subscription.acknowledger.entries(consumer, ids)
            elif len(ids) == 1:
                subscription.acknowledger.upto(consumer, Position(*ids[0]), (), None)
            else:
                raise InvalidRequest(ONE_MESSAGE)
        except GemingaError as error:
            # A plain ACK has no answer in which the client could learn this.
            log.debug(
                "acknowledgement refused", extra={"consumer": consumer.name, "why": str(error)}
            )

    def ack(self, command: api.CommandAck) -> None:
        """Any other ACK: of messages within batches, or with a receipt, which is sent once the
        acknowledgement is stored."""
        connected = self._consumers.get(command.consumer_id)
        if connected is None:
            # The client groups acknowledgements and may close the consumer meanwhile.
            self._answer_ack(command, ConsumerNotFound("the consumer is not connected"))
            return
        # Acknowledging now what a transaction acknowledges later would lose it where that is
        # aborted.
        if command.txnid_most_bits or command.txnid_least_bits:
            self._answer_ack(command, NotAllowed(NO_TRANSACTIONS))
            return
        consumer, subscription, _ = connected
        # Without a request id the client waits for no receipt.
        on_durable = None
        if command.HasField("request_id"):
            # Called when the cursor's write is durable, which may be after the consumer has gone:
            # the answer then goes to a connection that drops it.
            on_durable = partial(self._answer_ack, command)
        try:
            if command.ack_type == api.CommandAck.Individual:
                entries = [
                    (each.ledgerId, each.entryId, each.ack_set) for each in command.message_id
                ]
                subscription.acknowledger.single(consumer, entries, on_durable)
            elif len(command.message_id) == 1:
                upto, ack_set = position_of(command.message_id[0]), command.message_id[0].ack_set
                subscription.acknowledger.upto(consumer, upto, ack_set, on_durable)
            else:
                raise InvalidRequest(ONE_MESSAGE)
        except GemingaError as error:
            self._answer_ack(command, error)

    def _answer_ack(self, command: api.CommandAck, error: GemingaError | None) -> None:
        session = self.session
        if error is not None:
            session.fail(command, error)
        elif command.HasField("request_id"):
            session.send(encode_ack_response(command.consumer_id, command.request_id))

    def redeliver(self, command: api.CommandRedeliverUnacknowledgedMessages) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES: those that are named, or all."""
        connected = self._consumers.get(command.consumer_id)
        if connected is None:
            return
        consumer, subscription, _ = connected
        if command.HasField("consumer_epoch"):
            # Messages that are on their way have the epoch before, and the client drops them.
            # First: what is sent again below carries the new epoch already.
            consumer.begin_epoch(command.consumer_epoch)
        positions = [position_of(each) for each in command.message_ids]
        # Without positions all that it holds, as for a client that lost its receiver queue.
        subscription.redeliver(consumer, positions or None)

    # SEEK, UNSUBSCRIBE, CLOSE, GET_LAST_MESSAGE_ID

    async def _authorized(self, consumer_id: int) -> tuple[Consumer, TopicSubscription]:
        """The consumer, after the right to consume was checked again. Raises ``InvalidRequest`` for
        a consumer that is not connected."""
        connected = self._consumers.get(consumer_id)
        if connected is None:
            raise InvalidRequest("Consumer not found")
        consumer, subscription, resource = connected
        await self.session.authorize(Action.CONSUME, resource)
        # The check of the rights may have asked ZooKeeper. By identity: its id may be another's
        # now.
        if self._consumers.get(consumer_id) is not connected:
            raise InvalidRequest("Consumer not found")  # the topic closed it meanwhile
        return consumer, subscription

    async def seek(self, command: api.CommandSeek) -> None:
        """SEEK: to a message id or a publish time.

        The order on the wire is CLOSE_CONSUMER (by the topic, while it seeks), then SUCCESS: the
        other way round clients deliver messages from before the seek.
        """
        _, subscription = await self._authorized(command.consumer_id)
        if not isinstance(subscription, Subscription):
            raise NotAllowed("a non-persistent topic keeps no messages to seek to")
        if command.HasField("message_id"):
            to = command.message_id
            # Disconnects all consumers of the subscription, this one too: they subscribe again
            # behind the answer.
            await subscription.seek(position_of(to), to.ack_set)
        elif command.HasField("message_publish_time"):
            await subscription.seek_time(command.message_publish_time)
        else:
            raise InvalidRequest("Message id and message publish time were not present")
        self.session.send(encode_success(command.request_id))

    async def unsubscribe(self, command: api.CommandUnsubscribe) -> None:
        """UNSUBSCRIBE: delete the subscription."""
        consumer, subscription = await self._authorized(command.consumer_id)
        await subscription.unsubscribe(consumer, force=command.force)
        # No CLOSE_CONSUMER for it: the answer says that it is gone.
        self._consumers.pop(command.consumer_id, None)
        self.session.send(encode_success(command.request_id))

    async def close_consumer(self, command: api.CommandCloseConsumer) -> None:
        """CLOSE_CONSUMER; succeeds for an unknown consumer, too: the topic may have closed it."""
        # Taken out first: ACKs and FLOWs that come behind find no consumer, and are dropped.
        connected = self._consumers.pop(command.consumer_id, None)
        if connected is not None:
            consumer, subscription, _ = connected
            await subscription.disconnect(consumer)
        self.session.send(encode_success(command.request_id))

    async def last_message_id(self, command: api.CommandGetLastMessageId) -> None:
        """GET_LAST_MESSAGE_ID: of the topic, with the position up to which all is acknowledged."""
        consumer, subscription = await self._authorized(command.consumer_id)
        if not isinstance(subscription, Subscription):
            raise NotAllowed("a non-persistent topic keeps no last message")
        last, batch_index = await subscription.last_message(
            reads_compacted=consumer.reads_compacted
        )
        mark, partition = subscription.cursor.mark_delete, consumer.partition
        self.session.send(
            encode_last_message_id(
                command.request_id,
                message_id(*last, partition=partition, batch_index=batch_index),
                message_id(*mark, partition=partition),
            )
        )

    async def stats(self, command: api.CommandConsumerStats) -> None:
        """CONSUMER_STATS; rates are per second."""
        if command.consumer_id not in self._consumers:
            raise ConsumerNotFound(f"Consumer not found: {command.consumer_id} is not connected")
        consumer, subscription = await self._authorized(command.consumer_id)
        rate_out, throughput_out, rate_redeliver, ack_rate = consumer.meter.rates
        kind = subscription.type
        # Without a cursor nothing waits or expires.
        backlog, expiry_rate = 0, 0.0
        if isinstance(subscription, Subscription):
            backlog = subscription.cursor.backlog_entries
            expiry_rate = subscription.figures().expiry_rate
        stats = api.CommandConsumerStatsResponse(
            request_id=command.request_id,
            msgRateOut=rate_out,
            msgThroughputOut=throughput_out,
            msgRateRedeliver=rate_redeliver,
            consumerName=consumer.name,
            availablePermits=max(0, consumer.permits),
            unackedMessages=consumer.unacknowledged,
            blockedConsumerOnUnackedMsgs=consumer.is_blocked_on_unacknowledged,
            address=self.session.address,
            connectedSince=iso_time(consumer.connected_at_ms),
            type=kind.label if kind is not None else None,
            msgRateExpired=expiry_rate,
            msgBacklog=backlog,
            messageAckRate=ack_rate,
        )
        answer = api.BaseCommand(
            type=api.BaseCommand.CONSUMER_STATS_RESPONSE, consumerStatsResponse=stats
        )
        self.session.send(encode_command(answer))

    # The connection's own events

    def resumed(self) -> None:
        """Have the consumers of this connection sent messages again: the client caught up."""
        # A copy: dispatching may close consumers.
        for _, subscription, _ in list(self._consumers.values()):
            subscription.entries_available()

    def disconnected(self) -> None:
        """Disconnect all consumers.

        That may have to wait for storage, and this session's own tasks are about to be cancelled:
        so the topics' service runs it.
        """
        # The topic may close consumers while others are disconnected: it finds none of them here.
        # Not ``session.start``, whose tasks end with the session.
        gone, self._consumers = self._consumers, {}
        for consumer, subscription, _ in gone.values():
            self.session.context.topics.spawn(
                subscription.disconnect(consumer), name=f"disconnect {consumer.name}"
            )

    handlers: ClassVar[Handlers] = {
        api.BaseCommand.SUBSCRIBE: as_task(subscribe, in_order_of="consumer_id"),
        api.BaseCommand.FLOW: flow,
        api.BaseCommand.ACK: ack,
        api.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: redeliver,
        api.BaseCommand.SEEK: as_task(seek, in_order_of="consumer_id"),
        api.BaseCommand.UNSUBSCRIBE: as_task(unsubscribe, in_order_of="consumer_id"),
        api.BaseCommand.CLOSE_CONSUMER: as_task(close_consumer, in_order_of="consumer_id"),
        api.BaseCommand.GET_LAST_MESSAGE_ID: as_task(last_message_id, in_order_of="consumer_id"),
        api.BaseCommand.CONSUMER_STATS: as_task(stats, in_order_of="consumer_id"),
    }
