"""Tests with RocksDB in their name have its threads, which know no virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    """A real loop for those; for the others what holds for all unit tests."""
    return {"real": asyncio.new_event_loop} if "rocks" in item.nodeid else None
