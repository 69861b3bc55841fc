"""Tells stories from many seeds, in processes of its own.

They hash text in the same way each (``PYTHONHASHSEED``): a scenario that walks through a set of
text does so in the same order whenever its seed is told again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Self

from geminga_scenarios.telling import Orders, Tell, Told

HASH_SEED = "PYTHONHASHSEED"
# Seeds that are given out for each process: none need wait, and what a failure wastes is little.
SEEDS_AHEAD = 4


class Campaign:
    """``jobs`` processes that tell stories; leaving the context ends them."""

    def __init__(self, jobs: int) -> None:
        self._ahead = jobs * SEEDS_AHEAD
        # A fork would take over how the caller hashes text.
        self._pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def tell(self, story: Tell, seeds: Iterable[int], orders: Orders) -> Generator[Told]:
        """What came of each seed, in their order; closing it leaves the others untold.

        Raises ``GemingaError`` where there is no story.
        """
        return self.tell_all(((story, seed) for seed in seeds), orders)

    def tell_all(self, runs: Iterable[tuple[Tell, int]], orders: Orders) -> Generator[Told]:
        """The same for seeds of several stories, each named with its story."""
        waiting = deque[Future[Told]]()
        try:
            for story, seed in runs:
                with _fixed_hashes():  # processes start when they are first needed
                    waiting.append(self._pool.submit(story, seed, orders))
                if len(waiting) >= self._ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def _fixed_hashes() -> Generator[None]:
    former = os.environ.get(HASH_SEED)
    os.environ[HASH_SEED] = "0"
    try:
        yield
    finally:
        del os.environ[HASH_SEED]
        if former is not None:
            os.environ[HASH_SEED] = former
