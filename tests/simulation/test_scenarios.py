"""Proves that the scenario of docs/simulation.md holds, that its stricter one fails, and that a run
repeats to the last byte in another process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from tests.project_files import ROOT

from geminga_cli.main import main
from geminga_scenarios.campaign import campaign
from geminga_scenarios.scenario import Setup, run, run_scenario_seed
from geminga_scenarios.seed_run import RunOptions

GUIDE = ROOT / "docs" / "simulation.md"
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SEEDS = range(4)
# One of them bills an order twice.
STRICT_SEEDS = 30

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def blocks() -> Sequence[str]:
    return PYTHON_BLOCK.findall(GUIDE.read_text())


@pytest.fixture
def orders(tmp_path: Path, blocks: Sequence[str]) -> Path:
    path = tmp_path / "orders.py"
    path.write_text(blocks[0])
    return path


@pytest.fixture
def strict_orders(orders: Path, blocks: Sequence[str]) -> Path:
    orders.write_text(blocks[0] + blocks[1])
    return orders


def test_the_scenario_of_the_guide_holds(orders: Path) -> None:
    for seed in SEEDS:
        run(orders, Setup(), seed)


def test_what_fails_is_told_with_the_command_that_tells_it_again(
    strict_orders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(strict_orders), "--seeds", str(STRICT_SEEDS)]) == 1
    told = capsys.readouterr().out
    assert "billed twice" in told
    again = re.search(r"^again: +geminga (simulate .* --seed \d+) --trace$", told, re.MULTILINE)
    assert again is not None
    (first_line,) = re.findall(r"^seed \d+ fails after .*$", told, re.MULTILINE)
    assert main([*again[1].split(), "--trace"]) == 1
    traced = capsys.readouterr().out
    assert first_line in traced
    assert re.search(r"^ +\d+\.\d+  broker-0 +\w+", traced, re.MULTILINE), "a broker logged"


def test_a_seed_repeats_in_another_process(orders: Path) -> None:
    digests: set[str] = set()
    for _ in range(2):
        with campaign(jobs=1) as run_many:
            run_seed = partial(run_scenario_seed, orders, Setup(1, 1))
            (told,) = run_many([(run_seed, 7)], RunOptions())
        digests.add(told.digest)
    assert len(digests) == 1
