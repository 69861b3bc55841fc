"""Kills broker and bookie with SIGKILL while a text goes through; their supervisor restarts them.

When and what is drawn from a seed: the strikes fall on random lines, each a moment after that line
was confirmed, so that they meet messages under way. What else they meet (an open batch, a journal
half written) is up to the machine: a seed repeats the plan, not the run.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Self

from tests.integration.processes.cluster_process import StandaloneProcess

# Parts in the order in which they die, with pauses between. A broker whose bookie died before it
# holds messages that no other bookie has; one that dies again is met while it recovers.
TARGETS = (
    ("broker",),
    ("bookie",),
    ("bookie", "broker"),
    ("broker", "bookie"),
    ("broker", "broker"),
)
PAUSE_S_MAX = 0.3
# Right when a receipt comes there is less under way than at any other time.
MOMENT_S_MAX = 0.02
STRIKE_S_MAX = 120.0


class Killer:
    """Strikes ``strikes`` times within ``lines`` confirmed lines, on a thread of its own.

    Used with ``with``. At its end everything that was killed is running again, and what went wrong
    is raised, such as a part that was not started again.
    """

    def __init__(self, cluster: StandaloneProcess, *, seed: int, strikes: int, lines: int) -> None:
        self.kills: list[str] = []
        self._cluster = cluster
        self._random = random.Random(seed)
        self._plan = self._strikes_at(strikes, lines)
        self._confirmed = 0
        self._next_line = -1
        self._is_due = threading.Event()
        self._is_over = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="killer")

    def _strikes_at(self, strikes: int, lines: int) -> list[tuple[int, tuple[str, ...]]]:
        """Lines, one from each stretch of equal length, with what dies there.

        Every target once in random order, again and again.
        """
        stretch = lines // (strikes + 1)
        targets: list[tuple[str, ...]] = []
        while len(targets) < strikes:
            targets += self._random.sample(TARGETS, len(TARGETS))
        return [
            (number * stretch + self._random.randrange(stretch), targets[number])
            for number in range(strikes)
        ]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._is_due.set()
        self._thread.join(STRIKE_S_MAX)
        assert not self._thread.is_alive(), "the killer did not end"
        if self._failure is not None:
            raise self._failure

    def confirmed(self) -> None:
        """One more line was confirmed; called by one thread."""
        self._confirmed += 1
        if self._confirmed == self._next_line:
            self._is_due.set()

    def _run(self) -> None:
        try:
            for line, parts in self._plan:
                self._is_due.clear()
                self._next_line = line
                if self._confirmed < line and not self._is_over:
                    self._is_due.wait()
                if self._is_over:
                    return
                self._strike(parts)
        except Exception as failure:  # noqa: BLE001 (raised again where the ``with`` ends)
            self._failure = failure

    def _strike(self, parts: tuple[str, ...]) -> None:
        pids: dict[str, int] = {}
        for part in parts:
            if part in pids:
                self._cluster.wait_restarted(part, pids[part])
            time.sleep(self._random.uniform(0, PAUSE_S_MAX if pids else MOMENT_S_MAX))
            pids[part] = self._cluster.kill_part(part)
            self.kills.append(part)
        for part, pid in pids.items():
            self._cluster.wait_restarted(part, pid)
