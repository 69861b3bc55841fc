"""Proves that a supervisor may name its parts, and that a part alone has a name."""

from __future__ import annotations

import pytest

from geminga_server.control.supervision import PART_NAME_VARIABLE, part_name


@pytest.mark.parametrize(("given", "name"), [("bookie-2", "bookie-2"), ("", "bookie")])
def test_a_part_is_called_what_its_supervisor_says(
    given: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PART_NAME_VARIABLE, given)
    assert part_name("bookie") == name


def test_a_part_without_a_supervisor_is_called_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PART_NAME_VARIABLE, raising=False)
    assert part_name("bookie") == "bookie"
