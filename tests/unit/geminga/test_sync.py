"""Proves that the client without an event loop does what the other one does, and that its waiting
calls end: in time, by Ctrl-C, and when the client is closed. The broker is one in memory, on the
client's own loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, Session, metadata
from tests.unit.geminga.fake_network import FakeNetwork

import geminga
from geminga import Closed, MessageId, StringSchema, sync
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.messages.payload import encode_payload

pytestmark = pytest.mark.real_loop  # a thread of its own


@pytest.fixture
def network() -> FakeNetwork:
    return FakeNetwork()


@pytest.fixture
def broker(network: FakeNetwork) -> FakeBroker:
    return FakeBroker(network, "broker")


@pytest.fixture
def client(network: FakeNetwork, broker: FakeBroker) -> Iterator[sync.Client]:
    with sync.connect(broker.url, network=network) as opened:
        yield opened


def deliver_once(broker: FakeBroker, *bodies: bytes, key: str | None = None) -> None:
    """Deliver these when the first permits come."""

    def deliver(_session: Session, command: BaseCommand, _: bytes) -> None:
        broker.on(BaseCommand.FLOW)
        for entry_id, body in enumerate(bodies):
            about = metadata(entry_id)
            if key is not None:
                about.partition_key = key
            payload = encode_payload(about, body)
            broker.deliver(entry_id, payload=payload, consumer_id=command.flow.consumer_id)

    broker.on(BaseCommand.FLOW, deliver)


def test_messages_are_published(client: sync.Client, broker: FakeBroker) -> None:
    seen: list[MessageId | None] = []
    with client.producer("orders", schema=StringSchema()) as producer:
        assert isinstance(producer.send("one", key="k"), MessageId)
        for number in range(2500):
            producer.send_nowait(str(number), lambda message_id, _: seen.append(message_id))
        producer.flush()
        assert producer.last_sequence_id == 2500
        assert producer.topic == "persistent://public/default/orders"
        assert producer.name == "made-up"
    assert broker.stored_bodies[:2] == [b"one", b"0"]
    assert len(seen) == 2500
    assert client.partitions("orders") == 0


def test_closing_a_producer_tells_what_was_not_stored(
    client: sync.Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SEND)
    producer = client.producer("orders", close_timeout_s=0.05)
    producer.send_nowait(b"")
    with pytest.raises(Closed) as caught:
        producer.close()
    assert caught.value.__notes__ == ["1 messages sent without callbacks were not stored"]
    producer.close()


def test_what_ended_a_block_is_not_hidden_behind_a_message_that_was_not_stored(
    client: sync.Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SEND)
    producer = client.producer("orders", close_timeout_s=0.05)

    def work() -> None:
        with producer:
            producer.send_nowait(b"")
            raise KeyError("of the block")

    with pytest.raises(KeyError):
        work()
    with pytest.raises(Closed):
        producer.send_nowait(b"")


def test_messages_are_received_and_acknowledged(client: sync.Client, broker: FakeBroker) -> None:
    deliver_once(broker, b"a", b"b", b"c", b"d")
    with client.consumer("orders", "billing", schema=StringSchema()) as consumer:
        message = consumer.receive(timeout_s=60)
        assert message.value == "a"
        consumer.ack(message)
        for message in consumer:
            consumer.ack(message.id)
            if message.value == "b":
                break
        rest = consumer.receive_many(2, max_wait_s=60)
        assert [each.value for each in rest] == ["c", "d"]
        consumer.ack_confirmed(*rest)
        assert consumer.topics == ["persistent://public/default/orders"]
        consumer.unsubscribe()
    assert sorted(broker.acked) == [0, 1, 2, 3]


def test_a_receive_that_takes_too_long_loses_nothing(
    client: sync.Client, broker: FakeBroker
) -> None:
    with client.consumer("orders", "billing") as consumer:
        with pytest.raises(TimeoutError):
            consumer.receive(timeout_s=0.01)
        client._loop.call(broker.deliver, 0, b"late", consumer_id=0)
        assert consumer.receive(timeout_s=60).data == b"late"


def test_a_reader_and_a_table_view(client: sync.Client, broker: FakeBroker) -> None:
    deliver_once(broker, b"a", b"b", key="k")
    with client.reader("orders") as reader:
        assert reader.read(timeout_s=60).data == b"a"
        assert reader.has_message_available()
        assert next(iter(reader)).data == b"b"
    broker.on(BaseCommand.GET_LAST_MESSAGE_ID, _last_is_1)
    deliver_once(broker, b"a", b"b", key="k")
    with client.table_view("orders", schema=StringSchema()) as view:
        assert dict(view) == {"k": "b"}
        assert (len(view), list(view), "other" in view) == (1, ["k"], False)
        view.refresh()


def _last_is_1(session: Session, command: BaseCommand, _: bytes) -> None:
    from tests.unit.geminga.fake_broker import LEDGER

    from geminga_protocol.pulsar import answers

    request_id = command.getLastMessageId.request_id
    session.write(answers.encode_last_message_id(request_id, answers.message_id(LEDGER, 1)))


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_ends_a_receive_that_waits(
    client: sync.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    async def receive(_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(geminga.Consumer, "receive", receive)
    with client.consumer("orders", "billing") as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.receive()
        assert ended.wait(60)  # the call was cancelled, too


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_ends_a_call_that_was_just_handed_over(
    client: sync.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the caller knows by what to cancel it."""
    began, ended = threading.Event(), threading.Event()
    hand_over = asyncio.run_coroutine_threadsafe

    async def receive(_: object) -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    def interrupted(*arguments: Any) -> None:
        hand_over(*arguments)
        assert began.wait(60)
        raise KeyboardInterrupt

    with client.consumer("orders", "billing") as consumer:
        monkeypatch.setattr(geminga.Consumer, "receive", receive)
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
            with pytest.raises(KeyboardInterrupt):
                consumer.receive()
        assert ended.wait(60)


def test_closing_the_client_ends_a_receive_in_another_thread(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    client = sync.connect(broker.url, network=network)
    consumer = client.consumer("orders", "billing")
    errors: list[Exception] = []
    is_waiting = threading.Event()

    def receive() -> None:
        is_waiting.set()
        try:
            consumer.receive()
        except Closed as error:
            errors.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    is_waiting.wait()
    client.close()
    thread.join()
    assert len(errors) == 1
    client.close()
    consumer.close()
    with pytest.raises(Closed):
        consumer.receive()
    with pytest.raises(Closed):
        client.producer("orders")


def test_a_for_loop_ends_when_its_consumer_is_closed(client: sync.Client) -> None:
    consumer = client.consumer("orders", "billing")
    consumer.close()
    assert list(consumer) == []


def test_a_callback_that_waits_for_its_client_is_told_so(client: sync.Client) -> None:
    raised: list[Exception] = []

    def callback(_: object, __: object) -> None:
        for wait in (producer.flush, client.close):
            try:
                wait()
            except RuntimeError as error:
                raised.append(error)

    producer = client.producer("orders")
    producer.send_nowait(b"x", callback)
    producer.flush()
    assert len(raised) == 2
    producer.send(b"goes on")


def test_no_thread_is_left(network: FakeNetwork, broker: FakeBroker) -> None:
    before = threading.active_count()
    with sync.connect(broker.url, network=network):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    with pytest.raises(geminga.InvalidServiceUrl):
        sync.connect("nonsense")
    assert threading.active_count() == before
