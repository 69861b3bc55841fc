"""What is counted as full still has the methods that it is counted by (``overflows.py``)."""

from __future__ import annotations

from tests.simulation.coverage.overflows import PLACES, counting_overflows


def test_every_method_that_is_watched_exists_and_is_put_back() -> None:
    """The stories that count are long and run late: a renamed method is told of here, at once."""
    methods = [getattr(owner, method) for _, owner, method, _ in PLACES]
    with counting_overflows() as seen:
        watched = [getattr(owner, method) for _, owner, method, _ in PLACES]
    assert not any(seen.values())
    assert all(one is not other for one, other in zip(methods, watched, strict=True))
    assert methods == [getattr(owner, method) for _, owner, method, _ in PLACES]
