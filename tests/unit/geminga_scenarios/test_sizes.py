"""Proves that sizes are drawn as a seed and its menu say, and that each line names a field."""

from __future__ import annotations

from functools import reduce
from random import Random
from typing import Any

import pytest

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_bookie.config import BookieConfig
from geminga_broker.config import BrokerConfig
from geminga_ledger import LedgerConfig
from geminga_proxy.config import ProxyConfig
from geminga_scenarios import sizes
from geminga_scenarios.sizes import DrawnSizes, Knobs, drawn
from geminga_simulation.run_control import SIZES, RunControl, controlled
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World

SEEDS = 40


def value(config: object, field: str) -> Any:
    return reduce(getattr, field.split("."), config)


@pytest.mark.parametrize(
    ("config", "knobs"),
    [
        (BookieConfig(), sizes.BOOKIE),
        (AutoRecoveryConfig(), sizes.AUTO_RECOVERY),
        (LedgerConfig(), sizes.LEDGERS),
        (BrokerConfig(), sizes.BROKER),
        (BrokerConfig(), sizes.UNACKNOWLEDGED),
        (ProxyConfig(), sizes.PROXY),
    ],
)
def test_a_field_keeps_its_size_or_has_one_of_its_line(config: object, knobs: Knobs) -> None:
    draws = [drawn(config, knobs, Random(seed)) for seed in range(SEEDS)]
    for field, others in knobs.items():
        kept = value(config, field)
        assert {value(draw, field) for draw in draws} == {kept, *others}, field
        assert list(others) == sorted(others, reverse=True), field
        assert others[-1] < kept, f"{field} can be small"


async def sizes_of_a_world() -> tuple[bool, list[LedgerConfig]]:
    async with World() as world:
        both = DrawnSizes(world), DrawnSizes(world)
        return both[0].are_drawn, [each.of(LedgerConfig(), sizes.LEDGERS) for each in both]


def test_a_seed_has_its_sizes_and_one_in_four_the_usual_ones() -> None:
    usual = 0
    for seed in range(SEEDS):
        are_drawn, (one, other) = simulate(seed, sizes_of_a_world).result
        assert one == other, "all in one world have the same"
        assert are_drawn or one == LedgerConfig()
        usual += not are_drawn
    assert SEEDS // 10 < usual < SEEDS // 2


@pytest.mark.parametrize("is_ordered", [True, False])
def test_sizes_are_a_dish(*, is_ordered: bool) -> None:
    for seed in range(5):
        control = RunControl(menu=[SIZES] if is_ordered else [])
        with controlled(control):
            are_drawn, _ = simulate(seed, sizes_of_a_world).result
        assert are_drawn is control.has_sizes is is_ordered
