"""Proves that producers get the receipts of what was stored, once each and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers
from tests.unit.geminga_broker.sessions.stand_ins import THERE, FrameClient, send_frame, sends

from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.sessions.commands import producers
from geminga_broker.topics.directory import TopicDirectory
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.integers import UINT64_MAX
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.topics.topic_names import TopicName

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]
# Longer than a broker lets any command take, shorter than it waits for a sign of life.
OPERATION_S = 28.0


async def test_receipts_come_in_the_order_of_sending(connect: Connect, settle: Settle) -> None:
    client = connect()
    client.open_producer()
    await settle()
    client.publish(b"a", b"b", b"c")
    await settle()
    receipts = client.all_of("send_receipt")
    assert [each.sequence_id for each in receipts] == [0, 1, 2]
    assert [each.message_id.entryId for each in receipts] == [0, 1, 2]


async def test_a_message_for_a_producer_that_never_was_closes_the_connection(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.publish(b"a")
    await settle()
    assert client.transport.is_closing()


async def test_a_damaged_message_is_refused_and_the_others_stored(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.open_producer()
    await settle()
    first, second = sends(b"a", b"b")
    client.connection.data_received(first[:-1] + b"x" + second)
    await settle()
    (refused,) = client.all_of("send_error")
    assert (refused.sequence_id, refused.error) == (0, api.ChecksumError)
    (receipt,) = client.all_of("send_receipt")
    assert receipt.sequence_id == 1


async def test_closing_a_producer_waits_for_its_receipts(
    connect: Connect, settle: Settle, ledgers: MemoryLedgers
) -> None:
    client = connect()
    client.open_producer()
    await settle()
    ledgers.is_prompt = False
    client.publish(b"a", b"b")
    client.ask("close_producer", producer_id=1)
    await settle()
    assert client.heard == ["producer_success"]
    ledgers.writers[0].confirm()
    await settle()
    assert client.heard == ["producer_success", "send_receipt", "send_receipt", "success"]


async def test_a_producer_whose_topic_goes_while_it_closes_is_answered(
    connect: Connect, settle: Settle, ledgers: MemoryLedgers, topics: TopicDirectory
) -> None:
    client = connect()
    client.open_producer()
    await settle()
    ledgers.is_prompt = False
    client.publish(b"a")
    client.ask("close_producer", producer_id=1)
    await settle()
    next(iter(topics.loaded.values())).disconnect_all()
    await settle()
    assert client.heard[-1] == "success"
    ledgers.writers[0].confirm()


async def test_messages_that_are_too_large_are_refused_and_the_others_stored(
    connect: Connect, settle: Settle, ledgers: MemoryLedgers
) -> None:
    client = connect()
    client.open_producer()
    await settle()
    ledgers.entry_bytes_max = 1000
    client.publish(b"a", bytes(2000), b"c")
    client.ask("close_producer", producer_id=1)
    await settle()
    (refused,) = client.all_of("send_error")
    assert (refused.sequence_id, refused.error) == (1, api.NotAllowedError)
    assert "1000" in refused.message
    assert [each.sequence_id for each in client.all_of("send_receipt")] == [0, 2]
    assert client.heard[-1] == "success"
    assert client.session.context.publish_buffer.pending_bytes == 0


async def test_a_refusal_waits_for_the_receipts_of_what_was_sent_before(
    connect: Connect, settle: Settle, ledgers: MemoryLedgers
) -> None:
    """Clients take any other order for a loss, and send all again."""
    client = connect()
    client.open_producer()
    await settle()
    client.publish(b"first")
    await settle()
    ledgers.entry_bytes_max = 1000
    ledgers.is_prompt = False
    client.publish(b"a", bytes(2000), b"c", bytes(2000), bytes(2000), b"d")
    await settle()
    assert client.heard == ["producer_success", "send_receipt"]
    ledgers.writers[0].confirm()
    await settle()
    answers = ["send_receipt", *["send_receipt", "send_error"] * 2, "send_error", "send_receipt"]
    assert client.heard[1:] == answers
    assert [each.sequence_id for each in client.all_of("send_error")] == [1, 3, 4]
    assert client.session.context.publish_buffer.pending_bytes == 0


def interleaved(*parts: list[bytes]) -> bytes:
    """SENDs of several producers, one of each in turn."""
    return b"".join(b"".join(each) for each in zip(*parts, strict=True))


async def test_producers_that_send_in_turn_each_get_their_receipts_in_order(
    connect: Connect, settle: Settle, topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    client = connect()
    for producer_id in (1, 2, 3):
        client.open_producer(producer_id)
    await settle()
    client.publish(b"first")  # its ledger is opened
    await settle()
    appended: list[int] = []
    writer = ledgers.writers[0]
    append_all = writer.append_all

    def noting(payloads: Sequence[bytes]) -> None:
        appended.append(len(payloads))
        append_all(payloads)

    writer.append_all = noting  # type: ignore[method-assign]
    bodies = [bytes([number]) for number in range(4)]
    parts = [sends(*bodies, producer_id=each) for each in (1, 2, 3)]
    client.connection.data_received(interleaved(*parts))
    await settle()
    assert appended == [12], "they go to the log together"
    receipts = client.all_of("send_receipt")[1:]
    for producer_id in (1, 2, 3):
        own = [each for each in receipts if each.producer_id == producer_id]
        assert [each.sequence_id for each in own] == [0, 1, 2, 3]
        assert [each.message_id.entryId for each in own] == list(range(producer_id, 13, 3))
    counts = sorted(
        (each.messages_in, each.entries_taken, each.bytes_in - each.bytes_confirmed)
        for each in next(iter(topics.loaded.values())).publishing.producers.by_name.values()
    )
    assert counts == [(4, 4, 0), (4, 4, 0), (5, 5, 0)]
    assert client.session.context.publish_buffer.pending_bytes == 0


async def test_of_producers_that_send_in_turn_each_is_told_of_its_own_refusals(
    connect: Connect, settle: Settle, ledgers: MemoryLedgers
) -> None:
    client = connect()
    for producer_id in (1, 2):
        client.open_producer(producer_id)
    await settle()
    client.publish(b"first")
    await settle()
    ledgers.entry_bytes_max = 1000
    small, large = sends(b"a", b"b", producer_id=1), sends(bytes(2000), b"c", producer_id=2)
    client.connection.data_received(interleaved(small, large))
    await settle()
    (refused,) = client.all_of("send_error")
    assert (refused.producer_id, refused.sequence_id) == (2, 0)
    receipts = [(each.producer_id, each.sequence_id) for each in client.all_of("send_receipt")[1:]]
    assert sorted(receipts) == [(1, 0), (1, 1), (2, 1)]
    assert client.session.context.publish_buffer.pending_bytes == 0


async def test_what_comes_before_a_message_of_a_producer_that_never_was_is_stored(
    connect: Connect, settle: Settle, ledgers: MemoryLedgers
) -> None:
    client = connect()
    for producer_id in (1, 2):
        client.open_producer(producer_id)
    await settle()
    parts = [sends(b"a", producer_id=each) for each in (1, 2, 99)]
    client.connection.data_received(interleaved(*parts))
    await settle()
    assert client.transport.is_closing()
    assert len(ledgers.entries[0]) == 2


async def test_closing_a_producer_that_is_not_there_succeeds(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.ask("close_producer", producer_id=9)
    await settle()
    assert client.heard == ["success"]


async def test_asking_for_the_same_producer_again_gives_the_same(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    client = connect()
    client.open_producer()
    await settle()
    client.open_producer()
    await settle()
    first, second = client.all_of("producer_success")
    assert first.producer_name == second.producer_name
    assert len(next(iter(topics.loaded.values())).publishing.producers.by_name) == 1


async def test_another_producer_under_the_same_id_takes_its_place(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    client = connect()
    client.open_producer(producer_name="a")
    client.open_producer(producer_name="b")
    await settle()
    (topic,) = topics.loaded.values()
    assert [each.name for each in topic.publishing.producers.by_name.values()] == ["b"]
    client.lose()
    assert not len(topic.publishing.producers.by_name)


async def test_messages_after_the_topic_let_the_producer_go_are_dropped(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    client = connect()
    client.open_producer()
    await settle()
    await topics.unload(TopicName.parse("t/n/topic"))
    client.publish(b"a")
    await settle()
    assert client.heard == ["producer_success", "close_producer"]
    assert not client.transport.is_closing()


async def test_clients_of_a_topic_that_is_handed_on_are_told_when_its_next_broker_is_known(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    client = connect()
    client.open_producer()
    client.subscribe()
    await settle()
    next_owner: asyncio.Future[Owner | None] = asyncio.get_running_loop().create_future()
    await topics.unload_where(lambda _: True, next_owner)
    await settle()
    assert not {"close_producer", "close_consumer"} & set(client.heard)
    next_owner.set_result(THERE)
    await settle()
    for command in ("close_producer", "close_consumer"):
        (close,) = client.all_of(command)
        assert close.assignedBrokerServiceUrl == THERE.broker_url
        assert not close.HasField("assignedBrokerServiceUrlTls")


async def test_only_so_many_closed_producers_are_remembered(
    connect: Connect, settle: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "CLOSED_PRODUCERS_MAX", 2)
    client = connect()
    for producer_id in (1, 2, 3):
        client.open_producer(producer_id)
        client.ask("close_producer", producer_id=producer_id)
    await settle()
    client.publish(b"late", producer_id=2)
    assert not client.transport.is_closing()
    client.publish(b"too late", producer_id=1)
    assert client.transport.is_closing()


async def test_an_initial_subscription_has_all_that_the_topic_holds(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    client = connect()
    client.open_producer(1)
    await settle()
    client.publish(b"before")
    client.open_producer(2, initial_subscription_name="sub")
    await settle()
    topic = await topics.get(TopicName.parse("t/n/topic"), create=False)
    assert list(topic.subscribing.subscriptions) == ["sub"]
    client.subscribe(subscription="sub")
    await settle()
    client.say("flow", consumer_id=1, messagePermits=9)
    client.publish(b"after", producer_id=2)
    await settle()
    assert len(client.all_of("message")) == 2


def readiness(client: FrameClient) -> list[tuple[int, bool]]:
    return [(each.request_id, each.producer_ready) for each in client.all_of("producer_success")]


async def test_a_producer_that_waits_is_told_so_and_again_when_it_is_let_in(
    connect: Connect, settle: Settle
) -> None:
    first, second = connect(), connect()
    first.open_producer()
    await settle()
    request_id = second.open_producer(producer_access_mode=api.WaitForExclusive)
    await asyncio.sleep(OPERATION_S)
    assert readiness(second) == [(request_id, False)]
    assert "error" not in second.heard
    first.ask("close_producer", producer_id=1)
    await settle()
    assert readiness(second) == [(request_id, False), (request_id, True)]
    second.publish(b"a")
    await settle()
    assert second.heard[-1] == "send_receipt"


async def test_a_producer_that_waits_may_be_closed_and_asked_for_again(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    first, second, third = connect(), connect(), connect()
    first.open_producer()
    await settle()
    for client in (second, third):
        client.open_producer(producer_access_mode=api.WaitForExclusive)
    await settle()
    second.ask("close_producer", producer_id=1)
    third.open_producer(producer_access_mode=api.WaitForExclusive)
    await settle()
    assert second.heard == ["producer_success", "success"]
    assert len(next(iter(topics.loaded.values())).publishing.producers.waiting) == 1
    first.lose()
    await settle()
    assert readiness(third)[-1] == (2, True)


async def test_a_producer_that_sends_before_it_is_ready_loses_its_connection(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    first, second = connect(), connect()
    first.open_producer()
    await settle()
    second.open_producer(producer_access_mode=api.WaitForExclusive)
    await settle()
    second.publish(b"a")
    await settle()
    assert second.transport.is_closing()
    assert len(next(iter(topics.loaded.values())).publishing.producers.waiting) == 0


async def test_a_producer_that_waits_for_a_topic_that_goes_is_told_to_try_again(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    first, second = connect(), connect()
    first.open_producer()
    await settle()
    request_id = second.open_producer(producer_access_mode=api.WaitForExclusive)
    await settle()
    await topics.unload(TopicName.parse("t/n/topic"))
    await settle()
    (error,) = second.all_of("error")
    assert (error.request_id, error.error) == (request_id, api.ServiceNotReady)
    assert "close_producer" not in second.heard


async def test_a_producer_that_goes_while_it_is_let_in_is_forgotten(
    connect: Connect, settle: Settle, topics: TopicDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = connect(), connect(), connect()
    first.open_producer()
    await settle()
    second.open_producer(producer_access_mode=api.WaitForExclusive)
    await settle()
    first.lose()
    second.lose()
    await settle()
    assert not caplog.records
    assert not len(next(iter(topics.loaded.values())).publishing.producers.by_name)
    third.open_producer()
    await settle()
    assert third.heard == ["producer_success"]


async def test_fencing_closes_the_present_producer_and_refuses_the_waiting_one(
    connect: Connect, settle: Settle
) -> None:
    first, second, third = connect(), connect(), connect()
    first.open_producer(producer_name="p")
    await settle()
    second.open_producer(producer_access_mode=api.WaitForExclusive)
    await settle()
    third.open_producer(producer_name="p", producer_access_mode=api.ExclusiveWithFencing)
    await settle()
    assert first.heard == ["producer_success", "close_producer"]
    assert second.all_of("error")[0].error == api.ProducerFenced
    assert readiness(third)[-1][1]


class CountingLoop:
    """Counts the tasks and futures that the running loop makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        loop = asyncio.get_running_loop()
        for name in ("create_task", "create_future"):
            monkeypatch.setattr(loop, name, self._counting(getattr(loop, name)))

    def _counting(self, make: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            self.made += 1
            return make(*args, **kwargs)

        return counted


@pytest.mark.parametrize("kind", [api.CommandSubscribe.Exclusive, api.CommandSubscribe.Shared])
@pytest.mark.parametrize("is_one_read", [True, False])
async def test_no_message_costs_a_task_or_a_future(
    connect: Connect,
    settle: Settle,
    monkeypatch: pytest.MonkeyPatch,
    kind: int,
    *,
    is_one_read: bool,
) -> None:
    """From SEND to receipt, from there to the consumer, and back as an acknowledgement."""
    client = connect()
    client.open_producer()
    client.subscribe(subType=kind)
    await settle()
    client.say("flow", consumer_id=1, messagePermits=100_000)
    loop = CountingLoop(monkeypatch)
    made: list[int] = []
    for count in (10, 10, 1000):  # the first time there is more to do
        loop.made = 0
        frames = sends(*[b"m"] * count)
        for read in [b"".join(frames)] if is_one_read else frames:
            client.connection.data_received(read)
            await asyncio.sleep(0)
        await settle()
        delivered = [each.message_id for each in client.all_of("message")][-count:]
        for each in [delivered] if is_one_read else [[one] for one in delivered]:
            client.say("ack", consumer_id=1, ack_type=api.CommandAck.Individual, message_id=each)
        await asyncio.sleep(1)  # the cursor is written
        made.append(loop.made)
    assert len(client.all_of("send_receipt")) == len(client.all_of("message")) == 1020
    assert 0 < made[1] == made[2]


async def test_a_message_in_a_transaction_is_refused_and_the_others_stored(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.open_producer()
    await settle()
    metadata = api.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1)
    send = api.CommandSend(producer_id=1, sequence_id=7, txnid_most_bits=1, txnid_least_bits=2)
    client.connection.data_received(send_frame(send, encode_payload(metadata, b"one")))
    client.publish(b"a")
    await settle()
    (refused,) = client.all_of("send_error")
    assert (refused.sequence_id, refused.error) == (7, api.NotAllowedError)
    assert [each.sequence_id for each in client.all_of("send_receipt")] == [0]


async def test_a_producer_that_brings_an_absurd_epoch_is_answered(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.open_producer(
        producer_name="a", producer_access_mode=api.Exclusive, topic_epoch=UINT64_MAX
    )
    await settle()
    (success,) = client.all_of("producer_success")
    assert success.topic_epoch == UINT64_MAX
