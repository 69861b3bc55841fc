"""Asks a running ZooKeeper for its state, with its four-letter words over plain TCP.

A server that accepts connections may still be loading its data. A client that connects then may
wait for its whole time-out, because ZooKeeper forgets it (seen with ``srvr`` too, in one start of
four). So a server is ready when ``srvr`` answers with a version; it is asked again and again, and
each time only briefly.
"""

from __future__ import annotations

import asyncio
import logging

from geminga_cli.embedded_zookeeper.metrics import prometheus_text
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

# A longer answer is none of ZooKeeper's: that to `mntr` has about 40 KB.
ANSWER_BYTES_MAX = 1024 * 1024
ANSWER_TIMEOUT_S = 2.0
READY_POLL_S = 0.01
# How long the first `srvr` may take. A ready server answers within a millisecond, on a busy machine
# within some hundred: the limit doubles each time that it was too short.
FIRST_TIMEOUT_S = 0.05
READY_ANSWER = b"Zookeeper version"


async def ask(host: str, port: int, word: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
    """The whole answer to a four-letter word; raises ``OSError``, ``TimeoutError`` among them."""
    # The limit is for the whole exchange: connecting, asking and the last byte of the answer.
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(word.encode())
            answer = bytearray()
            # The server closes the connection behind its answer, which is the only end mark.
            while chunk := await reader.read(65_536):
                answer += chunk
                if len(answer) > ANSWER_BYTES_MAX:
                    raise OSError(f"the answer to {word} is longer than {ANSWER_BYTES_MAX} bytes")
            return bytes(answer)
        finally:
            writer.close()


async def wait_until_ready(host: str, port: int, clock: Clock, timeout_s: float) -> bool:
    """Ask every few milliseconds until the server is ready; False after ``timeout_s`` seconds."""
    # The last question may begin just before the deadline: the caller waits up to
    # ``ANSWER_TIMEOUT_S`` longer.
    deadline_s = clock.monotonic() + timeout_s
    answer_timeout_s = FIRST_TIMEOUT_S
    while clock.monotonic() < deadline_s:
        try:
            answer = await ask(host, port, "srvr", timeout_s=answer_timeout_s)
            if answer.startswith(READY_ANSWER):
                return True
        except TimeoutError:
            # It may be slow and not stuck: on a busy machine a fixed limit would never be enough.
            answer_timeout_s = min(answer_timeout_s * 2, ANSWER_TIMEOUT_S)
        except OSError:
            pass  # it does not listen yet
        await asyncio.sleep(READY_POLL_S)
    return False


async def measurements(host: str, port: int) -> str:
    """The answer to ``mntr`` as Prometheus text; empty while ZooKeeper does not answer."""
    try:
        return prometheus_text(await ask(host, port, "mntr"))
    except OSError as error:
        log.warning("zookeeper did not answer mntr", extra={"reason": str(error)})
        return ""
