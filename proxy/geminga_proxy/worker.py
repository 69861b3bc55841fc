"""One of several processes that are one proxy; ``workers`` starts it and says how they talk."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict
from typing import cast

from geminga_proxy.config import ProxyConfig
from geminga_proxy.metrics import ProxyNumbers
from geminga_proxy.part import PART, known_brokers, make_proxy, with_connections
from geminga_proxy.workers import REPORT_S
from geminga_server.control.supervision import part_name
from geminga_server.logging import configure_logging
from geminga_server.memory import tune_memory
from geminga_server.open_files import open_files
from geminga_server.run import StopRequest, run_part
from geminga_server.tls.renewal import accepting_tls

# A pipe takes up to so many bytes (Linux's PIPE_BUF) at once or not at all: no report is cut.
REPORT_BYTES_MAX = 4096


def main() -> int:
    """Serve until told to stop, or until the parent is gone; return the process's exit code."""
    # The first thing on standard input, written by our parent.
    name, config = cast(tuple[str, ProxyConfig], pickle.load(sys.stdin.buffer))  # noqa: S301 - ours
    configure_logging(
        f"{part_name(PART)}-worker-{name}", level=config.log_level, is_json=config.log_json
    )
    return run_part(lambda stop: serve(config, stop))


async def serve(config: ProxyConfig, stop: StopRequest) -> None:
    """Open the proxy, then report its numbers every second."""
    tune_memory()
    loop = asyncio.get_running_loop()
    # Nothing more comes on it, so it becomes readable when its other end is closed: when the parent
    # is gone, however it ended.
    loop.add_reader(sys.stdin, stop.ask, "the parent is gone")
    # The worker's own limit, which the parent's process does not share.
    config = with_connections(config, open_files())
    async with AsyncExitStack() as stack:
        brokers = await known_brokers(config, stack, stop)
        tls = await accepting_tls(config.tls, stack)
        # Ports are the parent's choice; this one listens on them beside the other workers.
        proxy = make_proxy(config, brokers, tls, shares_ports=True)
        # Serves from here on: the first report, which follows at once, tells the parent so.
        await stack.enter_async_context(proxy)
        # A parent that does not read must not stop the proxy.
        os.set_blocking(sys.stdout.fileno(), False)
        while True:
            numbers = asdict(ProxyNumbers.of(proxy))
            # The parent's CPU time says nothing of this process's.
            numbers["counters"]["geminga_proxy_worker_cpu_seconds_total"] = sum(os.times()[:2])
            line = json.dumps(numbers).encode() + b"\n"
            assert len(line) <= REPORT_BYTES_MAX
            # A parent that is paused misses reports. Standard input tells when it is gone.
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(sys.stdout.fileno(), line)
            # ``run_part`` cancels this loop when the parent is gone or asks to stop.
            await asyncio.sleep(REPORT_S)


if __name__ == "__main__":
    sys.exit(main())
