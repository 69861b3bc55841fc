"""A ZooKeeper server as a process of ours: its settings, Java as its child, its metrics page.

It is for clusters whose parts run on their own; a standalone's supervisor starts Java itself. When
Java ends, this process ends too, and what runs it (systemd, a container engine) restarts both.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path

from geminga_cli.embedded_zookeeper.configuration import ZooKeeperSettings
from geminga_cli.embedded_zookeeper.four_letter_words import measurements, wait_until_ready
from geminga_cli.embedded_zookeeper.installation import Installation
from geminga_cli.embedded_zookeeper.provide import provide_zookeeper
from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings
from geminga_cli.errors import StartFailed
from geminga_cli.ports import reserve
from geminga_cli.standard_input import is_stream, stop_at_end_of_input
from geminga_cli.supervisor.lifecycle.fleet import START_TIMEOUT_S
from geminga_cli.supervisor.lifecycle.orders import PartRules
from geminga_cli.supervisor.metrics_page import MetricsPage
from geminga_cli.supervisor.parts import ZooKeeperPart
from geminga_cli.supervisor.process import Process, exit_words
from geminga_cli.supervisor.watch import exit_of
from geminga_runtime.clock import SystemClock
from geminga_runtime.network import AsyncioNetwork
from geminga_server.config.loading import load_config
from geminga_server.control.readiness import announce_readiness
from geminga_server.directories import DirectoryLock
from geminga_server.logging import configure_logging
from geminga_server.ports import require_distinct
from geminga_server.run import StopRequest, run_part

log = logging.getLogger(__name__)

# The section of the file, and the name in messages.
PART = "zookeeper"
# Java stops within 0.4 s of being asked; after this time it is killed.
STOP_TIMEOUT_S = 4.0


def main(file: Path | None, flags: Mapping[str, object]) -> int:
    """Run a server until it is told to stop, or Java ends; returns the process's exit code.

    Everything that can fail is tried before ZooKeeper is fetched, which may take minutes.
    """
    settings = load_config(ZooKeeperPartSettings, PART, file=file, flags=flags)
    require_distinct({"--port": settings.port, "--metrics-port": settings.metrics_port})
    configure_logging(PART, level=settings.log_level, is_json=settings.log_json)
    with ExitStack() as stack:
        # As the supervisor does: two servers on one directory would destroy its data. Java inherits
        # the descriptor: should this process be killed and Java live on for a moment, the lock is
        # still held.
        lock = DirectoryLock(settings.server().data_directory, SystemClock())
        stack.callback(lock.close)
        host = settings.bind_address
        # Held while Java is fetched and restarted, so that no other program takes the ports.
        stack.enter_context(reserve(host, settings.port, "--port"))
        metrics_port = stack.enter_context(reserve(host, settings.metrics_port, "--metrics-port"))
        # Port 0 has become a number, which stays the same when Java is started again.
        settings = replace(settings, metrics_port=metrics_port.port)
        installation = provide_zookeeper()
        return run_part(lambda stop: serve(settings, installation, stop, [lock.descriptor]))


async def serve(
    settings: ZooKeeperPartSettings,
    installation: Installation,
    stop: StopRequest,
    inherited: Sequence[int] = (),
) -> None:
    """Start Java, report when it is ready, and wait for a request to stop.

    ``inherited`` are descriptors that Java keeps, such as the lock of its data. Raises
    ``StartFailed`` where Java is not ready in time, or ends.
    """
    server = settings.server()
    rules = PartRules(PART, STOP_TIMEOUT_S)
    if settings.stop_with_input and is_stream():
        loop = asyncio.get_running_loop()
        stop_at_end_of_input(loop, lambda: stop.ask("standard input ended"))
    async with AsyncExitStack() as stack:
        # The supervisor's part, which knows how Java is started; nothing else of it is used.
        process = ZooKeeperPart(rules, server, installation, inherited).launch()
        # Before anything can fail: from here on ``_end`` is responsible for the process.
        exited = exit_of(process)
        # The page opens after this and therefore closes before Java is asked to stop.
        stack.push_async_callback(_end, process, exited)
        page = await stack.enter_async_context(
            MetricsPage(
                AsyncioNetwork(),
                settings.bind_address,
                settings.metrics_port,
                lambda: measurements(server.local_host, server.port),
            )
        )
        try:
            # A stop ends this by cancellation: ``run_part`` cancels ``serve`` when it is asked to
            # stop, which reaches both tasks. Without that the group would wait for Java, which has
            # not been asked to end yet.
            async with asyncio.TaskGroup() as group:
                # Either task ends the group by raising: Java that is not ready in time, or that
                # ended.
                group.create_task(_say_when_ready(server, page.port))
                group.create_task(_fail_when_java_ends(server, exited))
                await stop.wait()
        except ExceptionGroup as errors:
            # Not except*: until Python 3.11.4, what is raised there is put into a group again.
            failed = errors.subgroup(StartFailed)
            if failed is None:
                raise
            raise failed.exceptions[0] from None


async def _say_when_ready(server: ZooKeeperSettings, metrics_port: int) -> None:
    clock = SystemClock()
    if not await wait_until_ready(server.local_host, server.port, clock, START_TIMEOUT_S):
        raise StartFailed(PART, f"its log is {server.log_file}")
    log.info("zookeeper serves", extra={"address": server.address, "metrics_port": metrics_port})
    announce_readiness(server.address)


async def _fail_when_java_ends(server: ZooKeeperSettings, exited: asyncio.Future[int]) -> None:
    how = exit_words(await exited)
    raise StartFailed(PART, f"Java ended ({how}); its log is {server.log_file}")


async def _end(process: Process, exited: asyncio.Future[int]) -> None:
    """Ask Java to stop, and kill it if it does not."""
    process.signal(signal.SIGTERM)
    # ``wait`` neither cancels nor raises at its timeout, as ``wait_for`` would: the future is
    # needed below.
    await asyncio.wait({exited}, timeout=STOP_TIMEOUT_S)
    if not exited.done():
        process.signal(signal.SIGKILL)
        await exited
