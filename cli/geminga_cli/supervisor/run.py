"""Runs a supervisor on uvloop until its cluster has ended, and tells people and programs of it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence

from geminga_cli.errors import StartFailed
from geminga_cli.standard_input import STANDARD_INPUT, drop_some, is_stream
from geminga_cli.supervisor.broker_ids import SESSIONS_OVER_AFTER_S, BrokerIds
from geminga_cli.supervisor.console import Tools, next_steps, no_sync_warning, ready_line
from geminga_cli.supervisor.endpoints import (
    EndpointsFile,
    PartEndpoints,
    endpoints_line,
    endpoints_text,
)
from geminga_cli.supervisor.fleet import Fleet
from geminga_cli.supervisor.parts import Part
from geminga_cli.supervisor.settings import BROKER, ZOOKEEPER, StandaloneSettings
from geminga_cli.supervisor.supervisor import Launched, Supervisor
from geminga_runtime.clock import SystemClock
from geminga_runtime.network import AsyncioNetwork
from geminga_server.logging import configure_logging
from geminga_server.memory import tune_memory
from geminga_server.readiness import announce_readiness
from geminga_server.run import ExitCode, is_uvloop_running, prepare_open_files, uvloop_factory

log = logging.getLogger(__name__)


def supervise(
    settings: StandaloneSettings,
    fleet: Fleet,
    parts: Mapping[str, Part],
    launched: Launched,
    broker_ids: BrokerIds,
) -> None:
    """Return when everything has ended as it was asked to. Raises ``StartFailed``."""
    configure_logging("supervisor", level=settings.log_level, is_json=settings.log_json)
    prepare_open_files()
    if not settings.sync and settings.log_json:
        log.warning(no_sync_warning())
    tune_memory()
    # The parts wait for us before they touch ZooKeeper: this comes in time.
    _remember(broker_ids.begin)
    with asyncio.Runner(loop_factory=uvloop_factory()) as runner:
        failed = runner.run(_supervise(settings, fleet, parts, launched, broker_ids))
    if failed is not None:
        raise StartFailed(failed, _where_to_look(settings, failed))


async def _supervise(
    settings: StandaloneSettings,
    fleet: Fleet,
    parts: Mapping[str, Part],
    launched: Launched,
    broker_ids: BrokerIds,
) -> str | None:
    assert is_uvloop_running()
    loop = asyncio.get_running_loop()

    def forget_former() -> None:
        loop.call_later(SESSIONS_OVER_AFTER_S, _remember, broker_ids.forget_former)

    announcer = Announcer(settings, tuple(parts), on_first=forget_former)
    supervisor = Supervisor(
        fleet,
        parts,
        launched,
        control_socket=settings.control_socket,
        network=AsyncioNetwork(),
        clock=SystemClock(),
        on_ready=announcer.announce,
        hang_limit_s=settings.hang_limit_s,
        log_level=settings.log_level,
    )
    async with supervisor:
        if settings.stop_with_input and is_stream():
            stop_at_end_of_input(loop, supervisor.stop)
        failed = await supervisor.run()
        loop.remove_reader(STANDARD_INPUT)
        if supervisor.returncode(BROKER) == ExitCode.OK:
            _remember(broker_ids.end)
    announcer.close()
    return failed


def stop_at_end_of_input(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Call ``stop`` once, when standard input has ended."""

    def read() -> None:
        if not drop_some():
            loop.remove_reader(STANDARD_INPUT)
            stop()

    loop.add_reader(STANDARD_INPUT, read)


class Announcer:
    """Says once on standard output that everything is ready; keeps the endpoints file right.

    ``order`` are the parts' names as the fleet has them, ``on_first`` is called with the first
    announcement. What cannot be written is logged: a cluster need not end for it.
    """

    def __init__(
        self,
        settings: StandaloneSettings,
        order: Sequence[str],
        *,
        on_first: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._order = order
        self._on_first = on_first
        self._file = EndpointsFile(settings.data_directory)
        self._is_said = False

    def announce(self, ready: Mapping[str, PartEndpoints]) -> None:
        """All parts are ready, for the first time or again."""
        endpoints = self._in_order(ready)
        try:
            self._file.write(endpoints_text(os.getpid(), endpoints))
        except OSError as error:  # a full disk
            log.warning("endpoints not written", extra={"reason": str(error)})
        if self._is_said:
            return
        self._is_said = True
        try:
            self._say(endpoints)
        except OSError as error:  # whoever read it has gone
            log.warning("nobody reads that all is ready", extra={"reason": str(error)})
        addresses = endpoints[BROKER].addresses
        announce_readiness(f"{addresses['pulsar']} {addresses['web']}")
        self._on_first()

    def close(self) -> None:
        """Nothing is there any more."""
        self._file.remove()

    def _say(self, endpoints: Mapping[str, PartEndpoints]) -> None:
        addresses = endpoints[BROKER].addresses
        print(ready_line(addresses["pulsar"], addresses["web"]))
        if not self._settings.quiet:
            print(next_steps(addresses["pulsar"], addresses["web"], Tools.at_hand()))
        print(endpoints_line(endpoints), flush=True)

    def _in_order(self, ready: Mapping[str, PartEndpoints]) -> dict[str, PartEndpoints]:
        """The parts in the fleet's order, what others need first: so the user's own ZooKeeper."""
        endpoints: dict[str, PartEndpoints] = {}
        if self._settings.zookeeper:
            endpoints[ZOOKEEPER] = PartEndpoints(None, {"address": self._settings.zookeeper})
        return endpoints | {name: ready[name] for name in self._order if name in ready}


def _remember(write: Callable[[], None]) -> None:
    """Without this memory lookups name a dead broker for some seconds: no reason to end."""
    try:
        write()
    except OSError as error:
        log.warning("broker's id not remembered", extra={"reason": str(error)})


def _where_to_look(settings: StandaloneSettings, part: str) -> str:
    if part == ZOOKEEPER:
        return f"its log is {settings.data_directory / ZOOKEEPER / 'zookeeper.log'}"
    return "its own words are above"
