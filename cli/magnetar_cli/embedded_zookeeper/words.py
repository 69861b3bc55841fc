"""Asks a running ZooKeeper how it is, with its four-letter words over plain TCP.

A server that accepts connections may still be loading its data and refuse sessions; a client that
comes then waits out its time-out. So ready means: ``srvr`` answers with a version.
"""

from __future__ import annotations

import asyncio

from magnetar_runtime.clock import Clock

# `mntr` is about 40 KB.
ANSWER_BYTES_MAX = 1024 * 1024
ANSWER_TIMEOUT_S = 2.0
READY_POLL_S = 0.01
READY_ANSWER = b"Zookeeper version"


async def ask(host: str, port: int, word: str) -> bytes:
    """The whole answer to a four-letter word; raises ``OSError``, ``TimeoutError`` among them."""
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(word.encode())
            answer = bytearray()
            while chunk := await reader.read(65_536):
                answer += chunk
                if len(answer) > ANSWER_BYTES_MAX:
                    raise OSError(f"the answer to {word} is longer than {ANSWER_BYTES_MAX} bytes")
            return bytes(answer)
        finally:
            writer.close()


async def is_ready(host: str, port: int) -> bool:
    """Whether ZooKeeper there serves sessions now."""
    try:
        return (await ask(host, port, "srvr")).startswith(READY_ANSWER)
    except OSError:
        return False


async def wait_until_ready(host: str, port: int, clock: Clock, timeout_s: float) -> bool:
    """Ask every few milliseconds; False when ``timeout_s`` seconds went by without a yes."""
    deadline_s = clock.monotonic() + timeout_s
    while not await is_ready(host, port):
        if clock.monotonic() >= deadline_s:
            return False
        await asyncio.sleep(READY_POLL_S)
    return True
