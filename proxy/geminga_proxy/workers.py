"""Several processes that are one proxy: the kernel gives each new client to one of them.

The parent holds the ports, serves REST and metrics, and keeps ``config.workers`` processes of
``geminga_proxy.worker``. A worker is told its settings through its standard input, which stays open
until the parent ends, however it does; it then ends too. Through its standard output it reports its
numbers every second, which are a sign of life besides: one that is silent is killed, and one that
has ended is replaced.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pickle  # of our own settings, between our own processes
import socket
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial

from geminga_proxy.brokers import Brokers
from geminga_proxy.config import ProxyConfig
from geminga_proxy.errors import NoBroker, NoWorker
from geminga_proxy.metrics import ProxyNumbers
from geminga_runtime.service import Service
from geminga_server.errors import ServerStartError
from geminga_server.ports import family_of

log = logging.getLogger(__name__)

WORKER = "geminga_proxy.worker"
REPORT_S = 1.0
# As long as a supervisor gives to its parts. Its clients are served by no other process meanwhile.
SILENT_S = 30.0
# Less than the parent's own end may take (``run.CLOSE_TIMEOUT_S``): no worker outlives it.
END_TIMEOUT_S = 4.0


class Workers(Service):
    """Keeps the workers. Open, each of them has served; opening raises ``ServerStartError`` where
    one cannot. ``reports`` are the numbers of those that serve, by their names, from "1" on."""

    def __init__(self, config: ProxyConfig, brokers: Brokers) -> None:
        super().__init__()
        self.config = config
        self.reports: dict[str, ProxyNumbers] = {}
        self._brokers = brokers

    async def check_health(self) -> None:
        """Raise where no client can be served: ``NoBroker``, ``NoWorker``."""
        if not self._brokers.view.service_urls:
            raise NoBroker("no broker is there")
        if not self.reports:
            raise NoWorker("no worker serves")

    async def _open(self, stack: AsyncExitStack) -> None:
        # Held, but not listened on: between two lives of the workers nobody else gets them.
        config = self.config
        for port in (config.port, config.port_tls) if config.tls.is_on else (config.port,):
            stack.callback(_held_port(config.bind_address, port).close)
        names = [str(number) for number in range(1, config.workers + 1)]
        loop = asyncio.get_running_loop()
        first: dict[str, asyncio.Future[None]] = {name: loop.create_future() for name in names}
        for name in names:
            self.spawn_lasting(partial(self._keep, name, first[name]), name=f"worker {name}")
        await asyncio.gather(*first.values())

    async def _keep(self, name: str, first: asyncio.Future[None]) -> None:
        """Run a worker to its end; a second later, as lasting work, the next one. ``first`` is done
        when the first one serves, or cannot."""
        process = await self._start(name)
        try:
            await self._follow(name, process, first)
        finally:
            self.reports.pop(name, None)
            await _end(process)
        log.warning("worker ended", extra={"worker": name, "exit_code": process.returncode})
        if not first.done():
            first.set_exception(ServerStartError("a worker cannot serve: its log says why"))

    async def _start(self, name: str) -> Process:
        config = self.config
        limits = config.connections
        share = -(-limits.connections_max // config.workers)  # rounded up; 0 stays 0
        told = replace(config, workers=1, connections=replace(limits, connections_max=share))
        words = sys.executable, "-m", WORKER
        # In a session of its own: Ctrl-C at a terminal is the parent's to handle.
        process = await asyncio.create_subprocess_exec(
            *words, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        assert process.stdin is not None
        process.stdin.write(pickle.dumps((name, told)))
        return process

    async def _follow(self, name: str, process: Process, first: asyncio.Future[None]) -> None:
        """Take reports until the worker ends, or has been silent for too long."""
        assert process.stdout is not None
        while True:
            try:
                async with asyncio.timeout(SILENT_S):
                    report = await process.stdout.readline()
            except TimeoutError:
                log.error("worker is silent", extra={"worker": name, "silent_s": SILENT_S})  # noqa: TRY400 - no trace
                process.kill()
                return
            if not report:
                return
            self.reports[name] = ProxyNumbers(**json.loads(report))
            if not first.done():
                first.set_result(None)


async def _end(process: Process) -> None:
    """Have a worker end in order, or else at once: it has ended on every way out of here."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT_S):
                await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _held_port(host: str, port: int) -> socket.socket:
    """A socket that is bound as those of the workers are."""
    held = socket.socket(family_of(host))
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        held.bind((host, port))
    except OSError:
        held.close()
        raise
    return held
