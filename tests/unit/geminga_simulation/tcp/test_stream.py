"""Streams: bytes arrive in order and whole, or the connection breaks, as TCP has it."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest
from tests.unit.geminga_simulation.recording import Recording

from geminga_simulation.conditions import NetworkConditions
from geminga_simulation.event_loop.loop import running_loop
from geminga_simulation.simulate import simulate
from geminga_simulation.tcp.network import SimulatedNetwork


async def connected(
    conditions: NetworkConditions | None = None, *, keeps_open: bool = False
) -> tuple[SimulatedNetwork, Recording, Recording]:
    """A network, the connecting end and the accepting end of a stream."""
    loop = running_loop()
    network = SimulatedNetwork(loop, conditions)
    accepted: list[Recording] = []

    def accept() -> Recording:
        accepted.append(Recording(keeps_open=keeps_open))
        return accepted[-1]

    await network.host("server").listen(accept, "server", 6650)
    _, client = await network.host("client").connect(Recording, "server", 6650)
    await asyncio.sleep(1)
    return network, client, accepted[0]


def test_bytes_arrive_in_order_whatever_the_chunks() -> None:
    rough = NetworkConditions(
        late_probability=0.2, cut_probability=0.5, merge_probability=0.5, window_bytes=1000
    )

    async def main() -> int:
        _, client, server = await connected(rough)
        random = Random(1)
        sent = bytearray()
        for _ in range(200):
            content = random.randbytes(random.randrange(1, 300))
            sent += content
            client.transport.write(content)
            server.transport.writelines([content[:1], content[1:]])
            if random.random() < 0.3:
                await asyncio.sleep(0.001)
        await asyncio.sleep(10)
        client.transport.close()
        await server.lost.wait()
        await client.lost.wait()
        assert server.received == client.received == sent
        assert server.events[-2:] == ["end", "lost"]
        assert client.error is server.error is None
        return len(server.chunks)

    counts = {simulate(seed, main).result for seed in range(10)}
    assert len(counts) > 5, "the seed cuts chunks differently"


async def test_the_writes_of_one_turn_arrive_together() -> None:
    _, client, server = await connected()
    for number in range(10):
        client.transport.write(b"%d" % number)
    await asyncio.sleep(1)
    assert server.chunks == [b"0123456789"]


async def test_a_mutable_buffer_may_be_reused_after_write() -> None:
    _, client, server = await connected()
    buffer = bytearray(b"before")
    client.transport.write(memoryview(buffer))
    buffer[:] = b"after!"
    await asyncio.sleep(1)
    assert server.received == b"before"


async def test_a_reader_that_pauses_stops_the_writer_and_loses_nothing() -> None:
    _, client, server = await connected(NetworkConditions(window_bytes=1000))
    client.transport.set_write_buffer_limits(high=2000, low=500)
    server.transport.pause_reading()
    assert not server.transport.is_reading()
    client.transport.write(b"a" * 2999)
    assert client.events == ["made"]
    client.transport.write(b"b" * 200)
    assert client.events == ["made", "pause"]
    assert client.transport.get_write_buffer_size() == 2199
    await asyncio.sleep(10)
    assert server.received == b""
    server.transport.resume_reading()
    await asyncio.sleep(1)
    assert client.events == ["made", "pause", "resume"]
    assert server.received == b"a" * 2999 + b"b" * 200
    assert client.transport.get_write_buffer_size() == 0


async def test_closing_sends_what_was_written_first() -> None:
    _, client, server = await connected(NetworkConditions(window_bytes=100))
    client.transport.write(b"x" * 5000)
    client.transport.close()
    assert client.transport.is_closing()
    client.transport.write(b"dropped")
    await server.lost.wait()
    assert server.received == b"x" * 5000
    await client.lost.wait()
    assert client.error is None


async def test_a_peer_may_go_on_writing_after_the_end() -> None:
    _, client, server = await connected(keeps_open=True)
    client.transport.write(b"question")
    client.transport.write_eof()
    with pytest.raises(RuntimeError, match="end"):
        client.transport.write(b"more")
    await asyncio.sleep(1)
    assert server.events == ["made", "end"]
    server.transport.write(b"answer")
    await asyncio.sleep(1)
    assert client.received == b"answer"
    server.transport.close()
    await client.lost.wait()


async def test_writing_to_a_closed_peer_is_answered_with_a_reset() -> None:
    _, client, server = await connected(keeps_open=True)
    client.transport.close()
    await asyncio.sleep(1)
    assert server.events == ["made", "end"]
    server.transport.write(b"too late")
    await server.lost.wait()
    assert isinstance(server.error, ConnectionResetError)
    assert client.received == b""


async def test_an_abort_is_a_reset_at_the_peer() -> None:
    _, client, server = await connected()
    client.transport.write(b"perhaps")
    client.transport.abort()
    client.transport.abort()
    await asyncio.sleep(1)
    assert client.events == ["made", "lost"]
    assert client.error is None
    assert isinstance(server.error, ConnectionResetError)


async def test_nothing_is_received_after_a_close() -> None:
    _, client, server = await connected()
    server.transport.write(b"on its way")
    client.transport.close()
    await asyncio.sleep(1)
    assert client.received == b""
    assert client.events == ["made", "lost"]


async def test_a_protocol_that_raises_loses_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, client, server = await connected()

    def fail(data: bytes) -> None:
        raise ValueError(f"no use for {data!r}")

    server.data_received = fail  # type: ignore[method-assign]
    client.transport.write(b"bait")
    with caplog.at_level(logging.CRITICAL, logger="asyncio"):
        await client.lost.wait()
    assert isinstance(client.error, ConnectionResetError)
    assert isinstance(server.error, ValueError)
    loop = running_loop()
    assert "Recording.data_received failed" in str(loop.failures[0]["message"])


async def test_a_buffered_protocol_gets_its_bytes_through_its_buffer() -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(3)
            self.received = b""

        def get_buffer(self, sizehint: int) -> bytearray:
            assert sizehint > 0
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.received += self.buffer[:nbytes]

    _, client, server = await connected()
    buffered = Buffered()
    server.transport.set_protocol(buffered)
    client.transport.write(b"0123456789")
    await asyncio.sleep(1)
    assert buffered.received == b"0123456789"


async def test_a_transport_knows_its_names_and_limits() -> None:
    _, client, server = await connected()
    transport = client.transport
    assert transport.get_extra_info("peername") == ("server", 6650)
    assert server.transport.get_extra_info("peername") == transport.get_extra_info("sockname")
    assert transport.get_extra_info("socket") is None
    assert transport.get_extra_info("cipher", "none") == "none"
    with pytest.raises(ValueError, match="high"):
        transport.set_write_buffer_limits(high=1, low=2)


async def test_asyncio_streams_work_over_it() -> None:
    network, _, _ = await connected()
    reader = asyncio.StreamReader()
    transport, protocol = await network.host("client").connect(
        lambda: asyncio.StreamReaderProtocol(reader), "server", 6650
    )
    writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
    writer.write(b"hello")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert await reader.read() == b""
