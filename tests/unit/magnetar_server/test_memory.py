"""Proves that tuning the memory leaves a collector that still collects cycles."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from magnetar_server.memory import COLLECTOR_THRESHOLDS, tune_memory


@pytest.fixture
def restored_collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


class Knot:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("restored_collector")
def test_cycles_are_still_found() -> None:
    tune_memory()
    assert gc.get_threshold() == COLLECTOR_THRESHOLDS
    knot = weakref.ref(Knot())
    gc.collect()
    assert knot() is None
