"""Which seeds the simulation runs: ``GEMINGA_SEEDS`` of all stories together, each its share of
them, from ``GEMINGA_SEED_FIRST`` on. A story that is run alone runs its share, too."""

from __future__ import annotations

import os
from math import ceil

# How many of each are run by `make test`; `make simulate` runs more, in these proportions.
SHARES = {
    "autorecovery": 100,
    "cluster": 200,
    "compaction": 40,
    "delayed": 50,
    "garbage": 50,
    "ledgers": 120,
    "messaging": 100,
    "reading": 50,
    "tailing": 60,
    "takeover": 50,
}
SEEDS = int(os.environ.get("GEMINGA_SEEDS", sum(SHARES.values())))
SEED_FIRST = int(os.environ.get("GEMINGA_SEED_FIRST", "0"))


def first_seeds(story: str, seeds_a_test: int) -> range:
    """The first seed of each test of ``story``; a test runs ``seeds_a_test``, at least one runs."""
    tests = ceil(SEEDS * SHARES[story] / sum(SHARES.values()) / seeds_a_test)
    return range(SEED_FIRST, SEED_FIRST + tests * seeds_a_test, seeds_a_test)
