"""Every ledger is found, with short ids and long ones; nothing else is."""

from __future__ import annotations

import pytest

from geminga_autorecovery.zookeeper.ledger_list import ledger_directories, ledgers_in, visit_all
from geminga_protocol.records.ledgers.ledger_metadata import LEDGER_ID_MAX, ledger_path
from geminga_simulation.zookeeper.interception import InstantSession

IDS = [0, 5, 9_999, 10_000, (1 << 31) - 2, (1 << 31) - 1, 1 << 40, LEDGER_ID_MAX]


async def test_all_ledgers_are_found() -> None:
    coordination = InstantSession()
    for ledger_id in IDS:
        coordination.zookeeper.put(ledger_path(ledger_id))
    for other in ("LAYOUT", "INSTANCEID", "available/b0", "idgen/ID-1", "underreplication/ledgers"):
        coordination.zookeeper.put(f"/ledgers/{other}")
    found: list[int] = []
    for directory in await ledger_directories(coordination):
        found += await ledgers_in(coordination, directory)
    assert sorted(found) == IDS


async def test_a_directory_that_went_holds_nothing() -> None:
    assert await ledgers_in(InstantSession(), "/ledgers/00/0000") == []
    assert await ledger_directories(InstantSession()) == []


async def test_no_more_are_visited_at_once_than_allowed_and_all_are() -> None:
    visited: list[int] = []
    under_way = most = 0

    async def visit(ledger_id: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        visited.append(ledger_id)
        under_way -= 1

    await visit_all(list(range(10)), visit, at_once_max=3)
    assert visited == list(range(10))
    assert most <= 3


async def test_the_first_error_is_raised_when_the_others_are_done() -> None:
    visited: list[int] = []

    async def visit(ledger_id: int) -> None:
        if ledger_id == 1:
            raise ValueError(ledger_id)
        visited.append(ledger_id)

    with pytest.raises(ValueError, match="1"):
        await visit_all([0, 1, 2, 3], visit, at_once_max=3)
    assert visited == [0, 2]
