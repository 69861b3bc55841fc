"""Proves that Geminga answers as Apache Pulsar 4.0.6 did when it was recorded, but for what is
meant to differ and what is not built yet.

``python -m tests.differential --help`` says how answers are recorded.
"""

from __future__ import annotations

import pytest
from tests.differential.comparison import difference
from tests.differential.not_yet import NOT_YET
from tests.differential.scenario import Scenario, scenarios
from tests.differential.transcript import Line

ALL = scenarios()


def parameters() -> list[object]:
    return [
        pytest.param(
            each,
            id=f"{each.group}/{each.name}",
            marks=[pytest.mark.xfail(strict=True, reason=each.not_yet)] * bool(each.not_yet),
        )
        for each in ALL
    ]


@pytest.mark.integration
@pytest.mark.timeout(600)  # the first one runs them all
@pytest.mark.parametrize("scenario", parameters())
def test_geminga_answers_as_pulsar_does(
    answers: dict[str, list[Line] | Exception], scenario: Scenario
) -> None:
    ours = answers[scenario.name]
    if isinstance(ours, Exception):
        raise ours
    found = difference(scenario, ours)
    assert not found, found


def test_every_recorded_answer_belongs_to_a_scenario() -> None:
    known = {each.path for each in ALL}
    assert {path for each in ALL for path in each.path.parent.glob("*.json")} == known


def test_only_scenarios_that_exist_are_excused() -> None:
    assert NOT_YET.keys() - {f"{each.group}/{each.name}" for each in ALL} == set()
