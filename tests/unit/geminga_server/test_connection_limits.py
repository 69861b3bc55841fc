"""Who gets in is decided by how many are in, in all and from one address, and said now and then."""

from __future__ import annotations

import asyncio
import logging

import pytest

from geminga_server.config import ConnectionConfig
from geminga_server.connection_limits import (
    LOG_PERIOD_S,
    ConnectionLimits,
    Limit,
    connections_allowed,
)
from geminga_server.open_files import share_out
from geminga_simulation.event_loop.loop import SimulatedLoop


def test_without_limits_every_connection_is_admitted() -> None:
    limits = ConnectionLimits()
    assert {limits.admit("a") for _ in range(10_000)} == {None}
    assert limits.open_count == 10_000


async def test_one_too_many_is_refused_until_another_leaves() -> None:
    limits = ConnectionLimits(ConnectionConfig(connections_max=2))
    assert [limits.admit(host) for host in ("a", "b", "c")] == [None, None, Limit.ALL]
    limits.leave("a")
    assert [limits.admit(host) for host in ("c", "a")] == [None, Limit.ALL]
    assert limits.refused == {Limit.ALL: 2, Limit.ADDRESS: 0}


async def test_one_address_has_its_own_limit() -> None:
    limits = ConnectionLimits(ConnectionConfig(connections_per_address_max=2))
    assert [limits.admit(host) for host in "aaba"] == [None, None, None, Limit.ADDRESS]
    limits.leave("a")
    assert limits.admit("a") is None
    assert limits.refused == {Limit.ALL: 0, Limit.ADDRESS: 1}


def test_nothing_is_kept_of_addresses_that_left() -> None:
    limits = ConnectionLimits(ConnectionConfig(connections_per_address_max=1))
    for number in range(100):
        limits.admit(str(number))
        limits.leave(str(number))
    assert limits.open_count == 0
    assert limits._open_by_address == {}


def test_a_flood_of_refusals_is_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        limits = ConnectionLimits(ConnectionConfig(connections_max=3))
        for host in ("a", "b", "b", *"c" * 100):
            limits.admit(host)
        await asyncio.sleep(2 * LOG_PERIOD_S)
        limits.admit("d")

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(story())
    lines = [record.__dict__ for record in caplog.records]
    assert [line["refused"] for line in lines] == [1, 99, 1]
    assert [line["last_from"] for line in lines] == ["c", "c", "d"]
    assert (lines[1]["limit"], lines[1]["most_from"], lines[1]["most"]) == ("all", "b", 2)


def test_as_many_are_allowed_as_were_set_or_as_there_is_room_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = share_out(256)

    def allowed(wanted: int) -> int:
        config = ConnectionConfig(connections_max=wanted, connections_per_address_max=3)
        told = connections_allowed(config, files)
        assert told.connections_per_address_max == 3
        return told.connections_max

    assert allowed(0) == files.clients
    assert allowed(7) == 7
    assert not caplog.records
    assert allowed(1_000) == files.clients
    (line,) = caplog.records
    assert (line.levelno, line.__dict__["wanted"]) == (logging.WARNING, 1_000)
