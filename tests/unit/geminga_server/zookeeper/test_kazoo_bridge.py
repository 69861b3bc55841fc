"""What kazoo's thread learns reaches the loop: in order, in few wake-ups, without blocking it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from kazoo.protocol.states import Callback

from geminga_runtime.clock import SystemClock
from geminga_server.zookeeper.kazoo_bridge import (
    Answer,
    Connection,
    KazooTimeout,
    LoopHandler,
    Waker,
)
from geminga_simulation.event_loop.clock import SimulatedClock


def in_thread(*steps: object) -> None:
    def run() -> None:
        for step in steps:
            assert callable(step)
            step()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)


def test_an_answer_is_given_to_those_linked_before_and_after() -> None:
    answer = Answer()
    seen: list[object] = []
    answer.rawlink(lambda settled: seen.append(settled.get()))
    answer.set(7)
    answer.rawlink(lambda settled: seen.append(settled.get()))
    assert seen == [7, 7]


def test_only_the_first_answer_counts() -> None:
    answer = Answer()
    answer.set_exception(KeyError("first"))
    answer.set(2)
    answer.set_exception(KeyError("third"))
    with pytest.raises(KeyError, match="first"):
        answer.get()
    assert isinstance(answer.exception, KeyError)


async def test_what_a_thread_posts_is_delivered_in_order_on_the_loop() -> None:
    handler = LoopHandler(SystemClock())
    done = asyncio.Event()
    seen: list[tuple[int, int]] = []

    def note(number: int) -> None:
        seen.append((number, threading.get_ident()))

    in_thread(*[lambda n=n: handler.post(note, n) for n in range(100)])
    handler.post(done.set)
    await asyncio.wait_for(done.wait(), 60)
    assert seen == [(number, threading.get_ident()) for number in range(100)]


async def test_many_posts_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    handler = LoopHandler(SystemClock())
    wake_ups: list[Callable[[], None]] = []
    monkeypatch.setattr(handler, "_loop", SimpleNamespace(call_soon_threadsafe=wake_ups.append))
    seen: list[int] = []
    for number in range(50):
        handler.post(seen.append, number)
    assert len(wake_ups) == 1
    loop.call_soon(wake_ups[0])
    await asyncio.sleep(0)
    assert seen == list(range(50))
    handler.post(seen.append, 50)
    assert len(wake_ups) == 2


async def test_a_detached_handler_delivers_nothing() -> None:
    handler = LoopHandler(SystemClock())
    seen: list[int] = []
    handler.post(seen.append, 1)
    handler.detach()
    handler.post(seen.append, 2)
    await asyncio.sleep(0)
    assert seen == []


def test_a_post_to_a_closed_loop_is_dropped() -> None:
    async def make() -> LoopHandler:
        return LoopHandler(SystemClock())

    handler = asyncio.run(make())
    handler.post(print, "never")


async def test_a_watch_is_posted_with_its_event() -> None:
    handler = LoopHandler(SystemClock())
    seen: list[str] = []
    handler.dispatch_callback(Callback("watch", seen.append, ("event",)))
    assert seen == []
    await asyncio.sleep(0)
    assert seen == ["event"]


@pytest.fixture
def waker() -> Iterator[Waker]:
    waker = Waker()
    yield waker
    waker.close()


def test_a_waker_never_blocks_and_counts_every_request(waker: Waker) -> None:
    for _ in range(100_000):
        waker.send(b"\0")
    assert waker.pending() == 100_000
    for _ in range(100_000):
        assert waker.recv(1) == b"\0"
    assert waker.pending() == 0
    with pytest.raises(BlockingIOError):
        waker.recv(1)


@pytest.fixture
def wire() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.settimeout(0)
    with near, far:
        yield near, far


def nothing() -> None:
    """The server was heard, and no caller cares."""


def test_a_connection_reads_ahead_and_gives_what_was_asked(
    wire: tuple[socket.socket, socket.socket],
) -> None:
    near, far = wire
    heard: list[int] = []
    connection = Connection(near, 1.0, lambda: heard.append(1))
    far.sendall(b"abcdefgh")
    assert connection.pending() == 0
    assert connection.recv(3) == b"abc"
    assert connection.pending() == 5
    far.sendall(b"more")
    assert connection.recv(100) == b"defgh"
    assert connection.recv(100) == b"more"
    assert len(heard) == 2
    far.close()
    assert connection.recv(1) == b""
    assert len(heard) == 2, "the end of the stream is not a sign of life"


def test_a_connection_waits_while_the_socket_is_full_and_then_gives_up(
    wire: tuple[socket.socket, socket.socket],
) -> None:
    near, _far = wire
    connection = Connection(near, 0.01, nothing)

    def fill() -> None:
        while True:
            connection.send(bytes(100_000))

    with pytest.raises(KazooTimeout):
        fill()


async def test_what_is_sent_leaves_in_one_piece_when_nothing_else_is_to_be_done(
    wire: tuple[socket.socket, socket.socket], waker: Waker
) -> None:
    near, far = wire
    far.settimeout(0)
    handler = LoopHandler(SystemClock())
    connection = Connection(near, 1.0, nothing)
    for number in range(3):
        assert connection.send(b"request %d;" % number) == 10
        waker.send(b"\0")
        assert handler.select([connection, waker], [], [], None)[0] == [waker]
    with pytest.raises(BlockingIOError):
        far.recv(100)
    for _ in range(3):
        waker.recv(1)
    assert handler.select([connection, waker], [], [], 0)[0] == []
    assert far.recv(100) == b"request 0;request 1;request 2;"


def test_much_is_sent_at_once_and_whole(wire: tuple[socket.socket, socket.socket]) -> None:
    near, far = wire
    connection = Connection(near, 10.0, nothing)
    received = bytearray()

    def receive() -> None:
        while chunk := far.recv(10_000):
            received.extend(chunk)

    reader = threading.Thread(target=receive)
    reader.start()
    connection.send(b"a" * 3_000_000)
    connection.send(b"b" * Connection.UNSENT_BYTES_MAX)
    near.shutdown(socket.SHUT_WR)
    reader.join(10)
    assert received == b"a" * 3_000_000 + b"b" * Connection.UNSENT_BYTES_MAX


async def test_select_names_what_is_ready(
    wire: tuple[socket.socket, socket.socket], waker: Waker
) -> None:
    near, far = wire
    handler = LoopHandler(SystemClock())
    connection = Connection(near, 1.0, nothing)
    assert handler.select([connection, waker], [], [], 0) == ([], (), ())
    waker.send(b"\0")
    assert handler.select([connection, waker], [], [], None)[0] == [waker]
    waker.recv(1)
    far.sendall(b"xy")
    assert handler.select([connection, waker], [], [], 5)[0] == [connection]
    connection.recv(1)
    assert handler.select([connection, waker], [], [], 0)[0] == [connection], "one byte is at hand"
    connection.recv(1)
    assert handler.select([connection, waker], [], [], 0)[0] == []
    assert handler.select([], [connection], [], 0) == ((), [connection], ())


async def test_the_server_is_heard_through_a_connection_and_not_by_connecting() -> None:
    clock = SimulatedClock()
    handler = LoopHandler(clock)
    with socket.create_server(("127.0.0.1", 0)) as server:
        clock.advance(100)
        connection = handler.create_connection(
            server.getsockname(), hostname="ignored", timeout=5.0, use_ssl=False
        )
        accepted, _ = server.accept()
        assert handler.heard_at_s == 0.0
        with accepted:
            accepted.sendall(b"x")
            connection.recv(1)
        assert handler.heard_at_s == 100.0
        connection.close()


async def test_the_granted_timeout_is_read_from_the_first_answer_of_each_connection() -> None:
    handler = LoopHandler(SystemClock())
    with socket.create_server(("127.0.0.1", 0)) as server:
        for granted_ms, granted_s in ((4_000, 4.0), (2_500, 2.5), (0, 2.5)):
            connection = handler.create_connection(server.getsockname(), timeout=5.0)
            accepted, _ = server.accept()
            with accepted:
                # ConnectResponse: length, protocol version, time-out in ms, and what follows.
                answer = struct.pack(">iii", 36, 0, granted_ms) + bytes(28)
                # Cut within the time-out, and followed by an answer to a request.
                for part in (answer[:10], answer[10:] + struct.pack(">iii", 8, 1, 9_999)):
                    accepted.sendall(part)
                    assert len(connection.recv(1)) == 1
                    connection.recv(1_000)
            assert handler.granted_timeout_s == granted_s
            connection.close()
