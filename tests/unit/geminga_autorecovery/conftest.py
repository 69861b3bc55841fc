"""Tests of auto-recovery run in virtual time: an interval of a week passes at once."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.geminga_ledger.virtual_time import LOOP_FACTORIES, VirtualTimeLoop


def pytest_asyncio_loop_factories() -> Mapping[str, type[VirtualTimeLoop]]:
    """How pytest-asyncio makes the loops of this folder's tests."""
    return LOOP_FACTORIES
