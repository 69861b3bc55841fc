"""Decides what happens to the parts next. Facts go in, orders come out. Pure.

All parts are started at once, because what takes long is starting Python and Java; a part that
needs another is *released* (allowed to continue) once that one is ready. A part that ends without
being asked to is started again after a pause that doubles with every failure, unless an operator
wants it to stay down. Stopping goes in the opposite order, one kind of parts after the other, each
with a deadline::

    WAITING --Start--> STARTING --ready--> READY
     ^  ^                   |                |
     |  +-- not launched ---+                |
     |  +---- exited -------+----------------+------ exited while stopping ----> ENDED
     +------ resume -------- DOWN <-- exited, kept down

Times are seconds of one monotonic clock, given with every fact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from geminga_cli.errors import CannotObey
from geminga_cli.supervisor.lifecycle.orders import (
    Announce,
    Finish,
    Freeze,
    Kill,
    Order,
    PartRules,
    Phase,
    Release,
    Restart,
    Start,
    Terminate,
    Thaw,
)

# With these two, a part that always fails is started after 0.1, 0.2, 0.4 ... 6.4 s, and from the
# eighth failure on every 10 s.
RESTART_FIRST_S = 0.1
RESTART_LIMIT_S = 10.0
# A part that was ready for this long was healthy: its next failure counts as the first one. That is
# a few times what a start costs the machine, so that even a part that always fails leaves most of
# the machine to others. It is no longer, because all users of the part wait for the pause.
STABLE_AFTER_S = 5.0
# Until everything was ready for the first time: a part that fails so often will not start by
# itself, and the user is waiting at a terminal.
START_ATTEMPTS_MAX = 3
# From a part's release until it is ready. A bookie replays at most some hundred MB of journal in
# it.
START_TIMEOUT_S = 60.0
# One request to stop may arrive as several signals: `timeout` signals its child and then the
# process group of both. A user who presses Ctrl-C again takes longer than this.
STOP_REPEATS_WITHIN_S = 0.5
# The exit code of a part that cannot run like this (``ExitCode.REFUSED`` of geminga_server.run).
EXIT_HOPELESS = 2

# Why a part is killed.
IMPATIENCE = "everything is to end at once"
SLOW_START = "it was not ready in time"
SLOW_STOP = "it did not end in time"
HANGS = "its event loop hangs"
ASKED_FOR = "an operator asked for it"


@dataclass(slots=True)
class _Part:
    """The state of one part."""

    rules: PartRules
    phase: Phase = Phase.WAITING
    # These describe the running process. The first three are False wherever there is none; the last
    # two may stay True in ENDED, which no part leaves.
    is_released: bool = False
    is_killed: bool = False
    is_paused: bool = False
    # A stop has asked the part to end.
    is_asked_to_stop: bool = False
    # An operator has killed the part, and wants it to stay down when its process has ended.
    is_kept_down: bool = False
    # WAITING: when it is to be started. STARTING: when its process was started, then when it was
    # released. READY: when it became ready.
    since_s: float = 0.0
    # Failures in a row.
    failures: int = 0

    @property
    def runs(self) -> bool:
        return self.phase in (Phase.STARTING, Phase.READY)


def restart_delay_s(failures: int) -> float:
    """The pause before the start after the ``failures``-th failure in a row (1, 2, ...)."""
    assert failures >= 1
    # The exponent is bounded: a part that fails for weeks must not overflow a float.
    return min(RESTART_LIMIT_S, RESTART_FIRST_S * 2.0 ** min(failures - 1, 16))


@dataclass(slots=True)
class Fleet:
    """The parts in the order of their dependence.

    No part needs one that comes after it, and the parts of one kind stand together.
    """

    rules: Sequence[PartRules]
    _parts: dict[str, _Part] = field(init=False)
    # Every part has been ready at once: from now on, none is given up.
    _is_announced: bool = field(init=False, default=False)
    # None until a stop begins.
    _stop_began_s: float | None = field(init=False, default=None)
    _is_finished: bool = field(init=False, default=False)
    # The part that could not be started, because of which everything stops.
    _failed: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        # A part can only need parts in front of it, so the order has no circle: ``_releases`` comes
        # to every part, and stopping from the end never stops what a running part needs.
        self._parts = {}
        for rules in self.rules:
            assert all(name in self._parts for name in rules.needs)
            self._parts[rules.name] = _Part(rules)

    @property
    def is_stopping(self) -> bool:
        """Whether a stop has begun."""
        return self._stop_began_s is not None

    def phase(self, part: str) -> Phase:
        """The phase of ``part`` now."""
        return self._parts[part].phase

    def names(self) -> list[str]:
        """The parts, in the order of their dependence."""
        return list(self._parts)

    def is_paused(self, part: str) -> bool:
        """Whether an operator has paused the part."""
        return self._parts[part].is_paused

    # --- what operators ask for ---------------------------------------------------------------

    def kill(self, name: str, *, keep_down: bool) -> list[Order]:
        """End the part's process as a crash would, and start it again unless it is kept down.

        Raises ``CannotObey``, as all of these do.
        """
        part = self._part_asked_for(name)
        if not part.runs:
            raise CannotObey(f"{name} is {part.phase.value}, it has no process to kill")
        # SIGKILL also ends a process that is paused. Asked again, the last word on ``keep_down``
        # counts. The phase stays until the process has ended: only ``exited`` says that it is gone.
        part.is_killed, part.is_kept_down = True, keep_down
        return [Kill(name, ASKED_FOR)]

    def pause(self, name: str) -> list[Order]:
        """Stop the part's process with SIGSTOP; it does not count as hanging then."""
        part = self._part_asked_for(name)
        if part.phase is not Phase.READY or part.is_killed:
            raise CannotObey(f"{name} is {part.phase.value}, only a part that is ready is paused")
        part.is_paused = True
        return [Freeze(name)]

    def resume(self, name: str, now_s: float) -> list[Order]:
        """Continue the part that is paused; start the one that was kept down."""
        part = self._part_asked_for(name)
        if part.is_paused:
            part.is_paused = False
            return [Thaw(name)]
        if part.phase is not Phase.DOWN:
            raise CannotObey(f"{name} is {part.phase.value}, neither paused nor kept down")
        # What failed before the operator stepped in says nothing about the next start.
        part.phase, part.since_s, part.failures = Phase.WAITING, now_s, 0
        return self.tick(now_s)

    def add(self, rules: PartRules, now_s: float) -> list[Order]:
        """Start one more part. It is placed behind the others of its kind, and stops with them."""
        self.require_going_on()
        assert rules.name not in self._parts
        assert all(name in self._parts for name in rules.needs)
        parts = list(self._parts.values())
        places = [place for place, each in enumerate(parts, 1) if each.rules.group == rules.group]
        # Parts stop from the end of the order, kind by kind (``_stopping``).
        parts.insert(places[-1] if places else len(parts), _Part(rules, since_s=now_s))
        self._parts = {each.rules.name: each for each in parts}
        return self.tick(now_s)

    def require_going_on(self) -> None:
        """Raise ``CannotObey`` if a stop has begun."""
        if self.is_stopping:
            raise CannotObey("everything is stopping")

    def _part_asked_for(self, name: str) -> _Part:
        self.require_going_on()
        if name not in self._parts:
            raise CannotObey(f"there is no part {name!r}; there are {', '.join(self._parts)}")
        return self._parts[name]

    # --- facts --------------------------------------------------------------------------------

    def begin(self, now_s: float) -> list[Order]:
        """Start everything."""
        return self.tick(now_s)

    def ready(self, name: str, now_s: float) -> list[Order]:
        """The running part reported that it serves."""
        part = self._parts[name]
        # A report may come after the order to kill the process, or for one that was stopped.
        if part.phase is not Phase.STARTING:
            return []
        # A part that became ready may be what others wait for.
        part.phase, part.since_s = Phase.READY, now_s
        orders = self._releases(now_s)
        if not self._is_announced and all(p.phase is Phase.READY for p in self._parts.values()):
            self._is_announced = True
            orders.append(Announce())
        return orders

    def hangs(self, name: str) -> list[Order]:
        """A part that was ready gives no sign of life: only a new process will help."""
        part = self._parts[name]
        if part.phase is not Phase.READY or part.is_killed or part.is_paused or self.is_stopping:
            return []
        part.is_killed = True
        return [Kill(name, HANGS)]

    def exited(self, name: str, returncode: int, now_s: float) -> list[Order]:
        """The part's process ended: ``returncode`` as in ``subprocess``."""
        return self._lost(name, now_s, is_hopeless=returncode == EXIT_HOPELESS)

    def not_launched(self, name: str, now_s: float) -> list[Order]:
        """The process that was to be started could not be."""
        return self._lost(name, now_s, is_hopeless=False)

    def stop(self, now_s: float) -> list[Order]:
        """A stop was requested: end everything in order. Requested again later: kill everything."""
        if self._stop_began_s is not None:
            # The same request once more, not an impatient user.
            if now_s - self._stop_began_s < STOP_REPEATS_WITHIN_S:
                return []
            # Also the parts that were asked to stop, and those whose turn has not come yet.
            return [Kill(name, IMPATIENCE) for name, part in self._parts.items() if part.runs]
        # From here on nothing is started, released or restarted: every way to a ``Start`` asks for
        # this.
        self._stop_began_s = now_s
        for part in self._parts.values():
            # What waits for its next start has no process: it has ended as it is.
            if not part.runs:
                part.phase = Phase.ENDED
        return self._stop_next(now_s)

    def tick(self, now_s: float) -> list[Order]:
        """Time passed: ``next_tick_s`` says when calling this is worthwhile."""
        if self._stop_began_s is not None:
            return self._overdue_stops(now_s)
        # A part may be started and released by the same call: most parts of a restart find what
        # they need ready.
        orders: list[Order] = []
        for name, part in self._parts.items():
            if part.phase is Phase.WAITING and now_s >= part.since_s:
                part.phase, part.since_s = Phase.STARTING, now_s
                orders.append(Start(name))
            # A part that is not released yet has no deadline: it waits for others, which have
            # theirs.
            elif (
                part.phase is Phase.STARTING
                and part.is_released
                and not part.is_killed
                and now_s >= part.since_s + START_TIMEOUT_S
            ):
                part.is_killed = True
                orders.append(Kill(name, SLOW_START))
        return orders + self._releases(now_s)

    def next_tick_s(self) -> float | None:
        """When ``tick`` has something to do, unless another fact comes first; None for never."""
        if self._stop_began_s is not None:
            # A killed part has no deadline any more: the kernel ends it.
            stopping = [part for part in self._stopping() if not part.is_killed]
            deadlines = (self._stop_began_s + part.rules.stop_deadline_s for part in stopping)
            return min(deadlines, default=None)
        times = [
            part.since_s + (START_TIMEOUT_S if part.phase is Phase.STARTING else 0)
            for part in self._parts.values()
            if part.phase is Phase.WAITING
            or (part.phase is Phase.STARTING and part.is_released and not part.is_killed)
        ]
        return min(times, default=None)

    # --- decisions ----------------------------------------------------------------------------

    def _lost(self, name: str, now_s: float, *, is_hopeless: bool) -> list[Order]:
        """The part has no process any more: start it again, leave it down, or stop everything."""
        # The first of these that holds decides:
        #
        #     a stop has begun                 ──▶ ENDED; the next kind may be asked to stop
        #     an operator keeps it down        ──▶ DOWN
        #     the cluster was never ready, and ──▶ ENDED; everything stops (``StartFailed``)
        #       it failed three times, or said that it is hopeless
        #     otherwise                        ──▶ WAITING, for a pause that doubles
        part = self._parts[name]
        # The supervisor reports each end once: a part without a process cannot lose one.
        assert part.runs
        was_stable = part.phase is Phase.READY and now_s - part.since_s >= STABLE_AFTER_S
        part.failures = 1 if was_stable else part.failures + 1
        # What was asked of the old process does not hold for the next one.
        part.is_released = part.is_killed = part.is_paused = False
        if self._stop_began_s is not None:
            part.phase = Phase.ENDED
            return self._stop_next(now_s)
        # The flag is used up: ``resume`` starts a part that is like any other.
        if part.is_kept_down:
            part.phase, part.is_kept_down = Phase.DOWN, False
            return []
        # Once the cluster has served, no part is given up: what it needs may come back.
        if (is_hopeless or part.failures >= START_ATTEMPTS_MAX) and not self._is_announced:
            part.phase, self._failed = Phase.ENDED, name
            return self.stop(now_s)
        delay_s = restart_delay_s(part.failures)
        part.phase, part.since_s = Phase.WAITING, now_s + delay_s
        return [Restart(name, delay_s)]

    def _releases(self, now_s: float) -> list[Order]:
        """Release every part whose needs are ready, once for each of its processes."""
        orders: list[Order] = []
        for name, part in self._parts.items():
            # Needs count at the release only. A part that is ready stays when what it needs is
            # restarted: it reconnects by itself.
            needed = [self._parts[need] for need in part.rules.needs]
            if (
                part.phase is Phase.STARTING
                and not part.is_released
                and all(other.phase is Phase.READY for other in needed)
            ):
                # From here on the part's own start is timed, without the waiting for others.
                part.is_released, part.since_s = True, now_s
                orders.append(Release(name))
        return orders

    def _stopping(self) -> list[_Part]:
        """The parts whose turn it is to end: of those that still run, the last kind."""
        # All of a kind at once, and the next kind only when the last of them has ended. With
        # nothing running, the second list is empty, and ``running[-1]`` is never looked at.
        running = [part for part in self._parts.values() if part.runs]
        return [part for part in running if part.rules.group == running[-1].rules.group]

    def _stop_next(self, now_s: float) -> list[Order]:
        stopping = self._stopping()
        if not stopping:
            if self._is_finished:
                return []
            self._is_finished = True
            return [Finish(self._failed)]
        asked: list[Order] = []
        # Each end of a process leads here; a part of this kind that was asked before is not asked
        # again.
        for part in stopping:
            if not part.is_asked_to_stop:
                part.is_asked_to_stop = True
                asked.append(Terminate(part.rules.name))
        # Deadlines run from the beginning of the whole stop, so a kind whose turn comes late may be
        # overdue at once.
        return asked + self._overdue_stops(now_s) if asked else []

    def _overdue_stops(self, now_s: float) -> list[Order]:
        assert self._stop_began_s is not None
        orders: list[Order] = []
        for part in self._stopping():
            if not part.is_killed and now_s >= self._stop_began_s + part.rules.stop_deadline_s:
                part.is_killed = True
                orders.append(Kill(part.rules.name, SLOW_STOP))
        return orders
