"""Functions at a broker: forwards their REST calls to a functions worker, and runs one beside it.

The worker is a process of its own, as it runs user code. Where it ends, the broker goes on, answers
503 for functions meanwhile, and starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random

from geminga_runtime.backoff import Backoff
from geminga_runtime.network import Network
from geminga_runtime.service import Service
from geminga_server.control.supervision import CONTROL_SOCKET_VARIABLE, PART_NAME_VARIABLE
from geminga_server.http.forwarding import TO_WORKERS, Forwarder, ForwardingLimits
from geminga_server.http.server import AsgiApp, Receive, Scope, Send

log = logging.getLogger(__name__)

# A worker accepts a request at once, and answers most of them at once. For a new function it builds
# an environment, which may take minutes without a byte of the answer. The body of a request is kept
# to be sent again where a worker redirects it to the leader of the workers.
LIMITS = ForwardingLimits(
    connect_timeout_s=5.0, silence_timeout_s=300.0, replay_bytes_max=1024 * 1024
)
RESTART_FIRST_S = 0.5
RESTART_LIMIT_S = 30.0
# How long a worker that is asked to end may let its instances finish the messages they have.
STOP_TIMEOUT_S = 3.0


class FunctionsForwarder(Forwarder):
    """An ASGI application that forwards requests for functions workers to ``urls``.

    All others go to ``app``; so do those for workers where there are no URLs: it refuses them.
    """

    def __init__(self, app: AsgiApp, network: Network, urls: Sequence[str]) -> None:
        super().__init__(network, LIMITS, unreachable_status=503)
        self._app = app
        self._urls = tuple(urls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        # By the path alone: authorization and everything else is the worker's.
        if self._urls and scope["path"].startswith(TO_WORKERS):
            await self.forward(scope, receive, send, self._urls)
        else:
            await self._app(scope, receive, send)


# The worker has three ways to end: its input ends with this process (also where that is killed),
# the broker closes and terminates it, or it ends by itself and is started again.
class WorkerProcess(Service):
    """``geminga functions-worker`` with these ``options``, started again whenever it ends.

    It ends with this process, even where that is killed: it ends with the pipe of its input.
    """

    def __init__(self, options: Mapping[str, str], random: Random) -> None:
        super().__init__()
        self._options = options
        self._backoff = Backoff(RESTART_FIRST_S, RESTART_LIMIT_S, random)

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack
        self.spawn_lasting(self._run, name="run the functions worker")

    async def _run(self) -> None:
        # A flag has an empty value, which is left out: ``--log-json`` stands alone.
        words = [word for option in self._options.items() for word in option if word]
        # The worker is not a part of the supervisor that may have started this broker, and must not
        # answer on its control socket.
        supervised = (CONTROL_SOCKET_VARIABLE, PART_NAME_VARIABLE)
        # Everything else is handed on: proxies, locale and the path of Python modules.
        environment = {name: word for name, word in os.environ.items() if name not in supervised}
        # Until the broker ends, which cancels this.
        while True:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "geminga_cli", "functions-worker", "--stop-with-input"),
                *words,
                # Never written to: its end is the end of this process.
                stdin=asyncio.subprocess.PIPE,
                env=environment,
            )
            try:
                code = await process.wait()
            except asyncio.CancelledError:
                # The worker would end by itself with its input, but only when this process ends.
                # The cancelled task waits for it: no child is left behind.
                process.terminate()
                try:
                    async with asyncio.timeout(STOP_TIMEOUT_S):
                        await process.wait()
                except TimeoutError:
                    # What its instances had not acknowledged is delivered again.
                    process.kill()
                    await process.wait()
                raise
            # Longer each time, and never reset: a worker that ends again and again must not cost
            # the broker's machine more than a start now and then.
            delay_s = self._backoff.next_s()
            log.warning(
                "functions worker ended", extra={"exit_code": code, "started_again_in_s": delay_s}
            )
            await asyncio.sleep(delay_s)
