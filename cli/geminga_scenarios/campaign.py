"""Runs many seeds in processes of their own.

All of these processes hash text in the same way (``PYTHONHASHSEED``): a scenario that walks through
a set of texts does so in the same order whenever its seed is run again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from geminga_scenarios.seed_run import RunOptions, RunSeed, SeedResult

HASH_SEED = "PYTHONHASHSEED"
# Seeds that are submitted for each process. With several, no process waits for the next seed; with
# few, little work is wasted when a failure ends the campaign. A seed takes from tenths of a second
# to some seconds.
SEEDS_AHEAD = 4


# Yields the result of each seed, given with its story, in the order given. Closing the generator
# cancels the seeds that have not begun. Raises ``GemingaError`` where there is no story to run.
RunMany = Callable[[Iterable[tuple[RunSeed, int]], RunOptions], Generator[SeedResult]]


@contextmanager
def campaign(jobs: int) -> Generator[RunMany]:
    """Yield a function that runs seeds in ``jobs`` processes; leaving the context ends them."""
    # Not by a fork: that would inherit how the caller hashes text.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))

    def run(runs: Iterable[tuple[RunSeed, int]], options: RunOptions) -> Generator[SeedResult]:
        pending = deque[Future[SeedResult]]()
        try:
            for story, seed in runs:
                # The pool starts a process when it needs one, which is inside ``submit``. The
                # variable counts when an interpreter starts, and is inherited.
                with _fixed_hash_seed():
                    pending.append(pool.submit(story, seed, options))
                # The results keep the order of the runs, so a slow seed holds back those behind it.
                if len(pending) >= jobs * SEEDS_AHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            # What runs already cannot be cancelled: leaving the context waits for it. Also reached
            # when the caller closes the generator in the middle.
            for future in pending:
                future.cancel()

    try:
        yield run
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _fixed_hash_seed() -> Generator[None]:
    """Fix how processes that start meanwhile hash text; the variable is restored afterwards."""
    former = os.environ.get(HASH_SEED)
    os.environ[HASH_SEED] = "0"
    try:
        yield
    finally:
        del os.environ[HASH_SEED]
        if former is not None:
            os.environ[HASH_SEED] = former
