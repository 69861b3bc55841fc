"""Proves that refused messages are asked for when their time has come, once, and boundedly."""

from __future__ import annotations

from geminga.nacks import Nacks


def test_each_is_asked_for_in_its_time() -> None:
    nacks = Nacks()
    nacks.add((1, 0), 10.0)
    nacks.add((1, 1), 12.0)
    assert nacks.next_due_s == 10.0
    assert nacks.take_due(9.9) == []
    assert nacks.take_due(10.0) == [(1, 0)]
    assert nacks.next_due_s == 12.0
    assert nacks.take_due(99.0) == [(1, 1)]
    assert nacks.next_due_s is None


def test_refusing_again_changes_nothing() -> None:
    nacks = Nacks()
    nacks.add((1, 0), 10.0)
    nacks.add((1, 0), 20.0)
    assert nacks.take_due(10.0) == [(1, 0)]
    assert nacks.take_due(20.0) == []


def test_what_is_acknowledged_is_not_asked_for() -> None:
    nacks = Nacks()
    nacks.add((1, 0), 10.0)
    nacks.remove((1, 0))
    nacks.remove((1, 1))
    assert nacks.take_due(10.0) == []


def test_everything_can_be_forgotten() -> None:
    nacks = Nacks()
    nacks.add((1, 0), 10.0)
    nacks.clear()
    assert nacks.next_due_s is None


def test_what_is_too_much_is_asked_for_at_once() -> None:
    nacks = Nacks(held_max=2)
    for entry_id in range(5):
        nacks.add((1, entry_id), 10.0)
    assert nacks.next_due_s == 0.0
    assert nacks.take_due(0.0) == [(1, 0), (1, 1), (1, 2)]
    assert nacks.next_due_s == 10.0
