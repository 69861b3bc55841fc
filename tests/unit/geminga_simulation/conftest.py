"""Async tests of this package run on the simulated loop itself, through pytest-asyncio."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from geminga_simulation.loop import SimulatedLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 -- the hook's signature
    item: pytest.Item,  # noqa: ARG001 -- the same
) -> Mapping[str, Callable[[], SimulatedLoop]]:
    return {"simulated": SimulatedLoop}
