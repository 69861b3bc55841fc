"""What a bookie stands on, in memory: ZooKeeper, a network, a client's connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from struct import Struct
from typing import cast

from geminga_bookie.sessions.session import Session
from geminga_protocol.bookkeeper.digest import encode_entry_header, master_key
from geminga_protocol.bookkeeper.v2 import Operation as V2Operation
from geminga_protocol.bookkeeper.v2 import encode_add_header, parse_response
from geminga_protocol.framing import FrameReader
from geminga_protocol.records.ledgers.ledger_metadata import INSTANCE_ID_PATH
from geminga_runtime.network import ProtocolT
from geminga_simulation.conditions import INSTANT
from geminga_simulation.event_loop.incarnation import Incarnation
from geminga_simulation.event_loop.loop import SimulatedLoop
from geminga_simulation.event_loop.trace import Trace
from geminga_simulation.zookeeper.interception import InstantSession
from geminga_simulation.zookeeper.server import SimulatedZooKeeper

KEY = master_key(b"")
OTHER_KEY = master_key(b"other")
INSTANCE_ID = "instance-1"
_IDS = Struct(">qq")
_BATCH_READ = Struct(">Iqqqiq")

# Longer than an instant, shorter than anything that a timer waits for.
INSTANT_S = 0.000_001


class BorrowedLoop:
    """A real event loop in the place of a simulated one, for tests of real sockets: it has what the
    simulated ZooKeeper uses. Time and timers are the real loop's, chance comes from a seed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.trace = Trace(record=False)
        self.main = self.incarnate("main")
        self.call_soon = loop.call_soon
        self.call_later = self.after = loop.call_later
        self.at = loop.call_at
        self.create_future = loop.create_future
        self._loop = loop

    @property
    def now_s(self) -> float:
        """As ``SimulatedLoop.now_s``."""
        return self._loop.time()

    def stream(self, name: str) -> Random:
        """As ``SimulatedLoop.stream``."""
        return Random(name)

    def incarnate(self, name: str) -> Incarnation:
        """As ``SimulatedLoop.incarnate``; nothing ends it."""
        return Incarnation(name, 1, 0.0)


def bookie_session() -> InstantSession:
    """A bookie's session with the ZooKeeper of an initialized cluster."""
    loop = asyncio.get_running_loop()
    simulated = loop if isinstance(loop, SimulatedLoop) else cast(SimulatedLoop, BorrowedLoop(loop))
    session = InstantSession(SimulatedZooKeeper(simulated, INSTANT))
    session.zookeeper.put(INSTANCE_ID_PATH, INSTANCE_ID.encode())
    return session


async def end_session(session: InstantSession) -> None:
    """Let it expire, and a new one begin."""
    session.zookeeper.expire(session.client)
    await asyncio.sleep(INSTANT_S)


class FakeTransport(asyncio.Transport):
    """The bookie's end of a connection: remembers what is written, and is never full."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.written: list[bytes] = []
        self.reads_socket = True
        self.has_ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.has_ended
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        # What is paused may be paused again, as asyncio's and uvloop's transports allow.
        self.reads_socket = False

    def resume_reading(self) -> None:
        assert not self.reads_socket
        self.reads_socket = True

    def close(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


class MemoryListener:
    """A port of a memory network."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False


class MemoryNetwork:
    """A network with one host: ``connect_client`` opens connections to what listens."""

    def __init__(self) -> None:
        self.listeners: list[MemoryListener] = []
        self._factory: Callable[[], asyncio.BaseProtocol] | None = None

    async def connect(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        raise NotImplementedError(factory, host, port)

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> MemoryListener:
        assert host
        self._factory = factory
        self.listeners.append(MemoryListener(port or 50_000 + len(self.listeners)))
        return self.listeners[-1]

    def connect_client(self) -> Client:
        """A new connection to the last that listened."""
        assert self._factory is not None
        session = self._factory()
        assert isinstance(session, Session)
        return Client(session)


# (operation, return code, ledger id, entry id, body)
Answer = tuple[int, int, int, int, bytes]


class Client:
    """A client's end of a connection."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.transport = FakeTransport(session)
        session.connection_made(self.transport)
        self._frames = FrameReader(10_000_000)
        self._read = 0

    def send(self, *requests: bytes) -> None:
        """Send requests in one piece."""
        self.session.data_received(b"".join(requests))

    async def authorized(self) -> Client:
        """Itself, once the bookie takes its requests."""
        await asyncio.sleep(0)
        return self

    def is_read(self) -> bool:
        """Whether the bookie reads what is sent."""
        return self.transport.reads_socket

    def taken_frames(self) -> list[bytes]:
        """The frames that came since the last call, without their sizes."""
        written = self.transport.written[self._read :]
        self._read = len(self.transport.written)
        buffer, bounds = self._frames.feed(b"".join(written))
        return [buffer[start:end] for start, end in bounds]

    def taken(self) -> list[Answer]:
        """The V2 answers that came since the last call."""
        answers: list[Answer] = []
        for frame in self.taken_frames():
            operation, code, ledger_id, entry_id, body = parse_response(frame, 0, len(frame))
            answers.append((operation, code, ledger_id, entry_id, frame[body:]))
        return answers

    async def answers(self, count: int) -> list[Answer]:
        """The next ``count`` answers, as soon as they are there."""
        answers: list[Answer] = []
        for _ in range(1000):
            answers += self.taken()
            if len(answers) >= count:
                return answers
            # In virtual time: lets whatever is under way come to its end.
            await asyncio.sleep(0.01)
        raise AssertionError(f"{len(answers)} answers, where {count} are awaited")

    async def ask(self, *requests: bytes) -> list[Answer]:
        """Send requests, wait for an answer to each."""
        self.send(*requests)
        return await self.answers(len(requests))


def make_entry(ledger_id: int, entry_id: int, payload: bytes = b"payload") -> bytes:
    """A whole entry as a writer makes it."""
    length = (entry_id + 1) * len(payload)
    return encode_entry_header(ledger_id, entry_id, entry_id - 1, length, payload) + payload


def make_add(
    ledger_id: int,
    entry_id: int,
    payload: bytes = b"payload",
    *,
    key: bytes = KEY,
    flags: int = 0,
) -> bytes:
    """A request to add an entry, with its size."""
    entry = make_entry(ledger_id, entry_id, payload)
    return encode_add_header(key, len(entry), flags) + entry


def batch_read(
    ledger_id: int,
    first_entry: int,
    *,
    count_max: int = 0,
    bytes_max: int = 1 << 20,
    key: bytes | None = None,
    request_id: int = 77,
) -> bytes:
    """A V2 request for several entries, with its size; fencing if there is a key."""
    word = 2 << 24 | V2Operation.BATCH_READ << 16 | (key is not None)
    frame = _BATCH_READ.pack(word, ledger_id, first_entry, request_id, count_max, bytes_max)
    frame += key or b""
    return len(frame).to_bytes(4, "big") + frame
