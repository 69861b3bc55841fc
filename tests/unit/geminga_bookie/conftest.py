"""Tests of the bookie run in virtual time: a checkpoint's minute passes at once.

Those with RocksDB in their name have its threads, which know no virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from tests.unit.geminga_ledger.virtual_time import LOOP_FACTORIES


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """How pytest-asyncio makes the loops of this folder's tests."""
    if "rocks" in item.nodeid:
        return {"real": asyncio.new_event_loop}
    return LOOP_FACTORIES
