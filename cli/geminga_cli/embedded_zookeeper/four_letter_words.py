"""Asks a running ZooKeeper how it is, with its four-letter words over plain TCP.

A server that accepts connections may still be loading its data; a client that comes then may wait
out its time-out, because ZooKeeper forgets it (seen with ``srvr`` too, in one start of four). So
ready means: ``srvr`` answers with a version, asked again and again with little patience.
"""

from __future__ import annotations

import asyncio
import logging

from geminga_cli.embedded_zookeeper.metrics import prometheus_text
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

# `mntr` is about 40 KB.
ANSWER_BYTES_MAX = 1024 * 1024
ANSWER_TIMEOUT_S = 2.0
READY_POLL_S = 0.01
# A ready server answers within a millisecond, on a busy machine within some hundred.
FIRST_PATIENCE_S = 0.05
READY_ANSWER = b"Zookeeper version"


async def ask(host: str, port: int, word: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
    """The whole answer to a four-letter word; raises ``OSError``, ``TimeoutError`` among them."""
    async with asyncio.timeout(timeout_s):
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


async def wait_until_ready(host: str, port: int, clock: Clock, timeout_s: float) -> bool:
    """Ask every few milliseconds; False when ``timeout_s`` seconds went by without a yes."""
    deadline_s = clock.monotonic() + timeout_s
    patience_s = FIRST_PATIENCE_S
    while clock.monotonic() < deadline_s:
        try:
            if (await ask(host, port, "srvr", timeout_s=patience_s)).startswith(READY_ANSWER):
                return True
        except TimeoutError:
            patience_s = min(patience_s * 2, ANSWER_TIMEOUT_S)
        except OSError:
            pass  # nobody listens yet
        await asyncio.sleep(READY_POLL_S)
    return False


async def measurements(host: str, port: int) -> str:
    """What ``mntr`` says, as Prometheus text; empty while ZooKeeper does not answer."""
    try:
        return prometheus_text(await ask(host, port, "mntr"))
    except OSError as error:
        log.warning("zookeeper did not tell its measurements", extra={"reason": str(error)})
        return ""
