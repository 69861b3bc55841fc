"""Scenarios are chosen by their names, or by how their names begin."""

from __future__ import annotations

import pytest
from tests.performance.scenarios import NAMES, named


def test_a_beginning_stands_for_all_names_that_have_it() -> None:
    assert named("bookie") == {"bookie-adds", "bookie-reads"}
    assert named("un,startup") == {"unbatched-1k", "unbatched-100", "startup"}


def test_all_names_together_are_everything() -> None:
    assert named(",".join(NAMES)) == set(NAMES)


def test_an_unknown_name_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match="nix is not known; known are unbatched-1k"):
        named("startup,nix")
