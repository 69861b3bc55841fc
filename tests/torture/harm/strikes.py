"""What is done to which parts of a cluster, and when: drawn from a seed, and carried out.

Bookies and brokers are killed, or stand still (a standalone's supervisor kills one that does so too
long; in a cluster it loses its session, and wakes up where others have its topics). One bookie at a
time, so that its quorum goes on; sometimes all, for a moment. With power cuts a bookie that is
killed may also lose what it had not synced. In a cluster proxies and ZooKeeper are killed as well,
ZooKeeper stands still for longer than sessions live, and brokers are parted from it, in one
direction or in both.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from random import Random

from tests.integration.processes.cluster_process import StandaloneProcess, is_running
from tests.integration.waiting import eventually
from tests.torture.harm.fragile_disk import Notes, cut_power
from tests.torture.harm.wires import Wires

from geminga_runtime.coordination import SESSION_TIMEOUT_S

BROKER = "broker"
ZOOKEEPER = "zookeeper"
# What a power cut harms below a bookie's directory.
DIRECTORIES = ("journal", "ledgers", "index")
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 15.0
# Every session has ended when ZooKeeper goes on after so long.
ZOOKEEPER_PAUSE_S_MIN = SESSION_TIMEOUT_S + 1.0
REST_S_MAX = 4.0
# A supervisor waits up to 10 s before it starts a part anew that was killed again and again.
RESTART_S_MAX = 120.0
# Of bookies that are killed, where there are power cuts.
CUT_PROBABILITY = 0.7
SEED_MAX = 1 << 32


class Deed(Enum):
    """What is done to a part."""

    KILL = "killed"
    PAUSE = "paused"
    CUT = "cut off from power"
    PART = "cut off from ZooKeeper"
    PART_REQUESTS = "not heard by ZooKeeper"
    PART_ANSWERS = "not answered by ZooKeeper"


PARTITIONS = (Deed.PART, Deed.PART_REQUESTS, Deed.PART_ANSWERS)


@dataclass(frozen=True, slots=True)
class Strike:
    """``deed`` is done to all of ``parts`` at once, after a rest; a pause or a partition lasts
    ``pause_s``."""

    rest_s: float
    deed: Deed
    parts: tuple[str, ...]
    pause_s: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Targets:
    """The parts of a cluster that are struck, by kind."""

    bookies: tuple[str, ...]
    brokers: tuple[str, ...] = (BROKER,)
    proxies: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every one of them."""
        zookeeper = (ZOOKEEPER,) if self.are_many else ()
        return (*zookeeper, *self.bookies, *self.brokers, *self.proxies)

    @property
    def are_many(self) -> bool:
        """Whether brokers take over from each other."""
        return len(self.brokers) > 1


def strikes(
    chance: Random,
    parts: Targets,
    *,
    pause_s_max: float,
    has_power_cuts: bool,
    has_partitions: bool = False,
) -> Iterator[Strike]:
    """Strikes for ever: every target once in random order, again and again."""
    bookies = parts.bookies
    while True:
        one = chance.choice(bookies)
        targets = [
            *((Deed.KILL, (bookie,)) for bookie in chance.sample(bookies, min(2, len(bookies)))),
            (Deed.KILL, (BROKER,)),
            (Deed.KILL, (one, BROKER)),
            (Deed.KILL, tuple(bookies)),
            (Deed.PAUSE, (chance.choice(bookies),)),
            (Deed.PAUSE, (BROKER,)),
        ]
        if parts.are_many:
            targets += [(Deed.KILL, (each,)) for each in (*parts.brokers[1:], *parts.proxies)]
            targets += [(Deed.PAUSE, (each,)) for each in parts.brokers[1:]]
            targets += [(Deed.KILL, parts.brokers)]
            targets += [(Deed.KILL, (ZOOKEEPER,)), (Deed.PAUSE, (ZOOKEEPER,))]
        if has_partitions:
            targets += [(chance.choice(PARTITIONS), (each,)) for each in parts.brokers]
        for deed, struck in chance.sample(targets, len(targets)):
            is_cut = has_power_cuts and chance.random() < CUT_PROBABILITY
            is_cut = is_cut and deed is Deed.KILL and bool(set(struck) & set(bookies))
            pause_s_min = ZOOKEEPER_PAUSE_S_MIN if ZOOKEEPER in struck else PAUSE_S_MIN
            yield Strike(
                chance.random() * REST_S_MAX,
                Deed.CUT if is_cut else deed,
                struck,
                chance.uniform(pause_s_min, max(pause_s_min, pause_s_max)),
                chance.randrange(SEED_MAX),
            )


class Striker:
    """Carries strikes out on ``cluster``, and counts them."""

    def __init__(
        self, cluster: StandaloneProcess, parts: Targets, wires: Wires | None = None
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.strikes = 0
        # When what happened to which parts.
        self.struck: list[tuple[float, str]] = []
        self._cluster = cluster
        self._parts = parts
        self._wires = wires

    def strike(self, strike: Strike) -> None:
        """Do it, and return when every part runs again."""
        time.sleep(strike.rest_s)
        self.strikes += 1
        self.struck.append((time.monotonic(), f"{' + '.join(strike.parts)} {strike.deed.value}"))
        for part in strike.parts:
            is_bookie = part in self._parts.bookies
            deed = Deed.KILL if strike.deed is Deed.CUT and not is_bookie else strike.deed
            self.counts[f"{part} {deed.value}"] += 1
        if strike.deed is Deed.PAUSE:
            self._pause(strike)
        elif strike.deed in PARTITIONS:
            self._part(strike)
        else:
            self._kill(strike)

    def wait_whole(self) -> None:
        """Return when every part runs."""
        eventually(self._gone, lambda gone: not gone, RESTART_S_MAX)

    @property
    def lost_bytes(self) -> int:
        """How many bytes power cuts took from all bookies."""
        return sum(
            Notes(self._cluster.data_directory / bookie / name).lost_bytes
            for bookie in self._parts.bookies
            for name in DIRECTORIES
        )

    def _kill(self, strike: Strike) -> None:
        if strike.deed is Deed.CUT:
            for bookie in set(strike.parts) & set(self._parts.bookies):
                for name in DIRECTORIES:
                    cut_power(self._cluster.data_directory / bookie / name, strike.seed)
        pids = {part: self._cluster.kill_part(part) for part in strike.parts}
        for part, pid in pids.items():
            self._cluster.wait_restarted(part, pid, RESTART_S_MAX)
        self.wait_whole()

    def _pause(self, strike: Strike) -> None:
        (part,) = strike.parts
        pid = self._cluster.pid_of(part)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(strike.pause_s)
        with suppress(ProcessLookupError):  # it hung too long, and was killed
            os.kill(pid, signal.SIGCONT)
        self.wait_whole()
        if self._cluster.pid_of(part) != pid:
            self.counts[f"{part} given up by the supervisor"] += 1

    def _part(self, strike: Strike) -> None:
        assert self._wires is not None
        (broker,) = strike.parts
        self._wires.cut(
            broker,
            requests=strike.deed is not Deed.PART_ANSWERS,
            answers=strike.deed is not Deed.PART_REQUESTS,
        )
        time.sleep(strike.pause_s)
        self._wires.heal(broker)
        self.wait_whole()

    def _gone(self) -> list[str]:
        return [part for part in self._parts.all if not is_running(self._cluster.pid_of(part))]
