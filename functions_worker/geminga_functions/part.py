"""The process of a functions worker: settings, logs, the client of its brokers, the worker, REST.

The port answers from the first moment, so that a broker or a proxy in front of it can report what
is wrong. The worker itself opens once brokers answer; then the supervisor gets ``ready``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import geminga
from geminga_functions.cluster.membership import WorkerInfo
from geminga_functions.config import FunctionsWorkerConfig
from geminga_functions.instance.spec import SECURED
from geminga_functions.metrics import WorkerNumbers
from geminga_functions.namespace import keep_for_ever
from geminga_functions.worker import Worker, runtime_of
from geminga_protocol.pulsar.features import SERVER_VERSION
from geminga_runtime.clock import Clock, SystemClock
from geminga_server.authorization import Resource
from geminga_server.config.loading import load_config
from geminga_server.control.client import PartCommands, obeying_supervisor
from geminga_server.control.supervision import part_name
from geminga_server.http.rest_calls import HttpCalls
from geminga_server.http.server import AsgiApp, HttpServer, Receive, Scope, Send
from geminga_server.logging import configure_logging
from geminga_server.memory import tune_memory
from geminga_server.metrics import LoopLag, PartMetrics, part_app
from geminga_server.open_files import open_files
from geminga_server.ports import free_port, require_distinct
from geminga_server.run import StopRequest, run_part
from geminga_server.tls.renewal import accepting_tls

log = logging.getLogger(__name__)

PART = "functions-worker"
STARTING = b'{"reason":"this functions worker is starting"}'
INPUT_BYTES = 4096
# Of the worker's client, which publishes records and heartbeats, and packages in small parts.
# Instances in threads have clients of their own.
MEMORY_LIMIT_BYTES = 64 * 1024 * 1024


def main(file: Path | None, flags: Mapping[str, object]) -> int:
    """Run a functions worker until it is stopped; returns the process's exit code."""
    config = load_config(FunctionsWorkerConfig, PART, file=file, flags=flags)
    configure_logging(part_name(PART), level=config.log_level, is_json=config.log_json)
    return run_part(lambda stop: serve(config, stop))


async def serve(config: FunctionsWorkerConfig, stop: StopRequest) -> None:
    """Open everything in order, report that the worker is ready, and wait for the stop."""
    tune_memory()
    files = open_files()
    clock = SystemClock()
    began_s = clock.monotonic()
    metrics = PartMetrics(PART)
    # Before anything that shows the port to others: the worker's id, its consumer's name, its URL.
    config = with_ports(config)
    me = identity(config)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(LoopLag(metrics))
        # Opened first and closed last: everything below talks to brokers by it.
        tls = config.broker_tls.client_tls if config.service_url.startswith(SECURED) else None
        client = await stack.enter_async_context(
            geminga.connect(config.service_url, tls=tls, memory_limit_bytes=MEMORY_LIMIT_BYTES)
        )
        # The id may be made of the port, which is known only now.
        config = replace(config, worker_id=me.worker_id)
        # Made here, but opened below: the health of a worker that is not open is already asked for.
        worker = worker_of(config, me, client, clock)
        own = part_app(
            metrics, check_health=worker.check_health, resource=Resource("cluster", PART)
        )
        app = Front(own)
        http = HttpServer(
            app,
            config.bind_address,
            config.worker_port,
            clock=clock,
            connections_max=files.http,
            metrics=metrics,
        )
        # Below the client and above the worker: it answers while the worker waits for brokers, and
        # still while the worker ends its instances.
        await stack.enter_async_context(http)
        await serve_tls(config, http, app, stack)
        # Before the worker publishes anything that brokers might trim. Waits for brokers.
        await keep_for_ever(worker.calls, worker.web_url, config.pulsar_functions_namespace)
        # Returns once it has read the functions and assignments.
        await stack.enter_async_context(worker)
        # The import takes a third of a second: in a thread, since the worker may lead by now, and
        # runs instances.
        app.rest = await asyncio.to_thread(rest_app, worker)
        start_up_ms = (clock.monotonic() - began_s) * 1000
        numbers = await stack.enter_async_context(WorkerNumbers(worker, start_up_ms))
        # After ``numbers`` has opened: a scrape before that shows the part alone.
        metrics.collectors.append(numbers.families)
        addresses = addresses_of(config, me)
        log.info("functions worker serves", extra={"worker": str(me), **addresses})
        # Only now may the supervisor hear of this process: it takes the connection for its being
        # ready.
        commands = PartCommands(shutdown=stop.ask, check_health=worker.check_health)
        await stack.enter_async_context(
            obeying_supervisor(PART, SERVER_VERSION, commands, addresses)
        )
        # Last: a broker that has ended meanwhile is noticed all the same, by the end of the input.
        if config.stop_with_input:
            worker.spawn(stop_at_end_of_input(stop), name="wait for the end of standard input")
        await stop.wait()


