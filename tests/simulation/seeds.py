"""Which seeds the simulation runs: ``GEMINGA_SEEDS`` of all stories together, each its share of
them, from ``GEMINGA_SEED_FIRST`` on. A story that is run alone runs its share, too."""

from __future__ import annotations

import os
from math import ceil

# Of this many seeds, in these proportions, `make test` runs the first eighth, the same each time;
# `make test-full` surveys a thousand others (`test_sometimes.py`), `make simulate` runs as many as
# one likes.
SHARES = {
    "autorecovery": 50,
    "autorecovery: losses": 10,
    "bookies": 10,
    "careless clients": 15,
    "client": 1,  # of 77 clients
    "client storms": 10,
    "cluster": 100,
    "compaction": 20,
    "corruption": 25,
    "corruption: denials": 15,
    "damage": 15,
    "decommission": 10,
    "delayed": 25,
    "features": 60,
    "functions workers": 10,
    "garbage": 25,
    "ledgers": 60,
    "ledgers: fences": 10,
    "ledgers: losses": 15,
    "ledgers: power cuts": 15,
    "ledgers over V3": 15,
    "logs": 25,
    "many brokers": 25,
    "messaging": 50,
    "operators": 20,
    "policies": 20,
    "proxy": 10,
    "reading": 25,
    "replication": 20,
    "schemas": 20,
    "tailing": 30,
    "takeover": 25,
}
SEEDS = int(os.environ.get("GEMINGA_SEEDS", sum(SHARES.values()) // 8))
SEED_FIRST = int(os.environ.get("GEMINGA_SEED_FIRST", "0"))


def first_seeds(story: str, seeds_a_test: int) -> range:
    """The first seed of each test of ``story``; a test runs ``seeds_a_test``, at least one runs."""
    tests = ceil(SEEDS * SHARES[story] / sum(SHARES.values()) / seeds_a_test)
    return range(SEED_FIRST, SEED_FIRST + tests * seeds_a_test, seeds_a_test)


def shares_of(seeds: int, first: int = 0) -> dict[str, range]:
    """The seeds of each story where all together tell so many."""
    total = sum(SHARES.values())
    return {
        story: range(first, first + ceil(seeds * share / total)) for story, share in SHARES.items()
    }
