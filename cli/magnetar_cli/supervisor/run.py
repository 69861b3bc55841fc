"""Runs a supervisor on uvloop until its cluster has ended, and tells people and programs of it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping

from magnetar_cli.errors import StartFailed
from magnetar_cli.supervisor.console import next_steps, ready_line
from magnetar_cli.supervisor.endpoints import (
    EndpointsFile,
    PartEndpoints,
    endpoints_line,
    endpoints_text,
)
from magnetar_cli.supervisor.fleet import Fleet
from magnetar_cli.supervisor.parts import Part
from magnetar_cli.supervisor.standalone import BROKER, ZOOKEEPER, StandaloneSettings
from magnetar_cli.supervisor.supervisor import Launched, Supervisor
from magnetar_runtime.clock import SystemClock
from magnetar_runtime.network import AsyncioNetwork
from magnetar_server.logging import configure_logging
from magnetar_server.memory import tune_memory
from magnetar_server.run import is_uvloop_running, uvloop_factory

log = logging.getLogger(__name__)


def supervise(
    settings: StandaloneSettings, fleet: Fleet, parts: Mapping[str, Part], launched: Launched
) -> None:
    """Return when everything has ended as it was asked to. Raises ``StartFailed``."""
    level = "WARNING" if settings.is_quiet else "INFO"
    configure_logging("supervisor", level=level, is_json=settings.is_json)
    tune_memory()
    with asyncio.Runner(loop_factory=uvloop_factory()) as runner:
        failed = runner.run(_supervise(settings, fleet, parts, launched))
    if failed is not None:
        raise StartFailed(failed, _where_to_look(settings, failed))


async def _supervise(
    settings: StandaloneSettings, fleet: Fleet, parts: Mapping[str, Part], launched: Launched
) -> str | None:
    assert is_uvloop_running()
    announcer = Announcer(settings)
    supervisor = Supervisor(
        fleet,
        parts,
        launched,
        control_socket=settings.control_socket,
        network=AsyncioNetwork(),
        clock=SystemClock(),
        on_ready=announcer.announce,
        hang_limit_s=settings.hang_limit_s,
    )
    async with supervisor:
        failed = await supervisor.run()
    announcer.close()
    return failed


class Announcer:
    """Says once on standard output that everything is ready; keeps the endpoints file right."""

    def __init__(self, settings: StandaloneSettings) -> None:
        self._settings = settings
        self._file = EndpointsFile(settings.data_directory)
        self._is_said = False

    def announce(self, ready: Mapping[str, PartEndpoints]) -> None:
        """All parts are ready, for the first time or again."""
        endpoints = self._in_order(ready)
        self._file.write(endpoints_text(os.getpid(), endpoints))
        if self._is_said:
            return
        self._is_said = True
        addresses = endpoints[BROKER].addresses
        print(ready_line(addresses["pulsar"], addresses["web"]))
        if not self._settings.is_quiet:
            print(next_steps(addresses["pulsar"], addresses["web"]))
        print(endpoints_line(endpoints), flush=True)

    def close(self) -> None:
        """Nothing is there any more."""
        self._file.remove()

    def _in_order(self, ready: Mapping[str, PartEndpoints]) -> dict[str, PartEndpoints]:
        """The parts in a fixed order; the user's own ZooKeeper among them."""
        endpoints = dict(ready)
        if self._settings.zookeeper:
            endpoints[ZOOKEEPER] = PartEndpoints(None, {"address": self._settings.zookeeper})
        return {name: endpoints[name] for name in sorted(endpoints, reverse=True)}


def _where_to_look(settings: StandaloneSettings, part: str) -> str:
    if part == ZOOKEEPER:
        return f"its log is {settings.data_directory / ZOOKEEPER / 'zookeeper.log'}"
    return "its own words are above"