async def stop_at_end_of_input(stop: StopRequest) -> None:
    """Ask to stop once standard input is closed."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(INPUT_BYTES):
        pass
    # It is not read for its content: only its end has a meaning.
    stop.ask("standard input ended")


def worker_of(
    config: FunctionsWorkerConfig, me: WorkerInfo, client: geminga.Client, clock: Clock
) -> Worker:
    """The worker of this process, to be opened; its instances get our environment variables."""
    calls, random = HttpCalls(tls=config.broker_tls.context), Random()  # noqa: S311  # jitter
    runtime = runtime_of(
        config, me, client, calls, environment=os.environ, clock=clock, random=random
    )
    copies = config.runtime.directory.resolve() / "states"
    return Worker(
        config, me, client, calls, runtime=runtime, clock=clock, random=random, copies=copies
    )


async def serve_tls(
    config: FunctionsWorkerConfig, http: HttpServer, app: AsgiApp, stack: AsyncExitStack
) -> None:
    """Also serve ``app`` with TLS, if that is enabled, until ``stack`` is closed."""
    if config.tls_enabled:
        tls = await accepting_tls(config.tls, stack)
        address = config.bind_address, config.worker_port_tls
        await stack.enter_async_context(HttpServer(app, *address, beside=http, tls=tls))


def addresses_of(config: FunctionsWorkerConfig, me: WorkerInfo) -> dict[str, str]:
    """The URLs of the worker, by the names that the supervisor knows."""
    addresses = {"web": me.url, "metrics": f"{me.url}/metrics/"}
    if config.tls_enabled:
        addresses["web_tls"] = f"https://{me.hostname}:{config.worker_port_tls}"
    return addresses


def with_ports(config: FunctionsWorkerConfig) -> FunctionsWorkerConfig:
    """``config`` with free ports in place of 0.

    Raises ``ServerStartError`` for a port that cannot be listened on, and for TLS files that cannot
    be used.
    """
    # Only to fail at once, not at the first request, if a file cannot be used.
    config.broker_tls.context()
    config = replace(config, worker_port=free_port(config.bind_address, config.worker_port))
    if not config.tls_enabled:
        return config
    require_distinct(
        {"--worker-port": config.worker_port, "--worker-port-tls": config.worker_port_tls}
    )
    return replace(config, worker_port_tls=free_port(config.bind_address, config.worker_port_tls))


def identity(config: FunctionsWorkerConfig) -> WorkerInfo:
    """The worker as other workers see it; ``worker_port`` must not be 0 any more."""
    host = config.worker_hostname or config.bind_address
    return WorkerInfo(config.worker_id or f"{host}-{config.worker_port}", host, config.worker_port)


def rest_app(worker: Worker) -> AsgiApp:
    """The REST application, whose import loads the web framework."""
    from geminga_functions.admin.app import worker_app  # noqa: PLC0415 - see above

    return worker_app(worker)


@dataclass(slots=True, eq=False)
class Front:
    """The application of the worker's port.

    Health and metrics are served from the first moment, REST once ``rest`` is set; until then REST
    requests are answered with 503.
    """

    # Health and metrics.
    own: AsgiApp
    # REST; None until the worker serves.
    rest: AsgiApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not scope["path"].startswith("/admin/"):
            await self.own(scope, receive, send)
        elif self.rest is not None:
            await self.rest(scope, receive, send)
        else:
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            await send({"type": "http.response.body", "body": STARTING})
