"""One connection between supervisor and part: messages over a Unix socket, at a path of any length.

Only the user who runs the supervisor can connect. A peer that sends anything but messages, or reads
nothing more, is disconnected.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from geminga_runtime.control_codec import (
    CONTROL,
    ControlMessageError,
    MessageCodec,
    MessageReader,
    UnknownMessage,
)
from geminga_server.errors import ControlError

log = logging.getLogger(__name__)

# Longer paths do not fit into a socket's address (sun_path, with its final zero, on macOS).
SOCKET_PATH_BYTES_MAX = 103
# A peer that leaves this much unread counts as stuck: thousands of messages.
UNREAD_BYTES_MAX = 256 * 1024
# Connections that wait to be accepted: the parts of a cluster, which start together.
BACKLOG = 32

OnMessage = Callable[["Channel", object], None]
OnLost = Callable[["Channel"], None]


class Channel(asyncio.Protocol):
    """Sends and receives control messages until either side ends it.

    ``on_message`` is called with each message of a known kind; it raises ``ControlError`` for one
    that the peer must not send, which ends the channel. ``on_lost`` is called once, at the end.
    ``codec`` knows the kinds of messages that this channel has.
    """

    def __init__(
        self, on_message: OnMessage, on_lost: OnLost, codec: MessageCodec = CONTROL
    ) -> None:
        self._on_message = on_message
        self._on_lost = on_lost
        self._codec = codec
        self._reader = MessageReader(codec)
        self._transport: asyncio.Transport | None = None
        # ``close`` was called, perhaps before the connection was made.
        self._is_unwanted = False
        # Messages are sent and received.
        self.is_open = False

    def send(self, message: object) -> None:
        """Send ``message``; nothing happens where the channel has ended already."""
        transport = self._transport
        if transport is None or not self.is_open:
            return
        transport.write(self._codec.encode(message))
        # Looked at after writing: what the kernel took at once does not count.
        if transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            log.warning("control peer takes nothing", extra={"unread_bytes_max": UNREAD_BYTES_MAX})
            # Not ``close``, which would wait until the peer takes what is buffered.
            transport.abort()

    def close(self) -> None:
        """End the channel, after what was sent; also one whose connection is still being made."""
        # ``connection_made`` comes after this where the peer was still being connected.
        self._is_unwanted = True
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's."""
        # Not isinstance: uvloop's transports descend from nothing of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = not self._is_unwanted
        if self._is_unwanted:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """asyncio's."""
        try:
            for message in self._reader.feed(data):
                # A message before it ended the channel: what follows in this chunk is dropped.
                if not self.is_open:
                    return
                # Not refused: supervisor and parts are replaced one after the other in an upgrade.
                if isinstance(message, UnknownMessage):
                    log.info("control message of a newer peer", extra={"kind": message.kind})
                else:
                    self._on_message(self, message)
        except (ControlMessageError, ControlError) as error:
            log.warning("control peer misunderstood", extra={"reason": str(error)})
            # The stream has no marks by which a reader could find the next message again.
            self.is_open = False
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        """asyncio's."""
        self.is_open = False
        # Last: messages that are sent from within go nowhere, as those that come later.
        self._on_lost(self)


async def listen(path: Path, make_channel: Callable[[], Channel]) -> asyncio.Server:
    """Accept channels at ``path``. A socket that a killed process left there is replaced.

    Raises ``OSError`` where the socket cannot be made.
    """
    sock = _bind(path)
    # Not create_unix_server: from Python 3.13 on that removes the name it was given at the end,
    # which may be the short one, and then complains.
    return await asyncio.get_running_loop().create_server(make_channel, sock=sock, backlog=BACKLOG)


def _bind(path: Path) -> socket.socket:
    # The name of a socket outlives its process, and a name that exists cannot be bound
    # (EADDRINUSE).
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mask, not a chmod afterwards: from its first moment on only its owner can connect to it.
    old_mask = os.umask(0o177)
    try:
        with _short(path) as address:
            sock.bind(address)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(old_mask)
    return sock


async def connect(path: Path, make_channel: Callable[[], Channel]) -> Channel:
    """A channel to the process that listens at ``path``. Raises ``OSError`` where none does."""
    with _short(path) as address:
        _, channel = await asyncio.get_running_loop().create_unix_connection(make_channel, address)
        return channel


@contextmanager
def _short(path: Path) -> Generator[str]:
    """A name for ``path`` that fits into a socket's address, valid until the block ends.

    Test directories are easily too deep; Linux finds a directory through its open descriptor.
    """
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        yield str(path)
        return
    # Open until the socket is bound or connected: the name leads through this very descriptor.
    # Afterwards the kernel knows the socket by its inode, whatever the name was.
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)
