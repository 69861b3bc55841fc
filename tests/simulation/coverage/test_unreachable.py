"""Proves that the registry of error branches that no story comes to speaks of what is there."""

from __future__ import annotations

from tests.simulation.coverage.branches import PACKAGES
from tests.simulation.coverage.error_branches import branches_of
from tests.simulation.coverage.rarely_entered import RARELY
from tests.simulation.coverage.unreachable import REACHED, UNREACHABLE, reason


def test_the_registry_names_branches_that_are_there_once() -> None:
    branches = {str(branch): branch for branch in branches_of(PACKAGES)}
    used = set(branches)
    for name in branches:
        used |= {name[:end] for end, mark in enumerate(name) if mark in ".:"}
    assert not UNREACHABLE.keys() - used
    assert not REACHED - branches.keys()
    assert not RARELY - branches.keys()
    assert not [name for name in RARELY if reason(branches[name]) is not None]
