"""Proves that what users of other clients lost is not lost here: messages of calls that were
cancelled, the error that ends an iteration, memory, a connection while the loop was blocked."""

from __future__ import annotations

import asyncio
import gc
from typing import cast

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, Session, until
from tests.unit.geminga.fake_network import FakeNetwork

from geminga import Client, Message, NotConnected, TopicNotFound, connect
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import PONG
from geminga_simulation.event_loop.loop import SimulatedLoop


async def test_receiving_that_is_cancelled_or_late_loses_nothing(
    client: Client, broker: FakeBroker
) -> None:
    """As pulsar-client-python#297 and nats.py#392."""
    consumer = await client.consumer("orders", "s", receiver_queue_size=10)
    loop = asyncio.get_running_loop()
    for entry_id in range(200):
        # In the very turn in which a caller gives up, before it, and after it.
        loop.call_later(0.1 * entry_id, broker.deliver, entry_id, b"%d" % entry_id)
    came: list[bytes] = []
    while len(came) < 200:
        try:
            if len(came) % 2:
                async with asyncio.timeout(0.05):
                    came.append((await consumer.receive()).data)
            else:
                message = await asyncio.wait_for(consumer.receive(), 0.1)
                came.append(message.data)
        except TimeoutError:
            receiving = asyncio.create_task(consumer.receive())
            await asyncio.sleep(0)
            if not receiving.cancel():
                came.append(receiving.result().data)
    assert came == [b"%d" % entry_id for entry_id in range(200)]


async def test_iterating_ends_with_the_error_when_the_consumer_is_given_up(
    client: Client, broker: FakeBroker
) -> None:
    """As aio-pika#379."""
    consumer = await client.consumer("orders", "s")

    async def read() -> list[Message[bytes]]:
        return [message async for message in consumer]

    reading = asyncio.create_task(read())
    await asyncio.sleep(1)
    broker.on(
        BaseCommand.SUBSCRIBE,
        lambda session, command, _: session.write(
            answers.encode_error(command.subscribe.request_id, api.TopicNotFound, "deleted")
        ),
    )
    broker.drop_connections()
    with pytest.raises(TopicNotFound):
        await reading


async def test_whatever_waits_ends_with_the_error_when_no_broker_comes_back(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    """As aio-pika#379."""
    broker.on(  # a view of an empty topic opens at once
        BaseCommand.GET_LAST_MESSAGE_ID,
        lambda session, command, _: session.write(
            answers.encode_last_message_id(
                command.getLastMessageId.request_id, answers.message_id(-1, -1)
            )
        ),
    )
    async with connect(broker.url, network=network, reconnect_timeout_s=60) as client:
        consumer = await client.consumer(["orders", "more-orders"], "s")
        view = await client.table_view("prices")
        producer = await client.producer("orders", send_timeout_s=None)
        broker.deliver(0, b"came in time")
        await asyncio.sleep(1)
        read: list[bytes] = []

        async def iterate() -> None:
            async for message in consumer:
                read.append(message.data)
                consumer.ack(message)

        async def follow() -> None:
            async for _ in view:
                pass

        broker.kill()
        waiting = [
            asyncio.create_task(work)
            for work in (iterate(), follow(), consumer.receive(), producer.send(b"never sent"))
        ]
        async with asyncio.timeout(70):
            await asyncio.wait(waiting)
        assert [type(task.exception()) for task in waiting] == [NotConnected] * 4
        assert read == [b"came in time"]
        with pytest.raises(NotConnected):
            await producer.send(b"nor later")


async def test_polling_with_short_timeouts_leaves_nothing_behind(client: Client) -> None:
    """As aiokafka#628."""
    consumer = await client.consumer("orders", "s")

    async def poll(times: int) -> None:
        for _ in range(times):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await consumer.receive()
            assert await consumer.receive_many(10, 0.01) == []

    await poll(10)
    gc.collect()
    objects_before, tasks_before = len(gc.get_objects()), len(asyncio.all_tasks())
    await poll(500)
    gc.collect()
    assert len(asyncio.all_tasks()) == tasks_before
    assert len(gc.get_objects()) - objects_before < 200


async def test_receiving_what_is_there_makes_no_task_and_no_future(
    client: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = await client.consumer("orders", "s")
    for entry_id in range(500):
        broker.deliver(entry_id)
    await asyncio.sleep(1)
    loop = asyncio.get_running_loop()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a task or future was made for a message")

    with monkeypatch.context() as watched:
        watched.setattr(loop, "create_future", refuse)
        watched.setattr(loop, "create_task", refuse)
        for _ in range(500):
            consumer.ack(await consumer.receive())


async def test_a_connection_outlives_a_loop_that_was_blocked(
    client: Client, broker: FakeBroker
) -> None:
    """As aiokafka#847: the answer came while the loop did nothing, and timers run before it."""
    consumer = await client.consumer("orders", "s")
    loop = cast(SimulatedLoop, asyncio.get_running_loop())

    def answer_late(session: Session, _command: BaseCommand, _payload: bytes) -> None:
        loop.call_later(30.5, session.write, PONG)
        loop.pause(loop.main, loop.time() + 40)

    broker.on(BaseCommand.PING, answer_late)
    await asyncio.sleep(31)
    broker.on(BaseCommand.PING, lambda session, _, __: session.write(PONG))
    await asyncio.sleep(100)
    assert len(broker.sessions) == 1
    broker.deliver(0, b"later")
    assert (await consumer.receive()).data == b"later"


async def test_an_answer_that_came_while_the_loop_was_blocked_counts(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s")
    loop = cast(SimulatedLoop, asyncio.get_running_loop())
    healthy = broker.answers[BaseCommand.GET_LAST_MESSAGE_ID]

    def answer_late(session: Session, command: BaseCommand, payload: bytes) -> None:
        loop.call_later(30.5, healthy, session, command, payload)
        loop.pause(loop.main, loop.time() + 40)

    broker.on(BaseCommand.GET_LAST_MESSAGE_ID, answer_late)
    assert (await consumer.last_message_id()).entry_id == 41
    await until(lambda: consumer.is_connected)
