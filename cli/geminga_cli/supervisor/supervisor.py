"""Acts on what ``lifecycle`` decides: processes, timers, signals, the control channel.

Runs on uvloop in one thread. Every fact (a part is ready, a part ended, time passed, a signal
arrived) goes to the fleet at once, and the fleet's orders are carried out before the next fact.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from geminga_cli.embedded_zookeeper.four_letter_words import measurements, wait_until_ready
from geminga_cli.errors import CannotObey
from geminga_cli.supervisor.endpoints import PartEndpoints
from geminga_cli.supervisor.lifecycle.fleet import START_TIMEOUT_S, Fleet
from geminga_cli.supervisor.lifecycle.orders import (
    Announce,
    Finish,
    Freeze,
    Kill,
    Order,
    Phase,
    Release,
    Restart,
    Start,
    Terminate,
    Thaw,
)
from geminga_cli.supervisor.metrics_page import MetricsPage
from geminga_cli.supervisor.parts import Part, ZooKeeperPart
from geminga_cli.supervisor.process import Process, exit_words, shorten_log
from geminga_cli.supervisor.watch import exit_of
from geminga_runtime.clock import Clock
from geminga_runtime.control_codec import Instruction, InstructionAnswer, SetLogLevel
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import Network
from geminga_runtime.service import Service
from geminga_server.control.server import ControlServer, PartSession
from geminga_server.errors import ControlError
from geminga_server.logging import set_log_level
from geminga_server.run import stop_signals

log = logging.getLogger(__name__)

METRICS_HOST = "127.0.0.1"
# How often a part is asked for a sign of life within the time in which it must give one.
LOOKS_PER_LIMIT = 10
STATUS = "status"
# How often the sizes of logs are checked. In that time not even DEBUG writes more than some tens of
# megabytes.
LOG_LOOK_S = 30.0

OnReady = Callable[[Mapping[str, PartEndpoints]], None]
AddPart = Callable[[str], Part]


def add_nothing(kind: str) -> Part:
    """The ``add_part`` of a supervisor whose parts are fixed."""
    raise CannotObey(f"no {kind} can be added here")


@dataclass(frozen=True, slots=True)
class Launched:
    """What was begun before there was an event loop: the processes, and the orders still to do."""

    processes: Mapping[str, Process]
    orders: Sequence[Order]


# Where facts come from, and what becomes of them:
#
#     a process ends      ── _watch ───────────┐
#     a part is ready     ── _follow, _ready ──┤
#     a part is silent    ── _follow ──────────┼──▶ Fleet ──▶ orders ──▶ _carry_out ──▶ processes
#     time has passed     ── _timer ───────────┤
#     a signal, a command ── stop, _obey ──────┘
class Supervisor(Service):
    """Keeps the parts running until it is told to stop; ``run`` returns when all have ended.

    - ``on_ready`` is called with every part's endpoints when all parts are ready for the first
      time, and again whenever a restarted part is ready.
    - ``add_part`` makes one more part of a kind and adds it to ``parts``, for operators.
    - A part that was ready and then gives no sign of life for ``hang_limit_s`` is killed and
      started again; 0 switches this off.
    - ``log_level`` is that of the supervisor and of its parts.
    """

    def __init__(
        self,
        fleet: Fleet,
        parts: Mapping[str, Part],
        launched: Launched,
        *,
        control_socket: Path,
        network: Network,
        clock: Clock,
        on_ready: OnReady,
        add_part: AddPart = add_nothing,
        hang_limit_s: float = 0.0,
        log_level: str = "INFO",
    ) -> None:
        super().__init__()
        self._fleet = fleet
        self._parts = parts
        self._launched = launched
        self._clock = clock
        self._on_ready = on_ready
        self._add_part = add_part
        self._hang_limit_s = hang_limit_s
        self._log_level = log_level
        # What changes ``_processes``, ``_sessions`` and ``_endpoints`` runs in callbacks and tasks
        # of one loop, without an ``await`` between reading and changing them: they need no lock.
        #
        # The running process of each part; a part without one is missing.
        self._processes = dict(launched.processes)
        # How the last process of each part ended, as in ``subprocess``; read by the command.
        self.returncodes: dict[str, int] = {}
        # The control connection of each part whose process has connected.
        self._sessions: dict[str, PartSession] = {}
        # The addresses of each part that was ready at least once, also while it is restarted: the
        # endpoints file does not lack a part for the moment of a restart.
        self._endpoints: dict[str, PartEndpoints] = {}
        self._restarts: Counter[str] = Counter()
        # Whether all parts have been ready at once.
        self._is_announced = False
        self._is_debugging = False
        # Calls the fleet when time has something to decide.
        self._timer: asyncio.TimerHandle | None = None
        # Done when every part has ended; its result is the part that could not be started, or None.
        self.finished: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._control = ControlServer(control_socket, self._greet, self._obey)
        self._page = MetricsPage(network, METRICS_HOST, 0, self.render_metrics)

    async def _open(self, stack: AsyncExitStack) -> None:
        # Before the launched parts are released: they report there that they serve.
        await stack.enter_async_context(self._control)
        await stack.enter_async_context(self._page)
        loop = asyncio.get_running_loop()
        handlers = dict.fromkeys(stop_signals(signal.SIGHUP), self.stop)
        # Before the first order: from here on Ctrl-C stops the parts in order. Until here it ended
        # this process, and the kernel the parts with it.
        for number, handle in {**handlers, signal.SIGUSR1: self.change_log_level}.items():
            loop.add_signal_handler(number, handle)
            stack.callback(loop.remove_signal_handler, number)
        # These were started before there was a loop; the fleet learns now which of them have ended
        # since.
        for name, process in self._processes.items():
            self._watch(name, process)
        self.spawn_every(LOG_LOOK_S, self._shorten_logs, name="shorten logs")
        self._carry_out(self._launched.orders)

    def stop(self) -> None:
        """Stop every part in order; asked again, kill them all."""
        self._carry_out(self._fleet.stop(self._clock.monotonic()))

    def add(self, kind: str) -> str:
        """Start one more part of a kind; returns its name.

        Raises ``CannotObey``, ``UnusablePort``.
        """
        # Before the part is made: making it reserves ports and writes files.
        self._fleet.require_going_on()
        name = self._add_part(kind).rules.name
        self._carry_out(self._fleet.add(self._parts[name].rules, self._clock.monotonic()))
        return name

    def change_log_level(self) -> None:
        """Let the supervisor and all parts log from DEBUG on; asked again, as before."""
        self._is_debugging = not self._is_debugging
        # Parts that start later are told in ``_greet``.
        set_log_level(self._current_log_level)
        for session in self._sessions.values():
            session.channel.send(SetLogLevel(self._current_log_level))

    @property
    def _current_log_level(self) -> str:
        return "DEBUG" if self._is_debugging else self._log_level

    # --- facts --------------------------------------------------------------------------------

    def _ready(self, name: str, pid: int, addresses: Mapping[str, str]) -> None:
        process = self._processes.get(name)
        # The report may arrive after the process has ended, and even after its successor started.
        if process is None or process.pid != pid:
            return
        log.debug("part is ready", extra={"child": name, "pid": process.pid})
        # A part whose port is 0 has other addresses in each life.
        self._endpoints[name] = PartEndpoints(process.pid, addresses)
        self._carry_out(self._fleet.ready(name, self._clock.monotonic()))
        if self._is_announced:
            self._on_ready(self._endpoints)

    def _watch(self, name: str, process: Process) -> None:
        """Report the end of the process to the fleet, once it has ended."""

        def exited(future: asyncio.Future[int]) -> None:
            returncode = future.result()
            # Forgotten before the fleet hears of its end: an order that follows must not reach a
            # process that is gone.
            del self._processes[name]
            self.returncodes[name] = returncode
            # The connection may outlive the process for a moment: what it still says is of no use.
            self._sessions.pop(name, None)
            if not self._fleet.is_stopping:
                how = exit_words(returncode)
                words = {"child": name, "pid": process.pid, "how": how}
                log.warning("part ended unexpectedly", extra=words)
            self._carry_out(self._fleet.exited(name, returncode, self._clock.monotonic()))
            if self._fleet.phase(name) is Phase.DOWN:
                # The endpoints file leaves a part out that an operator keeps down.
                self._endpoints.pop(name, None)
                # Before all parts were ready, there is no file yet, and this is not what prints
                # READY.
                if self._is_announced:
                    self._on_ready(self._endpoints)

        exit_of(process).add_done_callback(exited)

    # --- orders -------------------------------------------------------------------------------

    def _carry_out(self, orders: Sequence[Order]) -> None:
        to_do = deque(orders)
        # No order is carried out with an ``await``: between a fact and the last order that follows
        # from it no other fact can come.
        while to_do:
            # An order that fails is a fact, too: what the fleet orders because of it comes last.
            to_do.extend(self._carry_out_one(to_do.popleft()))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # One timer for all parts, set anew after every fact: any fact can move the next deadline.
        next_tick_s = self._fleet.next_tick_s()
        if next_tick_s is not None:
            delay_s = max(0.0, next_tick_s - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(
                delay_s, lambda: self._carry_out(self._fleet.tick(self._clock.monotonic()))
            )

    def _carry_out_one(self, order: Order) -> Sequence[Order]:
        """Carry out one order; returns the orders that follow from it."""
        match order:
            case Start(name):
                return self._start(name)
            case Release(name):
                self._release(name)
            # Parts of ours close in order at SIGTERM (``run_part``), and so does Java.
            case Terminate(name):
                self._signal(name, signal.SIGTERM)
                # A paused process gets the first signal only when it continues.
                self._signal(name, signal.SIGCONT)
            case Freeze(name):
                log.warning("part is paused", extra={"child": name})
                self._signal(name, signal.SIGSTOP)
            case Thaw(name):
                log.warning("part continues", extra={"child": name})
                self._signal(name, signal.SIGCONT)
            # The end of the process is reported by ``_watch``, like that of any other.
            case Kill(name, reason):
                log.warning("part is killed", extra={"child": name, "reason": reason})
                self._signal(name, signal.SIGKILL)
            case Restart(name, delay_s):
                self._restarts[name] += 1
                log.warning("part will be restarted", extra={"child": name, "in_s": delay_s})
            case Announce():
                self._is_announced = True
            # Ordered once, when no process is left (``Fleet._is_finished``).
            case Finish(failed):
                self.finished.set_result(failed)
        return ()

    def _start(self, name: str) -> Sequence[Order]:
        try:
            # Nothing is awaited between the launch and the entry in ``_processes``: a process that
            # connects to the control channel is always found there.
            process = self._parts[name].launch()
        # The fleet counts this as a failure of the part, and orders a restart or gives the part up;
        # the supervisor itself goes on.
        except OSError as error:  # a full disk, no memory, too many processes
            log.warning("part could not be launched", extra={"child": name, "reason": str(error)})
            return self._fleet.not_launched(name, self._clock.monotonic())
        self._processes[name] = process
        self._watch(name, process)
        return ()

    def _release(self, name: str) -> None:
        process = self._processes.get(name)
        if process is None:  # its launch was ordered together with this, and failed
            return
        part = self._parts[name]
        part.release()
        if isinstance(part, ZooKeeperPart):
            # ZooKeeper knows no control channel: whether it is ready, it is asked.
            self.spawn(self._wait_for_zookeeper(name, process.pid, part), name="wait for zookeeper")

    async def _wait_for_zookeeper(self, name: str, pid: int, part: ZooKeeperPart) -> None:
        settings = part.settings
        # As long as the fleet waits before it kills a part that is not ready: later the answer
        # would be about another process.
        is_ready = await wait_until_ready(
            settings.local_host, settings.port, self._clock, START_TIMEOUT_S
        )
        if is_ready:
            metrics = f"http://{METRICS_HOST}:{self._page.port}/metrics/"
            self._ready(name, pid, {"address": settings.address, "metrics": metrics})

    def _signal(self, name: str, number: signal.Signals) -> None:
        process = self._processes.get(name)
        if process is not None:
            process.signal(number)

    async def _shorten_logs(self) -> None:
        # Not in a thread: the supervisor must have none (``process``). Copying a long log takes
        # some ten milliseconds, every few days.
        for name, part in self._parts.items():
            try:
                if part.log_file is not None and shorten_log(part.log_file):
                    log.info("long log put aside", extra={"child": name})
            except OSError as error:  # a full disk
                words = {"child": name, "reason": str(error)}
                log.warning("long log not put aside", extra=words)

    # --- operators ----------------------------------------------------------------------------

    def _obey(self, instruction: Instruction) -> InstructionAnswer:
        """Do what ``geminga cluster`` asks for.

        The answer comes at once: what takes longer has only begun, and ``status`` shows how far it
        is. It is the part's status, or a refusal.
        """
        name, now_s = instruction.part, self._clock.monotonic()
        log.log(
            # Operators poll it.
            logging.DEBUG if instruction.action == STATUS else logging.INFO,
            "operator asks",
            extra={"action": instruction.action, "child": name or "all"},
        )
        try:
            match instruction.action:
                case "status":
                    every = {part: self._status_of(part) for part in self._parts}
                    return InstructionAnswer(is_done=True, text=json.dumps(every))
                case "kill":
                    keep_down = "keep_down" in instruction.options
                    self._carry_out(self._fleet.kill(name, keep_down=keep_down))
                case "pause":
                    self._carry_out(self._fleet.pause(name))
                case "resume":
                    self._carry_out(self._fleet.resume(name, now_s))
                case "add":
                    name = self.add(name)
                case "stop":
                    # After the answer was sent: stopping closes this connection.
                    asyncio.get_running_loop().call_soon(self.stop)
                case _:
                    raise CannotObey(f"this supervisor does not know {instruction.action!r}")
            answer = self._status_of(name) if name else {}
        except GemingaError as error:
            return InstructionAnswer(is_done=False, text=str(error))
        return InstructionAnswer(is_done=True, text=json.dumps(answer))

    def _status_of(self, name: str) -> dict[str, object]:
        """A part as operators see it."""
        process, endpoints = self._processes.get(name), self._endpoints.get(name)
        log_file = self._parts[name].log_file
        state = "paused" if self._fleet.is_paused(name) else self._fleet.phase(name).value
        return {
            "part": name,
            "state": state,
            "pid": process.pid if process else None,
            "restarts": self._restarts[name],
            "log": str(log_file) if log_file else None,
            "addresses": dict(endpoints.addresses) if endpoints else {},
        }

    # --- the control channel ------------------------------------------------------------------

    def _greet(self, session: PartSession) -> None:
        """A process has connected: accept it if it is one that we started."""
        # The pid is the one that the process names in its first message.
        for name, process in self._processes.items():
            if process.pid == session.pid:
                self._sessions[name] = session
                if self._is_debugging:
                    session.channel.send(SetLogLevel(self._current_log_level))
                self.spawn(self._follow(name, session), name=f"follow {name}")
                return
        log.warning("stranger on the control channel", extra={"pid": session.pid})
        session.channel.close()

    async def _follow(self, name: str, session: PartSession) -> None:
        """Report when the part is ready, and later if it hangs."""
        try:
            addresses = await session.wait_ready()
        except ControlError:
            return  # it ended, which its process reports
        self._ready(name, session.pid, addresses)
        if not self._hang_limit_s:
            return
        # Silent looks are counted, not seconds: after a laptop slept, or a debugger stopped all of
        # these processes, every part has been silent for long and none of them hangs.
        silent_looks = 0
        # A look is a ping and a wait; anything that the part sends during the wait makes it count
        # as alive.
        while session.is_open and silent_looks < LOOKS_PER_LIMIT:
            session.ping()
            await asyncio.sleep(self._hang_limit_s / LOOKS_PER_LIMIT)
            is_silent = session.is_silent and not self._fleet.is_paused(name)
            silent_looks = silent_looks + 1 if is_silent else 0
        # The part may have ended, and even been started again, during the last sleep: a new process
        # is not killed for the silence of the old one.
        process = self._processes.get(name)
        if session.is_open and process is not None and process.pid == session.pid:
            self._carry_out(self._fleet.hangs(name))

    async def render_metrics(self) -> str:
        """The content of /metrics/: the supervisor's own counters, and ZooKeeper's measurements."""
        # Written by hand: prometheus_client would only cost memory here.
        lines = ["# TYPE geminga_supervisor_restarts_total counter"]
        lines += [
            f'geminga_supervisor_restarts_total{{part="{name}"}} {self._restarts[name]}'
            for name in self._parts
        ]
        own = "".join(f"{line}\n" for line in lines)
        # ZooKeeper has no page of its own: its exporter needs jars that we leave out (``jars``).
        for part in self._parts.values():
            if isinstance(part, ZooKeeperPart):
                own += await measurements(part.settings.local_host, part.settings.port)
        return own
