"""A process of auto-recovery alone has a name of its own, and is healthy with ZooKeeper."""

from __future__ import annotations

import pytest

from geminga_autorecovery.errors import NoZooKeeper
from geminga_autorecovery.part import check_health, made_up_id
from geminga_protocol.records.bookies.bookie_info import is_bookie_id
from geminga_runtime.coordination import SessionState


def test_its_name_can_stand_for_a_bookie_and_is_no_other_process() -> None:
    name = made_up_id("host_7.example", 12)
    assert name == "autorecovery-host-7.example-12"
    assert is_bookie_id(name)
    assert made_up_id("host_7.example", 13) != name


async def test_it_is_healthy_while_it_has_a_session() -> None:
    await check_health(SessionState.CONNECTED)
    for state in (SessionState.SUSPENDED, SessionState.EXPIRED):
        with pytest.raises(NoZooKeeper, match=f"the session with ZooKeeper is {state.value}"):
            await check_health(state)
