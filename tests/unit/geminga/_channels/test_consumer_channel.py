"""Proves that entries arrive as they are stored, and that brokers are told of permits,
acknowledgements and positions, also after a connection was lost."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga.fake_broker import LEDGER, FakeBroker, batch_payload, until

from geminga import (
    BrokerFailed,
    Closed,
    ConnectionLost,
    ConsumerBusy,
    RequestTimedOut,
    TopicNotFound,
)
from geminga._channels.consumer_channel import ConsumerChannel, ConsumerChannelOptions
from geminga._channels.pending.acks import ACK_IDS_MAX, AckGroup, Position
from geminga._channels.registry import Channels
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand, CommandMessage, MessageIdData
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topics.topic_names import TopicName

TOPIC = TopicName.parse("orders")


class Receiver:
    """Owns a channel; keeps what comes until the channel says that it comes again."""

    def __init__(
        self,
        channels: Channels,
        options: ConsumerChannelOptions | None = None,
        *,
        is_durable: bool = True,
    ) -> None:
        options = options or ConsumerChannelOptions(receiver_queue_size=10)
        self.channel = ConsumerChannel(channels, TOPIC, "s", options, is_durable=is_durable)
        self.channel.on_entry = self._entry_arrived
        self.channel.on_reset = self._forget
        self.entries: list[tuple[Position, bytes]] = []
        self.resets = 0

    def _entry_arrived(self, command: CommandMessage, buffer: bytes, start: int, end: int) -> None:
        position = command.message_id.ledgerId, command.message_id.entryId
        self.entries.append((position, buffer[start:end]))

    def _forget(self) -> int:
        self.resets += 1
        forgotten = len(self.entries)
        self.entries.clear()
        return forgotten


async def opened(channels: Channels, options: ConsumerChannelOptions | None = None) -> Receiver:
    receiver = Receiver(channels, options)
    await receiver.channel.open()
    return receiver


@pytest.fixture
async def receiver(channels: Channels) -> Receiver:
    return await opened(channels)


@pytest.fixture
def channel(receiver: Receiver) -> ConsumerChannel:
    """The open channel of ``receiver``."""
    return receiver.channel


async def lose_connection(channel: ConsumerChannel, broker: FakeBroker) -> None:
    broker.drop_connections()
    await until(lambda: not channel.is_connected)


# ---- entries and permits


async def test_an_entry_arrives_as_it_is_stored(receiver: Receiver, broker: FakeBroker) -> None:
    batch = batch_payload(b"a", b"b")
    broker.deliver(4, payload=batch)
    await until(lambda: bool(receiver.entries))
    assert receiver.entries == [((LEDGER, 4), batch)]


async def test_permits_come_back_by_half_queues(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    await until(lambda: broker.permits == 10)
    channel.return_permits(4)
    channel.return_permits(-1)
    channel.return_permits(1)
    await asyncio.sleep(1)
    assert broker.permits == 10
    channel.return_permits(3)
    await until(lambda: broker.permits == 17)


async def test_a_broker_that_begins_anew_has_all_permits(
    receiver: Receiver, broker: FakeBroker
) -> None:
    broker.deliver(0)
    await until(lambda: bool(receiver.entries))
    await lose_connection(receiver.channel, broker)
    receiver.channel.return_permits(3)
    await until(lambda: len(broker.of_type(BaseCommand.FLOW)) == 2)
    assert not receiver.entries, "they come again"
    receiver.channel.return_permits(4)
    await asyncio.sleep(1)
    assert broker.permits == 10 + 10


# ---- acknowledgements


async def test_acks_of_one_turn_leave_in_one_command(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    for entry_id in range(4):
        channel.acknowledge((LEDGER, entry_id))
    await until(lambda: broker.acked == [0, 1, 2, 3])
    assert len(broker.of_type(BaseCommand.ACK)) == 1
    channel.acknowledge((LEDGER, 9))
    channel.acknowledge_up_to((LEDGER, 5))
    await until(lambda: len(broker.of_type(BaseCommand.ACK)) == 3)
    cumulative, individual = broker.of_type(BaseCommand.ACK)[1:]
    assert cumulative.ack.ack_type == api.CommandAck.Cumulative
    assert [message_id.entryId for message_id in cumulative.ack.message_id] == [5]
    assert [message_id.entryId for message_id in individual.ack.message_id] == [9]


async def test_acks_leave_in_commands_of_a_bounded_size(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    entry_ids = [*range(2 * ACK_IDS_MAX + 1)]
    await channel.acknowledge_confirmed(acks_of(*entry_ids).take())
    sizes = [len(command.ack.message_id) for command in broker.of_type(BaseCommand.ACK)]
    assert (sizes, broker.acked) == ([ACK_IDS_MAX, ACK_IDS_MAX, 1], entry_ids)


async def test_acks_wait_for_a_broker_and_come_before_its_permits(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    await lose_connection(channel, broker)
    channel.acknowledge((LEDGER, 0))
    await until(lambda: broker.acked == [0])
    kinds = [command.type for command in broker.received]
    assert kinds[-2:] == [BaseCommand.ACK, BaseCommand.FLOW]


def acks_of(*entry_ids: int) -> AckGroup:
    group = AckGroup()
    for entry_id in entry_ids:
        group.acknowledge((LEDGER, entry_id))
    return group


async def test_an_ack_that_was_not_confirmed_is_said_again(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    healthy = broker.answers[BaseCommand.ACK]
    broker.on(BaseCommand.ACK, lambda session, _, __: session.drop())
    with pytest.raises(ConnectionLost):
        await channel.acknowledge_confirmed(acks_of(0).take())
    broker.on(BaseCommand.ACK, healthy)
    await until(lambda: broker.acked == [0, 0])


async def test_an_ack_that_waited_for_a_broker_is_confirmed_too(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    await lose_connection(channel, broker)
    broker.on(BaseCommand.ACK)
    confirming = asyncio.create_task(channel.acknowledge_confirmed(acks_of(0).take()))
    await until(lambda: broker.acked == [0])
    await asyncio.sleep(10)
    assert not confirming.done()
    (ack,) = broker.of_type(BaseCommand.ACK)
    broker.session.write(answers.encode_ack_response(channel.id, ack.ack.request_id))
    await confirming


async def test_everything_is_redelivered_on_demand(receiver: Receiver, broker: FakeBroker) -> None:
    for entry_id in range(5):
        broker.deliver(entry_id)
    await until(lambda: len(receiver.entries) == 5)
    receiver.channel.redeliver_all()
    assert not receiver.entries
    await until(lambda: bool(broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)))
    (redeliver,) = broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    assert not redeliver.redeliverUnacknowledgedMessages.message_ids
    assert broker.permits == 10 + 5


async def test_without_a_broker_coming_back_redelivers_everything(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    await lose_connection(channel, broker)
    channel.redeliver_all()
    channel.redeliver([(LEDGER, 0)])
    await until(lambda: channel.is_connected)
    await asyncio.sleep(1)
    assert not broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)


# ---- the subscription


async def test_a_seek_drops_what_came_before_it_and_its_acknowledgements(
    receiver: Receiver, broker: FakeBroker
) -> None:
    channel = receiver.channel
    broker.deliver(8)
    await until(lambda: bool(receiver.entries))
    # The broker closes the consumer, accepts it again, and answers to the seek last of all.
    broker.on(
        BaseCommand.SEEK,
        lambda session, command, _: session.write(
            answers.encode_close_consumer(command.seek.consumer_id)
        ),
    )
    seeking = asyncio.create_task(channel.seek(MessageIdData(ledgerId=LEDGER, entryId=2)))
    await until(lambda: not channel.is_connected)
    assert channel.is_seeking
    channel.acknowledge((LEDGER, 8))
    await until(lambda: channel.is_connected and not channel.is_seeking)
    assert not receiver.entries
    broker.deliver(2)
    await until(lambda: bool(receiver.entries))
    (asked,) = broker.of_type(BaseCommand.SEEK)
    assert asked.seek.message_id.entryId == 2
    broker.session.write(answers.encode_success(asked.seek.request_id))
    await seeking
    assert [position for position, _ in receiver.entries] == [(LEDGER, 2)], "it is new"
    assert broker.acked == []


async def test_a_broker_that_goes_on_after_a_seek_gets_the_permits_back(
    receiver: Receiver, broker: FakeBroker
) -> None:
    for entry_id in range(6):
        broker.deliver(entry_id)
    await until(lambda: len(receiver.entries) == 6)
    broker.on(
        BaseCommand.SEEK,
        lambda session, command, _: session.write(answers.encode_success(command.seek.request_id)),
    )
    await receiver.channel.seek(1_700_000_000_000)
    (asked,) = broker.of_type(BaseCommand.SEEK)
    assert asked.seek.message_publish_time == 1_700_000_000_000
    assert not receiver.entries
    await until(lambda: broker.permits == 10 + 6)


async def test_a_seek_that_failed_changes_nothing(receiver: Receiver, broker: FakeBroker) -> None:
    broker.deliver(0)
    await until(lambda: bool(receiver.entries))
    resets = receiver.resets
    broker.on(
        BaseCommand.SEEK,
        lambda session, command, _: session.write(
            answers.encode_error(command.seek.request_id, api.MetadataError, "ill")
        ),
    )
    with pytest.raises(BrokerFailed):
        await receiver.channel.seek(MessageIdData(ledgerId=0, entryId=0))
    assert not receiver.channel.is_seeking
    assert receiver.resets == resets


async def test_a_subscription_that_is_not_durable_begins_where_its_owner_says(
    channels: Channels, broker: FakeBroker
) -> None:
    receiver = Receiver(channels, is_durable=False)
    starts = [MessageIdData(ledgerId=LEDGER, entryId=entry_id) for entry_id in (4, 7)]
    receiver.channel.start = lambda: starts.pop(0)
    await receiver.channel.open()
    broker.drop_connections()
    await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
    asked = [command.subscribe for command in broker.of_type(BaseCommand.SUBSCRIBE)]
    assert [each.durable for each in asked] == [False, False]
    assert [each.start_message_id.entryId for each in asked] == [4, 7]


async def test_a_durable_subscription_begins_where_the_broker_knows(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    assert channel.is_connected
    (asked,) = broker.of_type(BaseCommand.SUBSCRIBE)
    assert asked.subscribe.durable
    assert not asked.subscribe.HasField("start_message_id")


async def test_a_request_waits_for_the_channel_to_be_attached(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    await lose_connection(channel, broker)
    assert (await channel.last_message_id()).last_message_id.entryId == 41


async def test_a_request_without_any_broker_times_out(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    broker.kill()
    await until(lambda: not channel.is_connected)
    with pytest.raises(RequestTimedOut):
        await channel.last_message_id()


async def test_a_request_that_waits_for_a_broker_hears_of_the_closing(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    broker.kill()
    await until(lambda: not channel.is_connected)
    asking = asyncio.create_task(channel.last_message_id())
    await asyncio.sleep(1)
    await channel.close()
    with pytest.raises(Closed):
        await asking


async def test_unsubscribing_is_the_end(channel: ConsumerChannel, broker: FakeBroker) -> None:
    await channel.unsubscribe()
    assert isinstance(channel.error, Closed)
    await asyncio.sleep(60)
    assert len(broker.of_type(BaseCommand.SUBSCRIBE)) == 1
    assert not broker.of_type(BaseCommand.CLOSE_CONSUMER)


async def test_a_failover_consumer_is_told_when_its_turn_comes(
    channels: Channels, broker: FakeBroker
) -> None:
    options = ConsumerChannelOptions(type=SubscriptionType.FAILOVER)
    channel = (await opened(channels, options)).channel
    assert not channel.is_active
    assert channel.activations == 0
    broker.session.write(answers.encode_active_consumer_change(channel.id, is_active=True))
    await until(lambda: channel.is_active)
    assert channel.activations == 1


async def test_a_failover_consumer_that_was_active_on_a_connection_before_counts_its_turns(
    channels: Channels, broker: FakeBroker
) -> None:
    """Another consumer was active in between, perhaps."""
    options = ConsumerChannelOptions(type=SubscriptionType.FAILOVER)
    channel = (await opened(channels, options)).channel
    for _ in range(2):
        broker.session.write(answers.encode_active_consumer_change(channel.id, is_active=True))
    await until(lambda: channel.activations == 2)


async def test_the_end_of_a_topic_is_told(channel: ConsumerChannel, broker: FakeBroker) -> None:
    assert channel.is_active
    broker.session.write(answers.encode_reached_end_of_topic(channel.id))
    await until(lambda: channel.has_reached_end)


# ---- coming, leaving, ends


async def test_channels_without_a_name_get_different_ones(channels: Channels) -> None:
    names = {(await opened(channels)).channel.name for _ in range(3)}
    assert len(names) == 3


async def test_a_closing_broker_gets_its_consumer_back(
    receiver: Receiver, broker: FakeBroker
) -> None:
    broker.session.write(answers.encode_close_consumer(receiver.channel.id))
    await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
    broker.deliver(0)
    await until(lambda: bool(receiver.entries))
    assert len(broker.sessions) == 1


async def test_a_consumer_that_cannot_be_is_refused_at_once(
    channels: Channels, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.SUBSCRIBE,
        lambda session, command, _: session.write(
            answers.encode_error(command.subscribe.request_id, api.ConsumerBusy, "taken")
        ),
    )
    with pytest.raises(ConsumerBusy):
        await opened(channels)


async def test_a_first_attempt_ends_with_the_operations_time(
    channels: Channels, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.SUBSCRIBE,
        lambda session, command, _: session.write(
            answers.encode_error(command.subscribe.request_id, api.MetadataError, "ill")
        ),
    )
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(BrokerFailed):
        await opened(channels)
    assert 30 <= asyncio.get_running_loop().time() - started_s <= 40


async def test_closing_sends_the_last_acks_and_leaves(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    channel.acknowledge((LEDGER, 0))
    await channel.close()
    assert [command.type for command in broker.received][-2:] == [
        BaseCommand.ACK,
        BaseCommand.CLOSE_CONSUMER,
    ]
    await channel.close()
    assert len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 1


async def test_a_topic_that_is_gone_ends_its_channel(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.SUBSCRIBE,
        lambda session, command, _: session.write(
            answers.encode_error(command.subscribe.request_id, api.TopicNotFound, "deleted")
        ),
    )
    broker.session.write(answers.encode_close_consumer(channel.id))
    await until(lambda: channel.error is not None)
    assert isinstance(channel.error, TopicNotFound)
