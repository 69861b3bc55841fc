"""A web server on a real port of this machine, for what a client asks over HTTP."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    target: str
    headers: dict[str, str]
    body: str

    @property
    def path(self) -> str:
        return urlsplit(self.target).path


@dataclass(frozen=True)
class Answered:
    """Its answer: ``body`` as JSON, or bytes as they are."""

    body: object
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class WebServer:
    url: str
    asked: list[Asked] = field(default_factory=list[Asked])


@asynccontextmanager
async def web_server(
    answer: Callable[[Asked], Answered], context: ssl.SSLContext | None = None
) -> AsyncGenerator[WebServer]:
    """Answers each request as told, and closes its connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        length = int(headers.get("Content-Length", 0))
        asked = Asked(method, target, headers, (await reader.readexactly(length)).decode())
        server.asked.append(asked)
        answered = answer(asked)
        body = answered.body
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {answered.status} So"]
        lines += [f"{name}: {value}" for name, value in answered.headers.items()]
        lines += [f"Content-Length: {len(content)}", "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode() + content)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    scheme = "http" if context is None else "https"
    server = WebServer(f"{scheme}://127.0.0.1:{port}")
    async with listening:
        yield server
