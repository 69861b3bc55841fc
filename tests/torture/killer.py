"""Kills broker and bookie with SIGKILL at random moments; their supervisor starts them again.

Which part dies and when is drawn from a seed. What those moments meet (an open batch, a journal
half written, a recovery) is up to the machine, so a seed repeats the order, not the run. After
each strike something must get through before the next: who never lets a cluster serve proves
nothing about it but that it can be kept from serving.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Protocol, Self

from tests.integration.cluster_process import StandaloneProcess

# The two together is the worst for the broker: nobody to confirm, nobody to recover from.
TARGETS = (("broker",), ("bookie",), ("broker", "bookie"))
STRIKE_S_MAX = 120.0
STOP_S_MAX = 60.0
POLL_S = 0.02


class Progress(Protocol):
    """How much was sent so far, and how much of it is confirmed."""

    @property
    def sent(self) -> int:
        """Messages handed to the client."""
        ...

    @property
    def confirmed(self) -> int:
        """Those whose receipt came."""
        ...


class Killer:
    """A thread that kills until its ``with`` block is left. ``kills`` lists what was killed."""

    def __init__(
        self,
        cluster: StandaloneProcess,
        progress: Progress,
        *,
        seed: int,
        interval_s_max: float,
    ) -> None:
        self.kills: list[str] = []
        self._cluster = cluster
        self._progress = progress
        self._random = random.Random(seed)
        self._interval_s_max = interval_s_max
        self._has_struck = threading.Condition()
        self._strikes = 0
        self._is_stopped = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="killer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Strike no more; everything killed is running again afterwards."""
        self._is_stopped.set()
        self._thread.join(STOP_S_MAX)
        assert not self._thread.is_alive(), "the killer did not end"

    @property
    def strikes(self) -> int:
        """How often it struck: one part or both at once."""
        return self._strikes

    def check(self) -> None:
        """Raise what went wrong, such as a part that was not started again."""
        if self._failure is not None:
            raise self._failure

    def wait_for_strike(self, number: int) -> None:
        """Return once it has struck ``number`` times."""
        with self._has_struck:
            was_struck = self._has_struck.wait_for(
                lambda: self._strikes >= number or self._failure is not None, STRIKE_S_MAX
            )
        self.check()
        assert was_struck, f"{self._strikes} strikes, {number} expected"

    def _run(self) -> None:
        try:
            for parts in self._targets():
                if self._is_stopped.wait(self._random.uniform(0, self._interval_s_max)):
                    return
                self._strike(parts)
        except Exception as failure:  # noqa: BLE001 (it is raised again where somebody waits)
            with self._has_struck:
                self._failure = failure
                self._has_struck.notify_all()

    def _targets(self) -> Iterator[tuple[str, ...]]:
        """Every target once in random order, again and again: three strikes meet them all."""
        while True:
            yield from self._random.sample(TARGETS, len(TARGETS))

    def _strike(self, parts: tuple[str, ...]) -> None:
        killed = [(part, self._cluster.kill_part(part)) for part in parts]
        with self._has_struck:
            self.kills.extend(parts)
            self._strikes += 1
            self._has_struck.notify_all()
        for part, pid in killed:
            self._cluster.wait_restarted(part, pid)
        self._wait_for_progress()

    def _wait_for_progress(self) -> None:
        """Return when something new is confirmed, or everything is."""
        progress, before = self._progress, self._progress.confirmed
        while before == progress.confirmed < progress.sent and not self._is_stopped.wait(POLL_S):
            pass
