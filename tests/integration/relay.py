"""A TCP relay before a server, which a test can cut or silence, in one direction or in both."""

from __future__ import annotations

import asyncio
from typing import Self


class Wire:
    """A TCP relay to the server at ``target``; what is sent while ``is_deaf`` is lost.

    ``requests`` and ``answers`` let through what goes to the server and what comes from it. Bytes
    that find them closed wait until they are open, as in a partitioned network: TCP sends them
    again for longer than the tests wait.
    """

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.is_deaf = False
        self.refuses = False
        self.address = ""
        self.requests, self.answers = asyncio.Event(), asyncio.Event()
        self.requests.set()
        self.answers.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections; new ones are accepted unless ``refuses``."""
        for writer in self._writers:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:  # the relay refuses as a host does on which no server listens
            writer.transport.abort()
            return
        self._writers.add(server_writer)
        if writer.transport.is_closing():  # the relay was cut while it connected to the server
            server_writer.transport.abort()
            return
        await asyncio.gather(
            self._carry(reader, server_writer, self.requests),
            self._carry(server_reader, writer, self.answers),
        )

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        try:
            while chunk := await reader.read(65536):
                await gate.wait()
                # Whose end is gone is told so when answers come through again.
                if not self.is_deaf and not writer.transport.is_closing():
                    writer.write(chunk)
        except OSError:
            pass
        finally:
            writer.transport.abort()
