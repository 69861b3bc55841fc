"""Runs a supervisor on uvloop until its cluster has ended, and reports to people and programs."""

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
from geminga_server.control.readiness import announce_readiness
from geminga_server.logging import configure_logging
from geminga_server.memory import tune_memory
from geminga_server.run import ExitCode, is_uvloop_running, prepare_open_files, uvloop_factory

log = logging.getLogger(__name__)


def supervise(plan: Plan, fleet: Fleet, launched: Launched) -> None:
    """Return when everything has ended as it was asked to. Raises ``StartFailed``."""
    settings = plan.settings
    configure_logging("supervisor", level=settings.log_level, is_json=settings.log_json)
    prepare_open_files()
    # Without JSON the same words are printed by the command, before anything is started.
    if not settings.sync and settings.log_json:
        log.warning(no_sync_warning())
    tune_memory()
    # In time: brokers wait for their release before they connect to ZooKeeper.
    for ids in plan.broker_ids.values():
        _remember(ids.begin)
    # The processes were launched before there was a loop (``parts``): from here on the supervisor
    # watches them.
    with asyncio.Runner(loop_factory=uvloop_factory()) as runner:
        failed = runner.run(_supervise(plan, fleet, launched))
    if failed is not None:
        log_file = settings.log_file(failed)
        # A part without a file has logged to standard error, right above this message.
        where = f"its log is {log_file}" if log_file else "its own words are above"
        raise StartFailed(failed, where)


async def _supervise(plan: Plan, fleet: Fleet, launched: Launched) -> str | None:
    assert is_uvloop_running()
    loop = asyncio.get_running_loop()
    settings = plan.settings

    def add_late(kind: str) -> None:
        # The rest of the cluster is ready, and does without this part if it cannot be started.
        try:
            supervisor.add(kind)
        except GemingaError as error:
            log.warning("part not added", extra={"child": kind, "reason": str(error)})

    def all_ready() -> None:
        for ids in plan.broker_ids.values():
            # Former ids are needed until ZooKeeper has expired the sessions of the last life.
            loop.call_later(SESSIONS_OVER_AFTER_S, _remember, ids.forget_former)
        for kind in settings.begun_late:
            # Not now: the supervisor is in the middle of an announcement.
            loop.call_soon(add_late, kind)

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
    # Entering it releases the first parts; leaving it closes the control channel, the metrics page
    # and the signal handlers.
    async with supervisor:
        if settings.stop_with_input and is_stream():
            stop_at_end_of_input(loop, supervisor.stop)
        # All processes have ended here; what follows only cleans up.
        failed = await supervisor.finished
        # Also where none was added: uvloop answers False.
        loop.remove_reader(STANDARD_INPUT)
        for name, ids in plan.broker_ids.items():
            # A broker that was killed has left its session open.
            if supervisor.returncodes.get(name) == ExitCode.OK:
                _remember(ids.end)
    # Last: while a part runs, its addresses may still be of use to a tool.
    announcer.file.remove()
    return failed


class Announcer:
    """Prints once that everything is ready, and keeps the endpoints file current.

    ``names`` returns the parts' names in the fleet's order; ``on_first`` is called after the first
    announcement. What cannot be written is logged: it is no reason to end a cluster.
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
        # To be removed at the end, when its addresses are no longer valid.
        self.file = EndpointsFile(settings.data_directory)
        self._is_announced = False

    def announce(self, ready: Mapping[str, PartEndpoints]) -> None:
        """All parts are ready, for the first time or again."""
        # In the fleet's order, what other parts need comes first; so does the user's own ZooKeeper.
        endpoints: dict[str, PartEndpoints] = {}
        if self._settings.zookeeper:
            endpoints[ZOOKEEPER] = PartEndpoints(None, {"address": self._settings.zookeeper})
        endpoints |= {name: ready[name] for name in self._names() if name in ready}
        # First the file, then the line: a program that reads READY may open the file at once.
        try:
            self.file.write(endpoints_text(os.getpid(), endpoints))
        except OSError as error:  # a full disk
            log.warning("endpoints not written", extra={"reason": str(error)})
        # The file follows every restart; people and programs are told once.
        if self._is_announced:
            return
        self._is_announced = True
        entrance = entrance_of(endpoints)
        assert entrance is not None, "all parts are ready, and one of them is a broker"
        try:
            print(ready_line(*entrance))
            if not self._settings.quiet:
                print(next_steps(*entrance, Tools.at_hand()))
            print(endpoints_line(endpoints), flush=True)
        except OSError as error:  # the program that read our output has gone
            log.warning("READY not printed", extra={"reason": str(error)})
        # For systemd (``sd_notify``), where it started us.
        announce_readiness(" ".join(entrance))
        self._on_first()


def _remember(write: Callable[[], None]) -> None:
    """Write a file of broker ids. Without it, lookups name a dead broker for some seconds, which is
    no reason to end a cluster."""
    try:
        write()
    except OSError as error:
        log.warning("broker ids not written", extra={"reason": str(error)})
