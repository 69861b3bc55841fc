"""Proves that a splice keeps little, loses nothing that was written, and ends on both sides."""

from __future__ import annotations

import asyncio

from tests.unit.geminga_proxy.world import PORT, End, Place

from geminga_proxy.splice import BUFFER_BYTES_MAX, LINGER_S

TARGET = f"broker-1:{PORT}"
PIECE = bytes(64 * 1024)
# What the network holds of a stream that is not read, beside what the proxy does.
WINDOW_BYTES = 256 * 1024


async def test_a_slow_reader_stops_its_broker_and_no_one_else(place: Place) -> None:
    async with place.proxy():
        slow, other = await place.joined(TARGET), await place.joined(TARGET)
        broker, others = place.brokers["broker-1"]
        slow.transport.pause_reading()
        for _ in range(200):
            broker.transport.write(PIECE)
            await asyncio.sleep(0.01)
        kept_bytes = 200 * len(PIECE) - broker.transport.get_write_buffer_size()
        assert kept_bytes < 2 * WINDOW_BYTES + BUFFER_BYTES_MAX + 3 * len(PIECE)
        others.transport.write(b"hello")
        await other.until(lambda: other.read == b"hello")
        slow.transport.resume_reading()
        await slow.until(lambda: len(slow.read) == 200 * len(PIECE))


async def test_a_slow_broker_stops_its_client(place: Place) -> None:
    async with place.proxy():
        client = await place.joined(TARGET)
        (broker,) = place.brokers["broker-1"]
        before = len(broker.read)
        broker.transport.pause_reading()
        for _ in range(100):
            client.transport.write(PIECE)
            await asyncio.sleep(0.01)
        assert client.transport.get_write_buffer_size() > 50 * len(PIECE)
        broker.transport.resume_reading()
        await broker.until(lambda: len(broker.read) - before == 100 * len(PIECE))


async def test_what_was_written_before_a_close_arrives(place: Place) -> None:
    async with place.proxy() as proxy:
        client = await place.joined(TARGET)
        (broker,) = place.brokers["broker-1"]
        before = len(broker.read)
        for _ in range(20):
            client.transport.write(PIECE)
        client.transport.close()
        await broker.until(lambda: broker.is_lost)
        assert len(broker.read) - before == 20 * len(PIECE)
        assert not proxy.splices.open
        assert proxy.connections == 0


async def test_a_reset_by_either_side_ends_both(place: Place) -> None:
    async with place.proxy() as proxy:
        client = await place.joined(TARGET)
        (broker,) = place.brokers["broker-1"]
        broker.transport.abort()
        await client.until(lambda: client.is_lost)
        other = await place.joined(TARGET)
        other.transport.abort()
        second = place.brokers["broker-1"][1]
        await second.until(lambda: second.is_lost)
        assert not proxy.splices.open
        assert proxy.connections == 0


async def test_a_client_that_does_not_take_the_rest_is_cut_off(place: Place) -> None:
    async with place.proxy() as proxy:
        client = await place.joined(TARGET)
        (broker,) = place.brokers["broker-1"]
        client.transport.pause_reading()
        for _ in range(8):
            broker.transport.write(PIECE)
            await asyncio.sleep(0.01)
        broker.transport.close()
        await asyncio.sleep(LINGER_S / 2)
        assert proxy.splices.open
        await asyncio.sleep(LINGER_S)
        assert not proxy.splices.open


async def test_a_silent_broker_is_given_up(place: Place) -> None:
    async with place.proxy() as proxy:
        client = await place.joined(TARGET)
        (broker,) = place.brokers["broker-1"]
        for _ in range(5):  # as long as it pings, all is well
            await asyncio.sleep(30)
            broker.transport.write(b"ping")
        assert proxy.splices.open
        (stream,) = [each for each in place.network.streams("broker-1") if not each.is_gone]
        place.network.darken(stream)
        await asyncio.sleep(80 + LINGER_S)
        assert client.is_lost
        assert not proxy.splices.open


async def test_a_client_that_takes_nothing_is_given_up(place: Place) -> None:
    async with place.proxy() as proxy:
        client = await place.joined(TARGET)
        (broker,) = place.brokers["broker-1"]
        client.transport.pause_reading()
        for _ in range(200):
            broker.transport.write(PIECE)
            await asyncio.sleep(1)
        await broker.until(lambda: broker.is_lost)
        assert not proxy.splices.open


async def test_a_proxy_that_ends_has_brokers_let_go_before_clients_know(place: Place) -> None:
    async with place.proxy():
        client = await place.joined(TARGET)
        (broker,) = place.brokers["broker-1"]
        order: list[str] = []

        async def note(name: str, end: End) -> None:
            await end.until(lambda: end.is_lost)
            order.append(name)

        tasks = [
            asyncio.ensure_future(note(name, end))
            for name, end in (("broker", broker), ("client", client))
        ]
    await asyncio.gather(*tasks)
    assert order == ["broker", "client"]
