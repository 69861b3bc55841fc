"""A wire to a server that a test can cut, or on which nothing arrives any more."""

from __future__ import annotations

import asyncio
from typing import Self


class Wire:
    """A TCP relay to the server at ``target``; what is sent while ``is_deaf`` is lost."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.is_deaf = False
        self.refuses = False
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections; new ones are let through unless ``refuses``."""
        for writer in self._writers:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, server_writer}
        await asyncio.gather(self._carry(reader, server_writer), self._carry(server_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(65536):
                if not self.is_deaf:
                    writer.write(chunk)
        except OSError:
            pass
        finally:
            writer.transport.abort()
