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
    "autorecovery": ("storage.test_autorecovery", {}),
    "autorecovery: losses": ("storage.test_autorecovery:run_losses", {}),
    "bookies": ("storage.test_bookies", {}),
    "careless clients": ("clients.test_careless", {}),
    "client": ("clients.test_client", {}),
    "client storms": ("clients.test_client", {"is_stormy": True}),
    "cluster": ("topics.test_cluster", {}),
    "compaction": ("topics.test_compaction", {}),
    "corruption": ("storage.test_corruption", {}),
    "corruption: denials": ("storage.test_corruption:run_denials", {}),
    "damage": ("topics.test_damage", {}),
    "decommission": ("storage.test_decommission", {}),
    "delayed": ("topics.test_delayed", {}),
    "features": ("features.test_features", {}),
    "functions workers": ("functions.test_functions_workers", {}),
    "garbage": ("storage.test_garbage", {}),
    "ledgers": ("storage.test_ledgers", {}),
    "ledgers: fences": ("storage.test_ledgers:run_fences", {}),
    "ledgers: losses": ("storage.test_ledgers:run_losses", {}),
    "ledgers: power cuts": ("storage.test_ledgers:run_power_cuts", {}),
    "ledgers over V3": ("storage.test_ledgers", {"over_v3": True}),
    "logs": ("storage.test_logs", {}),
    "many brokers": ("brokers.test_many_brokers", {}),
    "messaging": ("topics.test_messaging", {}),
    "operators": ("brokers.test_operators", {}),
    "policies": ("brokers.test_policies", {}),
    "proxy": ("clients.test_proxy", {}),
    "reading": ("topics.test_reading", {}),
    "replication": ("replication.test_replication", {}),
    "schemas": ("topics.test_schemas", {}),
    "tailing": ("storage.test_tailing", {}),
    "takeover": ("topics.test_takeover", {}),
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
