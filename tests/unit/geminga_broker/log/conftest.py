"""Tests of cursors run on the simulated loop: hours and back-offs pass at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from geminga_simulation.loop import SimulatedLoop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """How pytest-asyncio makes the loops of this folder's tests."""
    if item.path.name.startswith("test_cursor"):
        return {"simulated": SimulatedLoop}
    return {"real": asyncio.new_event_loop}
