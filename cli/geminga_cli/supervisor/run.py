"""Runs a supervisor on uvloop until its cluster has ended, and tells people and programs of it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence

from geminga_cli.errors import StartFailed
from geminga_cli.standard_input import STANDARD_INPUT, is_stream, stop_at_end_of_input
from geminga_cli.supervisor.broker_ids import SESSIONS_OVER_AFTER_S
from geminga_cli.supervisor.console import Tools, next_steps, no_sync_warning, ready_line
from geminga_cli.supervisor.endpoints import (
    EndpointsFile,
    PartEndpoints,
    endpoints_line,
    endpoints_text,
    entrance_of,
)
from geminga_cli.supervisor.lifecycle.fleet import Fleet
from geminga_cli.supervisor.parts import Part
from geminga_cli.supervisor.plan import Plan
from geminga_cli.supervisor.settings import ZOOKEEPER, StandaloneSettings
from geminga_cli.supervisor.supervisor import Launched, Supervisor
from geminga_runtime.clock import SystemClock
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import AsyncioNetwork
from geminga_server.logging import configure_logging
from geminga_server.memory import tune_memory
from geminga_server.readiness import announce_readiness
from geminga_server.run import ExitCode, is_uvloop_running, prepare_open_files, uvloop_factory

log = logging.getLogger(__name__)


def supervise(plan: Plan, fleet: Fleet, launched: Launched) -> None:
    """Return when everything has ended as it was asked to. Raises ``StartFailed``."""
    settings = plan.settings
    configure_logging("supervisor", level=settings.log_level, is_json=settings.log_json)
    prepare_open_files()
    if not settings.sync and settings.log_json:
        log.warning(no_sync_warning())
    tune_memory()
    # The parts wait for us before they touch ZooKeeper: this comes in time.
    for ids in plan.broker_ids.values():
        _remember(ids.begin)
    with asyncio.Runner(loop_factory=uvloop_factory()) as runner:
        failed = runner.run(_supervise(plan, fleet, launched))
    if failed is not None:
        raise StartFailed(failed, _where_to_look(settings, failed))


async def _supervise(plan: Plan, fleet: Fleet, launched: Launched) -> str | None:
    assert is_uvloop_running()
    loop = asyncio.get_running_loop()
    settings = plan.settings

    def all_ready() -> None:
        for ids in plan.broker_ids.values():
            loop.call_later(SESSIONS_OVER_AFTER_S, _remember, ids.forget_former)
        for kind in settings.begun_late:
            loop.call_soon(_begin_late, supervisor, kind)

    def add_part(kind: str) -> Part:
        part = plan.add(kind)
        name = part.rules.name
        if name in plan.broker_ids:
            _remember(plan.broker_ids[name].begin)
            loop.call_later(SESSIONS_OVER_AFTER_S, _remember, plan.broker_ids[name].forget_former)
        return part

    announcer = Announcer(settings, fleet.names, on_first=all_ready)
    supervisor = Supervisor(
        fleet,
        plan.parts,
        launched,
        control_socket=settings.control_socket,
        network=AsyncioNetwork(),
        clock=SystemClock(),
        on_ready=announcer.announce,
        add_part=add_part,
        hang_limit_s=settings.hang_limit_s,
        log_level=settings.log_level,
    )
    async with supervisor:
        if settings.stop_with_input and is_stream():
            stop_at_end_of_input(loop, supervisor.stop)
        failed = await supervisor.run()
        loop.remove_reader(STANDARD_INPUT)
        for name, ids in plan.broker_ids.items():
            if supervisor.returncode(name) == ExitCode.OK:
                _remember(ids.end)
    announcer.close()
    return failed


def _begin_late(supervisor: Supervisor, kind: str) -> None:
    """Everything else is ready, and goes on without it."""
    try:
        supervisor.add(kind)
    except GemingaError as error:
        log.warning("part not begun", extra={"child": kind, "reason": str(error)})


class Announcer:
    """Says once on standard output that everything is ready; keeps the endpoints file right.

    ``names`` tells the parts' names as the fleet has them, ``on_first`` is called with the first
    announcement. What cannot be written is logged: a cluster need not end for it.
    """

    def __init__(
        self,
        settings: StandaloneSettings,
        names: Callable[[], Sequence[str]],
        *,
        on_first: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._names = names
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
        announce_readiness(" ".join(entrance_of(endpoints) or ()))
        self._on_first()

    def close(self) -> None:
        """Nothing is there any more."""
        self._file.remove()

    def _say(self, endpoints: Mapping[str, PartEndpoints]) -> None:
        entrance = entrance_of(endpoints)
        assert entrance is not None, "all parts are ready, and one of them is a broker"
        print(ready_line(*entrance))
        if not self._settings.quiet:
            print(next_steps(*entrance, Tools.at_hand()))
        print(endpoints_line(endpoints), flush=True)

    def _in_order(self, ready: Mapping[str, PartEndpoints]) -> dict[str, PartEndpoints]:
        """The parts in the fleet's order, what others need first: so the user's own ZooKeeper."""
        endpoints: dict[str, PartEndpoints] = {}
        if self._settings.zookeeper:
            endpoints[ZOOKEEPER] = PartEndpoints(None, {"address": self._settings.zookeeper})
        return endpoints | {name: ready[name] for name in self._names() if name in ready}


def _remember(write: Callable[[], None]) -> None:
    """Without this memory lookups name a dead broker for some seconds: no reason to end."""
    try:
        write()
    except OSError as error:
        log.warning("broker's id not remembered", extra={"reason": str(error)})


def _where_to_look(settings: StandaloneSettings, part: str) -> str:
    log_file = settings.log_file(part)
    return f"its log is {log_file}" if log_file else "its own words are above"
