"""Proves that what waits for receipts is bounded, and that what waits for room gets it in turn."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.unit.geminga.fake_broker import FakeBroker
from tests.unit.geminga.fake_network import FakeNetwork

from geminga import Client, Closed, ProducerQueueFull, SendTimedOut, connect
from geminga.errors import ClientError
from geminga.producers.send_window import MemoryLimit, SendWindow, WindowWaiter
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_simulation.event_loop.clock import SimulatedClock


class Queue:
    """A window, and what became of its waiters."""

    def __init__(self, window: SendWindow) -> None:
        self.window = window
        self.entered: list[str] = []
        self.errors: list[ClientError] = []

    def wait(self, name: str, *, wants_half: bool = False, takes: int = 1) -> WindowWaiter:
        def enter() -> None:
            self.entered.append(name)
            if takes:
                self.window.acquire(takes)

        waiting = WindowWaiter(enter, self.errors.append, wants_half)
        self.window.enqueue(waiting)
        return waiting


def test_a_window_is_full_by_messages_or_by_bytes() -> None:
    memory = MemoryLimit(100)
    window = SendWindow(memory, 2)
    window.acquire(1)
    assert (window.is_full, window.is_half_full) == (False, True)
    window.acquire(1)
    assert window.is_full
    window.release(2, 2)
    assert (window.is_full, window.is_half_full) == (False, False)
    window.acquire(50)
    assert (window.is_full, window.is_half_full) == (False, True)
    other = SendWindow(memory, 10)
    assert (other.is_full, other.is_half_full) == (False, True)
    other.acquire(50)
    assert window.is_full
    assert other.is_full


def test_what_waits_enters_in_its_order_as_far_as_there_is_room() -> None:
    queue = Queue(SendWindow(MemoryLimit(100), 4))
    for _ in range(4):
        queue.window.acquire(1)
    queue.wait("first")
    queue.wait("patient", wants_half=True, takes=0)
    queue.wait("last")
    assert queue.window.is_full
    queue.window.release(1, 1)
    assert queue.entered == ["first"]
    queue.window.release(2, 2)
    assert queue.entered == ["first"], "half of the window is taken"
    assert queue.window.is_full, "for what would overtake"
    queue.window.release(1, 1)
    assert queue.entered == ["first", "patient", "last"]
    assert not queue.window.is_full


def test_bytes_that_one_producer_releases_let_another_go_on() -> None:
    memory = MemoryLimit(10)
    first, second = Queue(SendWindow(memory, 9)), Queue(SendWindow(memory, 9))
    first.window.acquire(100)
    first.wait("a", takes=6)
    second.wait("b", takes=6)
    second.wait("c", takes=6)
    first.window.release(1, 100)
    assert (first.entered, second.entered) == (["a"], ["b"])
    first.window.release(1, 6)
    assert second.entered == ["b", "c"]
    assert memory.windows_waiting == {}


def test_a_waiter_that_withdraws_makes_place_for_those_behind_it() -> None:
    queue = Queue(SendWindow(MemoryLimit(100), 2))
    queue.window.acquire(1)
    patient = queue.wait("patient", wants_half=True)
    queue.wait("next")
    assert queue.window.withdraw(patient)
    assert queue.entered == ["next"]
    assert not queue.window.withdraw(patient)


def test_the_end_fails_all_that_waits() -> None:
    memory = MemoryLimit(100)
    queue = Queue(SendWindow(memory, 1))
    queue.window.acquire(1)
    queue.wait("a")
    queue.wait("b")
    queue.window.end(Closed("it"))
    assert len(queue.errors) == 2
    assert not queue.entered
    assert memory.windows_waiting == {}


# ---- in a client


async def test_the_producers_of_a_client_share_its_memory(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    async with connect(
        broker.url,
        network=network,
        clock=SimulatedClock(),
        random=Random(1),
        memory_limit_bytes=1000,
    ) as client:
        broker.on(BaseCommand.SEND)
        first, second = await client.producer("a"), await client.producer("b")
        first.send_nowait(bytes(2000))  # alone it always fits
        with pytest.raises(ProducerQueueFull):
            second.send_nowait(b"")
        waiting = asyncio.create_task(second.send(b"later"))
        await asyncio.sleep(1)
        broker.on(BaseCommand.SEND, broker.store)
        broker.drop_connections()
        await waiting
        assert broker.stored_bodies == [bytes(2000), b"later"]


async def test_room_that_does_not_come_in_time_is_an_error(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SEND)
    producer = await client.producer("orders", pending_messages_max=1, send_timeout_s=None)
    producer.send_nowait(b"0")
    impatient = await client.producer("orders", pending_messages_max=1, send_timeout_s=7)
    blocked = asyncio.create_task(producer.send(b"1"))
    impatient._window.acquire(1)
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(SendTimedOut, match="no room for a message within 7 s") as caught:
        await impatient.send(b"2")
    assert asyncio.get_running_loop().time() == pytest.approx(began_s + 7)
    assert caught.value.sequence_id is None
    assert not blocked.done(), "without a timeout it waits on"
    impatient._window.release(1, 1)
    blocked.cancel()


async def test_ready_waits_until_half_of_the_room_is_free(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SEND, lambda _, command, payload: broker.keep(command, payload))
    producer = await client.producer("orders", pending_messages_max=4, batching=None)
    for _ in range(2):
        await producer.ready()
        producer.send_nowait(b"")
    waiting = asyncio.create_task(producer.ready())
    ended = asyncio.create_task(producer.ready())
    await asyncio.sleep(1)
    assert not waiting.done()
    broker.on(BaseCommand.SEND, broker.store)
    broker.drop_connections()
    await waiting
    await ended
    assert producer.pending_messages <= 1


async def test_ready_raises_what_ended_the_producer(client: Client, broker: FakeBroker) -> None:
    broker.on(BaseCommand.SEND)
    producer = await client.producer("orders", pending_messages_max=1, close_timeout_s=1)
    producer.send_nowait(b"", lambda _, __: None)
    waiting = asyncio.create_task(producer.ready())
    await asyncio.sleep(0)
    await producer.close()
    with pytest.raises(Closed):
        await waiting
    for refused in (producer.ready(), producer.send(b"")):
        with pytest.raises(Closed):
            await refused


async def test_what_is_sent_leaves_while_its_sender_only_asks_whether_there_is_room(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders")
    for _ in range(5_000):
        producer.send_nowait(b"")
        await producer.ready()
    assert len(broker.stored) >= 3_000
