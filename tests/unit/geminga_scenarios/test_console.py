"""Proves that what is printed of a failure suffices to have it again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geminga_scenarios.console import (
    EVENTS_SHOWN_MAX,
    Story,
    failure_lines,
    faults_in,
    replay_command,
    trace_lines,
)
from geminga_scenarios.errors import UnknownFault
from geminga_scenarios.seed_run import RunOptions, SeedResult
from geminga_scenarios.shrinking import Failure

TOLD = SeedResult(
    seed=42,
    failure="AssertionError: one was lost",
    where='  File "orders.py", line 7, in scenario\n    assert lost == 0',
    virtual_s=12.5,
    cpu_s=0.3,
    digest="ab" * 16,
    faults=("crash", "disk"),
    events=((1.25, "broker-0 crashes"),),
)


def never_told(_setup: int, _seed: int, _orders: RunOptions) -> SeedResult:
    raise AssertionError("nothing is told here")


STORY: Story[int] = Story(
    3,
    never_told,
    lambda bookies: ["geminga", "simulate", "my orders.py", "--bookies", str(bookies)],
    lambda _setup, _seed: [],
)


def test_a_failure_is_told_with_its_place_its_faults_and_its_commands() -> None:
    lines = list(failure_lines(STORY, Failure(TOLD, 3, RunOptions())))
    command = "geminga simulate 'my orders.py' --bookies 3 --seed 42"
    assert lines == [
        "seed 42 fails after 12.500000 virtual seconds",
        '  File "orders.py", line 7, in scenario',
        "    assert lost == 0",
        "AssertionError: one was lost",
        "",
        "what was done, crash,disk on the menu:",
        "    1.250000  broker-0 crashes",
        "",
        f"again:   {command} --trace",
        f"shorter: {command} --shrink",
    ]


def test_of_many_events_the_last_ones_are_shown() -> None:
    events = tuple((float(second), f"event {second}.") for second in range(EVENTS_SHOWN_MAX + 2))
    told = "\n".join(failure_lines(STORY, Failure(replace(TOLD, events=events), 3, RunOptions())))
    assert "(2 events before: --trace shows them)" in told
    assert "event 1." not in told
    assert f"event {EVENTS_SHOWN_MAX + 1}." in told


def test_the_command_names_what_was_changed_and_no_more() -> None:
    orders = RunOptions(menu=frozenset({"crash", "disk"}), faults_end_s=0.1 + 0.2)
    assert replay_command(STORY, Failure(TOLD, 1, orders)) == (
        "geminga simulate 'my orders.py' --bookies 1 --seed 42 --menu crash,disk "
        "--faults-end 0.30000000000000004"
    )
    quiet = Failure(replace(TOLD, faults=()), 1, RunOptions(menu=frozenset()))
    assert replay_command(STORY, quiet).endswith("--menu none")


def test_a_trace_names_who_did_what_and_ends_with_the_hash() -> None:
    traced = replace(TOLD, trace=((1.0, "broker-0", "ledger sealed"), (2.0, "", "a fault")))
    assert list(trace_lines(traced)) == [
        "    1.000000  broker-0  ledger sealed",
        "    2.000000  *         a fault",
        f"   12.500000  the end, trace {TOLD.digest}",
        "",
    ]
    assert list(trace_lines(TOLD)) == []


def test_a_menu_is_named_by_its_dishes() -> None:
    assert faults_in("crash,disk") == {"crash", "disk"}
    assert faults_in("none") == frozenset()
    assert faults_in("all") >= {"crash", "kill", "session_expiry", "network", "coordination"}


def test_a_fault_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownFault, match="no fault 'earthquake'; there are all, none, crash"):
        faults_in("crash,earthquake")
