"""The stories by their names: the same as in `seeds.py`, where each has its share of the seeds.

They are imported when they are told: each stands on much that the others need not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from geminga_scenarios.seed_run import RunOptions, SeedResult, run_seed
from geminga_simulation.simulate import Outcome

# The module of each story, and what its ``run(seed)``, or the function named behind the colon, is
# told besides.
STORIES: dict[str, tuple[str, dict[str, object]]] = {
    "autorecovery": ("test_autorecovery", {}),
    "autorecovery: losses": ("test_autorecovery:run_losses", {}),
    "bookies": ("test_bookies", {}),
    "careless clients": ("test_careless", {}),
    "client": ("test_client", {}),
    "client storms": ("test_client", {"is_stormy": True}),
    "cluster": ("test_cluster", {}),
    "compaction": ("test_compaction", {}),
    "corruption": ("test_corruption", {}),
    "corruption: denials": ("test_corruption:run_denials", {}),
    "damage": ("test_damage", {}),
    "decommission": ("test_decommission", {}),
    "delayed": ("test_delayed", {}),
    "features": ("test_features", {}),
    "functions workers": ("test_functions_workers", {}),
    "garbage": ("test_garbage", {}),
    "ledgers": ("test_ledgers", {}),
    "ledgers: fences": ("test_ledgers:run_fences", {}),
    "ledgers: losses": ("test_ledgers:run_losses", {}),
    "ledgers: power cuts": ("test_ledgers:run_power_cuts", {}),
    "ledgers over V3": ("test_ledgers", {"over_v3": True}),
    "logs": ("test_logs", {}),
    "many brokers": ("test_many_brokers", {}),
    "messaging": ("test_messaging", {}),
    "operators": ("test_operators", {}),
    "policies": ("test_policies", {}),
    "proxy": ("test_proxy", {}),
    "reading": ("test_reading", {}),
    "replication": ("test_replication", {}),
    "schemas": ("test_schemas", {}),
    "tailing": ("test_tailing", {}),
    "takeover": ("test_takeover", {}),
}


def story(name: str) -> Callable[..., Outcome[Any]]:
    """What runs one seed of a story: ``run(seed)``."""
    place, options = STORIES[name]
    module, _, function = place.partition(":")
    told = getattr(import_module(f"tests.simulation.{module}"), function or "run")
    return partial(told, **options)


def tell_story(name: str, seed: int, orders: RunOptions) -> SeedResult:
    """``run_seed`` for a story, for whichever process it is handed to."""
    return run_seed(story(name), seed, orders)
