"""Proves that files without a scenario are refused, what fails one, and what a seed chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga_scenarios.errors import NoScenario
from geminga_scenarios.scenario import Setup, load, run, run_scenario_seed, smaller_setups
from geminga_scenarios.seed_run import RunOptions
from geminga_simulation.errors import NotSimulated

SEEDS = range(30)
HEAD = "import asyncio\n\n\nasync def scenario(cluster):\n"
SMALL = Setup(bookies=1, brokers=1, time_limit_s=60.0)


def write(folder: Path, text: str) -> Path:
    path = folder / "orders.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1\n", "defines no `async def scenario"),
        ("def scenario(cluster): ...\n", "defines no `async def scenario"),
        ("import nothing_of_this_name\n", "cannot be imported: ModuleNotFoundError"),
        ("async def scenario(\n", "cannot be imported: SyntaxError"),
    ],
)
def test_a_file_without_a_scenario_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(NoScenario, match=why):
        load(write(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoScenario, match="is no Python file"):
        run_scenario_seed(tmp_path / "gone.py", SMALL, 1, RunOptions())


def test_no_seed_sees_the_variables_of_another(tmp_path: Path) -> None:
    path = write(tmp_path, f"SEEN = []\n{HEAD}    SEEN.append(1)\n    assert SEEN == [1]\n")
    for seed in range(2):
        run(path, SMALL, seed)


def test_a_failure_names_the_line_of_the_scenario_and_not_the_machinery(tmp_path: Path) -> None:
    path = write(tmp_path, f"{HEAD}    await asyncio.sleep(5)\n    assert cluster.hosts == []\n")
    told = run_scenario_seed(path, SMALL, 1, RunOptions())
    assert told.error == "AssertionError"
    assert "assert cluster.hosts == []" in told.where
    assert told.where.count("File ") == 1
    assert told.virtual_s >= 5.0


def test_a_scenario_that_does_not_end_fails_in_time(tmp_path: Path) -> None:
    path = write(tmp_path, f"{HEAD}    await asyncio.Event().wait()\n")
    told = run_scenario_seed(path, SMALL, 1, RunOptions())
    assert told.failure is not None
    assert "60.0 virtual seconds" in told.failure


def test_an_error_of_a_program_fails_the_scenario_and_one_of_the_client_does_not(
    tmp_path: Path,
) -> None:
    body = (
        "    from geminga import NotConnected\n"
        "    runs = []\n"
        "    async def program(client):\n"
        "        runs.append(1)\n"
        "        raise ZeroDivisionError if len(runs) == 3 else NotConnected('again')\n"
        "    cluster.start('program', program)\n"
        "    await asyncio.sleep(10)\n"
        "    assert len(runs) == 3\n"
    )
    told = run_scenario_seed(write(tmp_path, HEAD + body), SMALL, 1, RunOptions())
    assert told.error == "ZeroDivisionError"


def test_threads_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, f"{HEAD}    await asyncio.to_thread(print)\n")
    with pytest.raises(NotSimulated):
        run(path, SMALL, 1)


def test_a_seed_chooses_the_cluster_unless_it_is_given() -> None:
    shapes = {(shape.bookies, shape.brokers) for shape in map(Setup().shape, SEEDS)}
    assert shapes == {(1, 1), (1, 2), (4, 2)}
    fixed = Setup(bookies=2, brokers=3, proxies=1)
    (shape,) = {fixed.shape(seed) for seed in SEEDS}
    assert (shape.bookies, shape.brokers, shape.proxies) == (2, 3, 1)
    assert shape.sizes == (2, 2, 2)


def test_smaller_clusters_are_smaller_than_that_of_the_seed() -> None:
    setups = smaller_setups(Setup(bookies=4, brokers=1), seed=1)
    assert [(each.bookies, each.brokers) for each in setups] == [(1, 1), (3, 1)]
    assert smaller_setups(Setup(bookies=1, brokers=1), seed=1) == []
