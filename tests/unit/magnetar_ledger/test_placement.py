"""An ensemble has different bookies, prefers those that are up, and says when there are too few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_ledger.errors import NotEnoughBookies
from magnetar_ledger.placement import Candidate, choose_ensemble

candidates = st.lists(
    st.builds(Candidate, st.sampled_from([f"b{number}" for number in range(6)]), st.booleans()),
    unique_by=lambda each: each.bookie_id,
)


@given(candidates, st.integers(1, 6), st.frozensets(st.sampled_from(["b0", "b1", "b2"])))
def test_an_ensemble_has_the_size_wanted_or_there_is_none(
    candidates: list[Candidate], size: int, avoid: frozenset[str]
) -> None:
    usable = {each.bookie_id for each in candidates} - avoid
    if len(usable) < size:
        with pytest.raises(NotEnoughBookies) as caught:
            choose_ensemble(candidates, size, avoid)
        assert (caught.value.wanted, caught.value.available) == (size, len(usable))
    else:
        ensemble = choose_ensemble(candidates, size, avoid)
        assert len(set(ensemble)) == len(ensemble) == size
        assert set(ensemble) <= usable


def test_the_order_of_the_candidates_decides() -> None:
    candidates = [Candidate(name) for name in ("c", "a", "b")]
    assert choose_ensemble(candidates, 2) == ("c", "a")


def test_bookies_that_are_down_are_taken_only_when_there_is_no_other() -> None:
    candidates = [Candidate("a", is_down=True), Candidate("b"), Candidate("c")]
    assert choose_ensemble(candidates, 2) == ("b", "c")
    assert choose_ensemble(candidates, 3) == ("b", "c", "a")
