"""The tests of this directory run in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from geminga_simulation.loop import SimulatedLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], SimulatedLoop]]:
    """The loop of this folder's tests: minutes pass at once."""
    return {"simulated": SimulatedLoop}
