"""Tests of ledgers run in virtual time: a deadline of a minute passes at once."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.geminga_ledger.virtual_time import LOOP_FACTORIES, VirtualTimeLoop


def pytest_asyncio_loop_factories() -> Mapping[str, type[VirtualTimeLoop]]:
    """How pytest-asyncio makes the loops of this folder's tests."""
    return LOOP_FACTORIES
