"""The table of the benchmark: medians, budgets, ratios; no server is needed to prove it."""

from __future__ import annotations

import pytest
from tests.performance.figures import Budget, Rounds, at_least
from tests.performance.table import table


def rounds(*cpu_us: float) -> Rounds:
    """Rounds of one scenario that differ in their CPU a message."""
    return {
        "unbatched-1k": [
            {
                "publish": {"cpu_us": each, "per_s": 20_000.0, "other_cores": 0.25},
                "deliver": {"cpu_us": 5.0, "per_s": 80_000.0, "other_cores": 0.5},
            }
            for each in cpu_us
        ]
    }


def line_of(text: str, start: str) -> str:
    """The first line that begins so."""
    return next(line for line in text.splitlines() if line.startswith(start))


@pytest.mark.parametrize(
    ("value", "verdict"), [(11.0, "aim reached"), (11.1, "met"), (16.0, "met"), (16.1, "MISSED")]
)
def test_a_bound_belongs_to_what_it_allows(value: float, verdict: str) -> None:
    assert Budget(16, 11).verdict(value) == verdict


@pytest.mark.parametrize(("value", "verdict"), [(200.0, "met"), (199.9, "MISSED")])
def test_a_lower_bound_is_met_by_what_is_not_less(value: float, verdict: str) -> None:
    assert at_least(200).verdict(value) == verdict


def test_a_budget_without_an_aim_is_met_or_missed() -> None:
    assert [Budget(5).verdict(value) for value in (0.1, 5.0, 5.1)] == ["met", "met", "MISSED"]


def test_a_figure_is_the_median_of_its_rounds_beside_their_spread_and_its_budget() -> None:
    line = line_of(table({"Geminga": rounds(30.0, 12.0, 9.0)}), "publish 1 KB unbatched")
    assert line.split()[4:] == ["12.0", "us", "CPU", "9.00..30.0", "16", "11", "met", "0.25"]


@pytest.mark.parametrize(
    ("cpu_us", "ratio", "verdict"), [(12.0, "0.50", "met"), (18.0, "0.75", "MISSED")]
)
def test_a_peer_is_shown_with_the_ratio_to_it_and_what_the_budget_is_in_such_ratios(
    cpu_us: float, ratio: str, verdict: str
) -> None:
    text = table({"Geminga": rounds(cpu_us), "Pulsar": rounds(24.0)})
    cells = line_of(text, "publish 1 KB unbatched").split()
    assert cells[-5:] == ["24.0", ratio, "0.71", verdict, "0.25"]


def test_what_was_not_measured_has_no_line() -> None:
    text = table({"Geminga": rounds(12.0)})
    assert "synchronous" not in text
    assert "READY" not in text


def test_a_figure_that_a_server_does_not_tell_has_no_line() -> None:
    read = {"mb_per_core": 200.0, "cpu_us": 5.0, "per_s": 1.0}
    ours: Rounds = {"catch-up-unequal": [{"read": read | {"read_ratio": 1.6}}]}
    theirs: Rounds = {"catch-up-unequal": [{"read": read}]}
    assert "bytes read" not in table({"Pulsar": theirs})
    line = next(each for each in table({"Geminga": ours}).splitlines() if "bytes read" in each)
    assert line.split()[0] == "1.60"
    assert "MISSED" in line


def test_a_peer_that_failed_early_leaves_its_cells_empty() -> None:
    line = line_of(table({"Geminga": rounds(12.0), "Pulsar": {}}), "publish 1 KB unbatched")
    assert line.split()[-1] == "0.25"
    assert "met" in line
