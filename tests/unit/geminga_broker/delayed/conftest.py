"""Tests of delayed messages run in virtual time: hours pass at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from geminga_simulation.loop import SimulatedLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], SimulatedLoop]]:
    """The loop of this folder's tests."""
    return {"simulated": SimulatedLoop}
