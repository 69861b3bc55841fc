"""Very many topics in one client: what a producer and a consumer take of its memory, how fast they
are opened, and how many connections they share.

The client has a process of its own, which is this module run as a program.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.performance.loads.clients import run_client
from tests.performance.loads.measure import Figures, Phases
from tests.performance.loads.official_client import FINISH_S_MAX, NAMESPACE
from tests.performance.rivals.processes import process_pss_mb
from tests.performance.rivals.servers import Server

import geminga

# So many are about to be opened, or closed, at any time.
AT_ONCE = 200
MB = 1024 * 1024


def client_topics(server: Server, *, topics: int) -> Phases:
    """Open a producer on each topic, then a consumer, and send a message to each."""
    prefix = f"persistent://{NAMESPACE}/client-topics-{time.time_ns()}"
    phases: Phases = json.loads(run_client("-m", __name__, server.service_url, prefix, str(topics)))
    return phases


async def _each(count: int, work: Callable[[int], Awaitable[Any]]) -> list[Any]:
    done: list[Any] = []
    for first in range(0, count, AT_ONCE):
        several = range(first, min(count, first + AT_ONCE))
        done += await asyncio.gather(*[work(number) for number in several])
    return done


async def _measured(count: int, work: Callable[[int], Awaitable[Any]]) -> tuple[list[Any], Figures]:
    gc.collect()
    before_mb = process_pss_mb(os.getpid())
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    done = await _each(count, work)
    took_s, cpu_s = time.monotonic() - begun_s, time.process_time() - begun_cpu_s
    gc.collect()
    return done, {
        "bytes": (process_pss_mb(os.getpid()) - before_mb) * MB / count,
        "per_s": count / took_s,
        "cpu_us": cpu_s / count * 1e6,
    }


async def _drive(url: str, prefix: str, count: int) -> Phases:
    async with asyncio.timeout(FINISH_S_MAX), geminga.connect(url) as client:

        async def produce(number: int) -> geminga.Producer[bytes]:
            return await client.producer(f"{prefix}-{number}")

        async def consume(number: int) -> geminga.Consumer[bytes]:
            return await client.consumer(f"{prefix}-{number}", "s", initial_position="earliest")

        await (await produce(count)).close()  # what the first connection takes is no topic's
        sockets = _sockets()
        producers, produced = await _measured(count, produce)
        consumers, consumed = await _measured(count, consume)

        async def pass_on(number: int) -> None:
            await producers[number].send(b"x" * 100)
            message = await consumers[number].receive()
            await consumers[number].ack_confirmed(message)

        _, passed = await _measured(count, pass_on)
        passed["connections"] = 1 + _sockets() - sockets
        await _each(count, lambda number: consumers[number].unsubscribe())
        await _each(count, lambda number: producers[number].close())
    return {"producer": produced, "consumer": consumed, "message": passed}


def _sockets() -> int:
    return sum(
        each.is_symlink() and str(each.readlink()).startswith("socket:")
        for each in Path("/proc/self/fd").iterdir()
    )


if __name__ == "__main__":
    service_url, topic_prefix, topic_count = sys.argv[1:]
    print(json.dumps(asyncio.run(_drive(service_url, topic_prefix, int(topic_count)))))
