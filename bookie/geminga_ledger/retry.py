"""Trying again until a deadline: for ZooKeeper and bookies that are away for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from geminga_ledger.config import LedgerConfig
from geminga_runtime.backoff import Backoff
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Repeats what failed, with growing pauses; ``config`` has the first and the longest."""

    clock: Clock
    random: Random
    config: LedgerConfig

    async def run(
        self,
        attempt: Callable[[], Awaitable[ResultT]],
        *,
        on: type[GemingaError],
        deadline_s: float,
    ) -> ResultT:
        """Return the result of the first attempt that works.

        An error of the kind ``on`` whose class says ``retry`` is tried again while the next attempt
        would begin within ``deadline_s`` seconds; after that, and of any other kind, it is raised.
        An attempt that is under way at the deadline is not interrupted.
        """
        give_up_s = self.clock.monotonic() + deadline_s
        backoff = Backoff(self.config.retry_first_s, self.config.retry_limit_s, self.random)
        while True:
            try:
                return await attempt()
            except on as error:
                delay_s = backoff.next_s()
                # Asked before the pause: a pause after which no attempt may begin would only delay
                # the error.
                if not error.retry or self.clock.monotonic() + delay_s > give_up_s:
                    raise
                await asyncio.sleep(delay_s)
