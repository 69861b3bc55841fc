"""Proves that a part waits at its gate until it is let go on, or is left alone."""

from __future__ import annotations

import sys
import threading

import pytest

from geminga_cli.gate import Gate, pass_gate


def test_an_open_gate_lets_the_part_go_on() -> None:
    gate = Gate()
    gate.open()
    assert pass_gate(gate.variables(), [])
    gate.close()


def test_the_part_waits_until_the_gate_is_opened() -> None:
    gate = Gate()
    passed: list[bool] = []
    part = threading.Thread(target=lambda: passed.append(pass_gate(gate.variables(), [])))
    part.start()
    assert passed == []
    gate.open()
    part.join(timeout=60)
    assert passed == [True]
    gate.close()


def test_a_part_whose_supervisor_died_does_not_go_on() -> None:
    gate = Gate()
    gate.close()
    assert not pass_gate(gate.variables(), [])


def test_opening_the_gate_of_a_part_that_has_ended_changes_nothing() -> None:
    gate = Gate()
    gate.give_entrance_away()
    gate.open()
    gate.close()


def test_what_the_part_will_need_is_imported_while_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "this_is_not_loaded", raising=False)
    gate = Gate()
    gate.open()
    with pytest.raises(ModuleNotFoundError, match="this_is_not_loaded"):
        pass_gate(gate.variables(), ["json", "this_is_not_loaded"])
    gate.give_entrance_away()
    gate.close()


def test_without_a_supervisor_there_is_no_gate_and_nothing_is_imported() -> None:
    assert pass_gate({}, ["this_is_not_loaded"])
