"""The knobs are BookKeeper's nodes; what they hold is read leniently."""

from __future__ import annotations

import pytest

from geminga_autorecovery.zookeeper import controls
from geminga_protocol.records.ledgers.underreplication import DISABLED_PATH, LOST_BOOKIE_DELAY_PATH
from geminga_simulation.zookeeper.interception import InstantSession


async def test_auto_recovery_is_on_until_it_is_switched_off() -> None:
    coordination = InstantSession()
    assert await controls.is_enabled(coordination)
    assert not await controls.enable(coordination)
    assert await controls.disable(coordination)
    assert not await controls.disable(coordination)
    assert coordination.zookeeper.tree.exists(DISABLED_PATH)
    assert not await controls.is_enabled(coordination)
    assert await controls.enable(coordination)
    assert await controls.is_enabled(coordination)


async def test_switching_auto_recovery_wakes_what_waits_for_it() -> None:
    coordination = InstantSession()
    told: list[int] = []
    await controls.is_enabled(coordination, on_change=lambda: told.append(1))
    await controls.disable(coordination)
    assert told == [1]


async def test_the_grace_is_initialised_once() -> None:
    coordination = InstantSession()
    await controls.initialize_lost_bookie_delay(coordination, 600)
    await controls.initialize_lost_bookie_delay(coordination, 0)
    assert coordination.zookeeper.tree.get(LOST_BOOKIE_DELAY_PATH)[0] == b"600"


async def test_the_grace_is_set_whether_it_is_there_or_not() -> None:
    coordination = InstantSession()
    for seconds in (600, 30):
        await controls.set_lost_bookie_delay(coordination, seconds)
        assert coordination.zookeeper.tree.get(LOST_BOOKIE_DELAY_PATH)[0] == b"%d" % seconds


def test_a_grace_that_is_no_number_is_the_default() -> None:
    assert controls.lost_bookie_delay_of(b"30", 7) == 30
    assert controls.lost_bookie_delay_of(b"soon", 7) == 7


@pytest.mark.parametrize("kind", [controls.READING, controls.PLACEMENT, controls.REPLICAS])
async def test_the_time_of_the_last_check_comes_back(kind: controls.LastCheck) -> None:
    coordination = InstantSession()
    assert await controls.last_check_ms(coordination, kind) is None
    for time_ms in (1_795_230_900_000, 1_795_230_900_001):
        await controls.set_last_check(coordination, time_ms, kind)
        assert await controls.last_check_ms(coordination, kind) == time_ms
    coordination.zookeeper.put(kind.path, b"\xff")
    assert await controls.last_check_ms(coordination, kind) is None
