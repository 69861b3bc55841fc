"""Measures how full the ledger disks are every few seconds, and reports what follows from it.

What follows is decided in ``decisions.disk_space``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack

from geminga_bookie.config import SpaceConfig
from geminga_bookie.decisions.disk_space import DiskState, SpaceVerdict, judge
from geminga_bookie.disks.directories import Directories
from geminga_runtime.service import Service

log = logging.getLogger(__name__)


class SpaceWatch(Service):
    """Measures the ledger disks as often as ``limits`` say; calls ``on_verdict`` each time."""

    def __init__(
        self,
        limits: SpaceConfig,
        directories: Directories,
        *,
        on_verdict: Callable[[SpaceVerdict], None],
    ) -> None:
        super().__init__()
        self._limits = limits
        self._directories = directories
        self._on_verdict = on_verdict

    async def _open(self, stack: AsyncExitStack) -> None:  # noqa: ARG002 nothing to close
        # Once before anything else: entering returns with a verdict.
        self.look()
        self.spawn_lasting(self._look_again, name="disk space")

    def look(self) -> None:
        """Measure all disks, decide, report."""
        states: list[DiskState] = []
        # All disks are measured and judged together; then each directory gets what was decided of
        # it.
        for directory in self._directories:
            try:
                directory.capacity_bytes = directory.disk.total_bytes()
                directory.free_bytes = directory.disk.free_bytes()
            except OSError:
                log.exception("ledger disk does not answer", extra={"directory": directory.path})
                # It counts as full: no file is begun on it.
                directory.capacity_bytes = directory.free_bytes = 0
            states.append(
                # The last verdict counts too: a full bookie takes adds again only below the
                # low-water mark.
                DiskState(directory.capacity_bytes, directory.free_bytes, directory.is_full)
            )
        verdict = judge(self._limits, states)
        # What was decided of each disk is noted on its directory, which new files go by.
        for directory, is_full in zip(self._directories, verdict.is_full, strict=True):
            if is_full != directory.is_full:
                directory.is_full = is_full
                log.warning(
                    "ledger disk is full" if is_full else "ledger disk has room again",
                    extra={"directory": directory.path, "usage": round(directory.usage, 4)},
                )
        # Reported once all directories have it: a checkpoint that follows chooses its disk by them.
        self._on_verdict(verdict)

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(self._limits.disk_check_interval_s)
            self.look()
