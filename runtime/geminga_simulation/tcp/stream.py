"""One end of a byte stream between two hosts, as an asyncio transport.

A stream is two pipes (``pipe.py``) and an end on each host, and behaves as TCP does. When bytes
cannot arrive the connection breaks, at each end in its own time, or never (half-open). A close
arrives as end of file, an abort or a crash as a reset. A full receiver stops the sender through
``pause_writing``. The network (``network.py``) decides which hosts reach each other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any

from geminga_runtime.disk import Chunk
from geminga_simulation.errors import SimulationError
from geminga_simulation.event_loop.incarnation import CURRENT, Incarnation
from geminga_simulation.tcp.pipe import Pipe

if TYPE_CHECKING:
    from geminga_simulation.tcp.network import SimulatedNetwork

# asyncio's own default for the high-water mark of a transport's buffer.
HIGH_WATER_BYTES_DEFAULT = 64 * 1024


# How an end is closed, and what its protocol is told:
#
#     close      the backlog goes out, then the end    connection_lost(None), a turn later
#     abort      a reset goes out                      connection_lost(None), a turn later
#     lose       a reset came, or nothing got through  connection_lost(error), at once
#     die        the process died                      nothing: no code of it runs any more
#
# Each sets ``is_gone``, ``close`` when the backlog is out. From then on the kernel of the machine
# answers for the end.
class Endpoint(asyncio.Transport):
    """One end of a stream, as its protocol sees it.

    ``is_gone`` once nothing can reach the protocol any more: the socket is closed, broken, or its
    process died. ``peer`` is the other end, ``stream`` the number both share. ``is_dark`` is a
    fault: nothing gets through either way.
    """

    def __init__(self, network: SimulatedNetwork, context: Context, host: str, port: int) -> None:
        super().__init__()
        self._network = network
        # That of the process which the end belongs to: its protocol is called in it.
        self.context = context
        self.incarnation: Incarnation = context.get(CURRENT) or network.loop.main
        self.host = host
        self.port = port
        # The network sets these four when it has made both ends.
        self.stream = 0
        self.peer: Endpoint
        self.out_pipe: Pipe
        self.in_pipe: Pipe
        self.is_dark = False
        self.is_gone = False
        # Written bytes that found no room in the window, and how many they are.
        self._backlog: deque[Chunk] = deque()
        self.backlog_bytes = 0
        # None until the process has begun to use the connection.
        self._protocol: asyncio.BaseProtocol | None = None
        # ``close`` or ``abort`` was called, or the socket broke; the backlog may still go out.
        self._is_closing = False
        # ``write_eof`` was called: the end goes out behind the backlog.
        self._is_end_due = False
        self._is_end_received = False
        # The protocol called ``pause_reading``: arriving bytes stay in the pipe.
        self._is_read_paused = False
        # The protocol was told to pause writing, and not yet to resume.
        self._is_writing_paused = False
        # The receiver took bytes, and word of it is on its way back here.
        self._is_refill_due = False
        self._high_bytes = HIGH_WATER_BYTES_DEFAULT
        self._low_bytes = HIGH_WATER_BYTES_DEFAULT // 4

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the protocol its connection; arriving bytes follow."""
        self._protocol = protocol
        protocol.connection_made(self)
        self.in_pipe.schedule()

    # --- what the protocol may do: the part of asyncio.Transport that is used ----------------

    def write(self, data: Chunk) -> None:
        """Send bytes; after ``close`` they are dropped."""
        if self._is_end_due:
            raise RuntimeError("the end of this stream was written already")
        if self._is_closing or not data:
            return
        # The caller may change its buffer as soon as this returns.
        content = data if isinstance(data, bytes) else bytes(data)
        pipe = self.out_pipe
        # The window of this moment: the fault injector may have made it smaller than what is under
        # way.
        room_bytes = self._network.window_bytes - pipe.unread_bytes
        # The usual case, without a turn through the backlog.
        if not self._backlog and len(content) <= room_bytes:
            pipe.send(content)
            return
        self._backlog.append(content)
        self.backlog_bytes += len(content)
        self._push()
        if self.backlog_bytes > self._high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            self._call("pause_writing")

    def write_eof(self) -> None:
        """Send the end of the stream behind what was written; reading goes on."""
        if not self._is_end_due and not self._is_closing:
            self._is_end_due = True
            if not self._backlog:
                self.out_pipe.send(None)

    def close(self) -> None:
        """Send what was written, then the end of the stream; read no more."""
        if not self._is_closing:
            self._is_closing = True
            if not self._backlog:
                self._finish_close()

    def abort(self) -> None:
        """Close at once, by a reset."""
        if self.is_gone:
            return
        self._is_closing = True
        self._forget_socket()
        self.out_pipe.truncate()
        self._network.reset_from(self)
        # As in asyncio, ``connection_lost`` comes in a turn of its own.
        self._network.loop.call_soon(self._call_connection_lost, None, context=self.context)

    def is_closing(self) -> bool:
        """Whether the end is closed or closing."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Take nothing more; the sender's window fills up."""
        self._is_read_paused = True

    def resume_reading(self) -> None:
        """Take what has arrived meanwhile, and what follows."""
        if self._is_read_paused:
            self._is_read_paused = False
            self.in_pipe.schedule()

    def is_reading(self) -> bool:
        """Whether arriving bytes may be given to the protocol now."""
        return (
            self._protocol is not None
            and not self._is_read_paused
            and not self._is_closing
            and not self._is_end_received
        )

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 -- asyncio's
        """``sockname`` and ``peername`` are ``(host, port)``; there is no ``socket``."""
        if name == "sockname":
            return (self.host, self.port)
        if name == "peername":
            return (self.peer.host, self.peer.port)
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks as asyncio does: 64 KiB and a quarter of the high mark by default."""
        if high is None:
            high = HIGH_WATER_BYTES_DEFAULT if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be at least low ({low}), and low not negative")
        self._high_bytes = high
        self._low_bytes = low

    def get_write_buffer_size(self) -> int:
        """Bytes written that found no room in the window."""
        return self.backlog_bytes

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass bytes and events to this protocol from now on."""
        self._protocol = protocol

    # --- what the network does to it --------------------------------------------------------

    def receive(self, content: bytes) -> None:
        """Bytes arrived: give them to the protocol. What it raises breaks the connection."""
        protocol = self._protocol
        try:
            if isinstance(protocol, asyncio.BufferedProtocol):
                # Copy them through the protocol's own buffers, as a socket would.
                position = 0
                while position < len(content):
                    # Asked again for each piece: the protocol may give another buffer, of any size.
                    buffer = memoryview(protocol.get_buffer(len(content) - position)).cast("B")
                    piece = content[position : position + len(buffer)]
                    buffer[: len(piece)] = piece
                    protocol.buffer_updated(len(piece))
                    position += len(piece)
            else:
                assert isinstance(protocol, asyncio.Protocol)
                protocol.data_received(content)
        except (SystemExit, KeyboardInterrupt, SimulationError):
            raise
        except BaseException as error:  # noqa: BLE001 -- as asyncio: reported, and the stream ends
            self._report("data_received", error)
            self.out_pipe.truncate()
            self._network.reset_from(self)
            self.lose(error)

    def receive_end(self) -> None:
        """The peer will send no more; unless the protocol wants to go on writing, close."""
        # Before the protocol is told: it may close, or ask whether this end reads.
        self._is_end_received = True
        assert isinstance(self._protocol, (asyncio.Protocol, asyncio.BufferedProtocol))
        if not self._protocol.eof_received():
            self.close()

    def refill_later(self) -> None:
        """The receiver took bytes: the window opens when word of it gets back to this end."""
        # One word of it at a time: what is taken meanwhile is seen when that one arrives.
        if self._is_refill_due:
            return
        self._is_refill_due = True

        def refill() -> None:
            self._is_refill_due = False
            if self.is_gone:
                return
            self._push()
            if self._is_writing_paused and self.backlog_bytes <= self._low_bytes:
                self._is_writing_paused = False
                self._call("resume_writing")
            # The protocol may have written or closed just now. When everything is out, what was
            # asked for meanwhile is done.
            if self._backlog or self.is_gone:
                return
            if self._is_closing:
                self._finish_close()
            elif self._is_end_due:
                self.out_pipe.send(None)

        network = self._network
        network.loop.after(network.delay_s(), refill, context=self.context)

    def lose(self, error: BaseException | None) -> None:
        """The socket broke: tell the protocol, once. Runs in this end's own process."""
        # Both a reset and a time-out may be on their way: the first one breaks the socket.
        if not self.is_gone:
            self._is_closing = True
            self._forget_socket()
            # A broken socket sends nothing more, not even what was written before.
            self.out_pipe.clear()
            self._call_connection_lost(error)

    def die(self) -> None:
        """The process died: nothing reaches the protocol, and nothing it still does goes out."""
        self._is_closing = True
        self._forget_socket()
        self.in_pipe.reroute()

    # --- inside -----------------------------------------------------------------------------

    def _push(self) -> None:
        """Send as much of the backlog as the window has room for."""
        backlog = self._backlog
        pipe = self.out_pipe
        room_bytes = self._network.window_bytes - pipe.unread_bytes
        while backlog and room_bytes > 0:
            content = backlog.popleft()
            # TCP knows no messages: a part goes out, the rest when the window opens.
            if len(content) > room_bytes:
                backlog.appendleft(memoryview(content)[room_bytes:])
                content = memoryview(content)[:room_bytes]
            pipe.send(content)
            room_bytes -= len(content)
            self.backlog_bytes -= len(content)

    def _finish_close(self) -> None:
        self._forget_socket()
        # ``write_eof`` has sent the end already.
        if not self._is_end_due:
            self.out_pipe.send(None)
        # What arrives from now on is answered by a reset, as the machine does for a closed socket.
        if self.in_pipe.segments:
            self.in_pipe.schedule()
        self._network.loop.call_soon(self._call_connection_lost, None, context=self.context)

    def _forget_socket(self) -> None:
        self.is_gone = True
        self._backlog.clear()
        self.backlog_bytes = 0
        # Both ends are gone: faults must not choose this stream any more.
        if self.peer.is_gone:
            self._network.client_ends.pop(self.stream, None)

    def _call_connection_lost(self, error: BaseException | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)  # type: ignore[arg-type]  # as asyncio does it

    def _call(self, name: str) -> None:
        """Call the protocol's ``pause_writing`` or ``resume_writing``; report what it raises."""
        try:
            getattr(self._protocol, name)()
        except (SystemExit, KeyboardInterrupt, SimulationError):
            raise
        except BaseException as error:  # noqa: BLE001 -- as asyncio
            self._report(name, error)

    def _report(self, where: str, error: BaseException) -> None:
        message = f"{type(self._protocol).__qualname__}.{where} failed"
        self._network.loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )
