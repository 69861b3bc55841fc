"""Proves that a client of very many topics takes few connections, little memory, few attempts."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from random import Random

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, Session, until
from tests.unit.geminga.fake_network import FakeNetwork

from geminga import Client, Consumer, Producer, connect
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar.api_pb2 import BaseCommand

# More of them show nothing more; `make bench ARGS="--only client-topics"` opens ten thousand.
TOPICS = 300
# That measures 7.7 and 9.5 KB, with what the allocator leaves unused.
BYTES_MAX = 11 * 1024
# Reconnecting takes 5 s at most, once the broker is back.
BACK_S = 6.0


async def open_all(
    client: Client, prefix: str, count: int
) -> list[Producer[bytes] | Consumer[bytes]]:
    """A producer and a consumer on each of so many topics."""

    async def open_both(topic: str) -> tuple[Producer[bytes], Consumer[bytes]]:
        return await client.producer(topic), await client.consumer(topic, "s")

    pairs = await asyncio.gather(*[open_both(f"{prefix}-{number}") for number in range(count)])
    return [each for pair in pairs for each in pair]


@pytest.mark.real_loop  # of tasks and timers as they are, not of simulated ones
async def test_a_topic_takes_little_memory_and_no_connection(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    async with connect(broker.url, network=network) as client:
        first = await open_all(client, "first", 10)
        _forget(broker)
        gc.collect()
        tracemalloc.start()
        try:
            before_bytes, _ = tracemalloc.get_traced_memory()
            others = await open_all(client, "other", TOPICS)
            _forget(broker)
            gc.collect()
            taken_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
        finally:
            tracemalloc.stop()
        assert len(first) + len(others) == 2 * (10 + TOPICS)
        assert taken_bytes / len(others) < BYTES_MAX
        assert len(broker.sessions) == 1
        # One for each that keeps it attached, this one, and what watches the pool.
        assert len(asyncio.all_tasks()) <= len(first) + len(others) + 1


def _forget(broker: FakeBroker) -> None:
    """What the broker remembers for tests is not the client's."""
    broker.received.clear()
    for session in broker.sessions:
        assert session.transport is not None
        session.transport.writes.clear()
        assert session.transport.peer is not None
        session.transport.peer.writes.clear()


async def test_there_is_one_connection_to_each_broker_and_few_attempts_while_they_are_away(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    """As aiokafka#496: a failing broker causes no storm of reconnects."""
    brokers = (broker, FakeBroker(network, "other"))
    for each in brokers:
        each.on(BaseCommand.LOOKUP, owned_by(brokers))
    urls = f"{broker.url},{brokers[1].url.removeprefix('pulsar://')}"
    async with connect(urls, network=network, random=Random(1)) as client:
        opened = await open_all(client, "topic", TOPICS)
        assert network.connects.count("broker") == network.connects.count("other") == 1
        await asyncio.sleep(60)
        for each in brokers:
            each.kill()
        network.connects.clear()
        await asyncio.sleep(60)
        assert network.connects.count("broker") <= 65, "once a second"
        assert network.connects.count("other") <= 65
        for each in brokers:
            each.start()
        await asyncio.sleep(BACK_S)
        await until(lambda: all(each.is_connected for each in opened))
        assert all(len(each.open_sessions) == 1 for each in brokers)


def owned_by(
    brokers: tuple[FakeBroker, ...],
) -> Callable[[Session, BaseCommand, bytes], None]:
    """Brokers own topics in turn, by their numbers."""

    def answer(session: Session, command: BaseCommand, _payload: bytes) -> None:
        lookup = command.lookupTopic
        owner = brokers[int(lookup.topic.rpartition("-")[2]) % len(brokers)]
        session.write(answers.encode_lookup(lookup.request_id, broker_url=owner.url))

    return answer
