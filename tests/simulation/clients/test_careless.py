"""Proves, over many seeds, that the client library does what it says for programs that use it
without care, and for those whose topics operators delete while they use them: errands of
``features``, on the stage of ``test_features``.
"""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from tests.simulation.features.bereft import Bereft
from tests.simulation.features.careless import Careless
from tests.simulation.features.stage import Errand, Weather
from tests.simulation.features.test_features import SHAPES, TIME_LIMIT_S, WEATHERS, Summary, story
from tests.simulation.seeds import first_seeds

from geminga_scenarios.cluster import SHORT_FAULTS
from geminga_scenarios.verdicts import results
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.simulate import Outcome, simulate

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 5
ERRANDS: tuple[type[Errand], ...] = (Careless, Bereft)


def run(seed: int, *, record: bool = False) -> Outcome[Summary]:
    """The story of one seed, which also chooses the cluster and what may go wrong in it."""
    random = Random(seed)
    weather = random.choice(WEATHERS)
    menu = SHORT_FAULTS.drawn(random) if weather is Weather.STORM else FaultMenu()
    told = partial(story, ERRANDS, weather, menu, random.choice(SHAPES))
    return simulate(seed, told, time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("careless clients", SEEDS_A_TEST))
def test_careless_programs_are_told_what_becomes_of_what_they_do(first: int) -> None:
    for summary in results(run, range(first, first + SEEDS_A_TEST)):
        assert sum(summary.deeds.values()) > len(ERRANDS)
