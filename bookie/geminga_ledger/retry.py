"""Trying again, up to a deadline: for ZooKeeper and bookies that are away for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from geminga_ledger.config import LedgerConfig
from geminga_runtime.backoff import Backoff
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError

ResultT = TypeVar("ResultT")


class RetryPolicy:
    """Repeats what failed, with growing pauses."""

    def __init__(self, *, clock: Clock, random: Random, config: LedgerConfig) -> None:
        self._clock = clock
        self._random = random
        self._config = config

    async def run(
        self,
        attempt: Callable[[], Awaitable[ResultT]],
        *,
        on: type[GemingaError],
        deadline_s: float,
    ) -> ResultT:
        """The result of the first attempt that works.

        An error of the kind ``on`` whose class says ``retry`` is tried again while the next
        attempt would begin within ``deadline_s`` seconds; after that, and of any other kind, it is
        raised.
        """
        give_up_s = self._clock.monotonic() + deadline_s
        backoff = Backoff(self._config.retry_first_s, self._config.retry_limit_s, self._random)
        while True:
            try:
                return await attempt()
            except on as error:
                delay_s = backoff.next_s()
                if not error.retry or self._clock.monotonic() + delay_s > give_up_s:
                    raise
                await asyncio.sleep(delay_s)
