"""Several processes that are one proxy: the kernel gives each new client to one of them.

The parent holds the ports, serves REST and metrics, and runs ``config.workers`` processes of
``geminga_proxy.worker``. The protocol between them:

- A worker gets its settings on its standard input, which then stays open until the parent ends,
  however it does. That is how the worker learns of it, and ends too.
- On its standard output it reports its numbers every second, a line of JSON each. They are its sign
  of life too: a worker that is silent is killed, and one that has ended is replaced.
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
# As long as a supervisor gives its parts. No other process serves the worker's clients meanwhile.
SILENT_S = 30.0
# Less than the parent's own end may take (``run.CLOSE_TIMEOUT_S``): no worker outlives it.
END_TIMEOUT_S = 4.0


class Workers(Service):
    """Runs the workers. Entering returns when each of them serves.

    Raises ``ServerStartError`` where one cannot.
    """

    def __init__(self, config: ProxyConfig, brokers: Brokers) -> None:
        super().__init__()
        self.config = config
        # The last numbers of the workers that serve, by their names, which are "1" and on. A worker
        # that ends is taken out at once, so the metrics and the health show only living ones.
        self.reports: dict[str, ProxyNumbers] = {}
        self._brokers = brokers

    async def check_health(self) -> None:
        """Raise where no client can be served: ``NoBroker``, ``NoWorker``."""
        if not self._brokers.view.service_urls:
            raise NoBroker("no broker is there")
        if not self.reports:
            raise NoWorker("no worker serves")

    async def _open(self, stack: AsyncExitStack) -> None:
        # Bound as the workers bind them, but not listened on: while no worker runs, no other
        # program gets the ports.
        config = self.config
        # With port 0 ``part`` has chosen one before, so all workers bind the same.
        for port in (config.port, config.port_tls) if config.tls.is_on else (config.port,):
            held = socket.socket(family_of(config.bind_address))
            stack.callback(held.close)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            # No ``listen``: the kernel gives connections to listening sockets only, so none comes
            # here.
            held.bind((config.bind_address, port))
        # All are started at once, so that many take no longer than one.
        names = [str(number) for number in range(1, config.workers + 1)]
        loop = asyncio.get_running_loop()
        # Resolved by the first start of each; later starts of the same name find it done.
        first: dict[str, asyncio.Future[None]] = {name: loop.create_future() for name in names}
        for name in names:
            self.spawn_lasting(partial(self._keep, name, first[name]), name=f"worker {name}")
        # Raises the first error; leaving this service then ends the other workers.
        await asyncio.gather(*first.values())

    async def _keep(self, name: str, first: asyncio.Future[None]) -> None:
        """Run a worker to its end. As lasting work this is repeated a second later.

        ``first`` is done when the first worker of this name serves, or cannot.
        """
        config = self.config
        limits = config.connections
        # Each takes its share of the clients. Rounded up; 0, which is no limit, stays 0.
        share = -(-limits.connections_max // config.workers)
        settings = replace(config, workers=1, connections=replace(limits, connections_max=share))
        words = sys.executable, "-m", WORKER
        # In a session of its own: Ctrl-C at a terminal is the parent's to handle.
        process = await asyncio.create_subprocess_exec(
            *words, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        assert process.stdin is not None
        # The settings fit into the pipe, or are sent on as the worker reads: nothing waits for that
        # here. The pipe is not closed, as its end is the worker's sign to end.
        process.stdin.write(pickle.dumps((name, settings)))
        try:
            await self._follow(name, process, first)
        finally:
            # Before the worker has ended: its last numbers must not count as those of a process
            # that serves.
            self.reports.pop(name, None)
            # In order, or else at once: it has ended on every way out of here.
            with suppress(ProcessLookupError):
                process.terminate()
            # Also where this task is cancelled meanwhile: then the ``finally`` below kills at once.
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(END_TIMEOUT_S):
                        await process.wait()
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
        log.warning("worker ended", extra={"worker": name, "exit_code": process.returncode})
        # Only at the start of the proxy: afterwards a worker is replaced, and clients go to the
        # others.
        if not first.done():
            first.set_exception(ServerStartError("a worker cannot serve: its log says why"))

    async def _follow(self, name: str, process: Process, first: asyncio.Future[None]) -> None:
        """Take reports until the worker ends, or has been silent for too long."""
        assert process.stdout is not None
        while True:
            try:
                async with asyncio.timeout(SILENT_S):
                    report = await process.stdout.readline()
            except TimeoutError:
                log.error("worker is silent", extra={"worker": name, "silent_s": SILENT_S})  # noqa: TRY400 - no trace
                # It does not react to ``terminate`` either, as its loop hangs.
                process.kill()
                return
            if not report:  # the worker has closed its standard output: it has ended
                return
            # The whole report replaces the one before: numbers are totals, not differences.
            self.reports[name] = ProxyNumbers(**json.loads(report))
            if not first.done():
                first.set_result(None)
