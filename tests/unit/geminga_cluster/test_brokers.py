"""Any process finds the living brokers, with the addresses that they registered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from itertools import pairwise
from typing import cast

import pytest

from geminga_cluster.brokers import LivingBrokers
from geminga_protocol.records.cluster.brokers import BundleStats, LocalBrokerData, broker_path
from geminga_runtime.coordination import Coordination

ID = "127.0.0.1:8080"
RECORD = LocalBrokerData(pulsar_service_url="pulsar://127.0.0.1:6650")


async def test_where_no_broker_ever_was_none_lives(coordination: Coordination) -> None:
    brokers = LivingBrokers(coordination)
    assert await brokers.ids() == []
    assert await brokers.get(ID) is None


async def test_a_broker_is_found_while_it_lives(
    coordination: Coordination,
    session: Callable[[str], Coordination],
    expire: Callable[[str], Awaitable[None]],
    settle: Callable[[], Awaitable[None]],
) -> None:
    brokers = LivingBrokers(coordination)
    assert await brokers.ids() == []
    registering = session("another")
    await registering.create(broker_path(ID), RECORD.encode(), ephemeral=True, make_parents=True)
    await settle()
    assert await brokers.ids() == [ID]
    assert await brokers.get(ID) == RECORD
    await expire("another")
    await settle()
    assert await brokers.ids() == []
    assert await brokers.get(ID) is None


async def test_others_run_while_a_large_report_is_decoded(
    coordination: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    stats = {f"t/n/{number}": BundleStats(msg_rate_in=1.0) for number in range(1000)}
    record = replace(RECORD, last_stats=stats)
    await coordination.create(broker_path(ID), record.encode(), make_parents=True)
    turns = 0
    turns_at_parts: list[int] = []
    decode_in_parts = LocalBrokerData.decode_in_parts

    def noting_turns(value: bytes) -> Generator[None, None, LocalBrokerData]:
        parts = decode_in_parts(value)
        while True:
            turns_at_parts.append(turns)
            try:
                next(parts)
            except StopIteration as decoded:
                return cast(LocalBrokerData, decoded.value)
            yield

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    monkeypatch.setattr(LocalBrokerData, "decode_in_parts", noting_turns)
    counting = asyncio.create_task(count_turns())
    assert await LivingBrokers(coordination).get(ID) == record
    counting.cancel()
    assert len(turns_at_parts) > 10
    assert all(after > before for before, after in pairwise(turns_at_parts))


async def test_who_asks_again_asks_no_zookeeper(
    coordination: Coordination, requests: list[str]
) -> None:
    await coordination.create(broker_path(ID), RECORD.encode(), make_parents=True)
    brokers = LivingBrokers(coordination)
    await brokers.ids()
    await brokers.get(ID)
    requests.clear()
    assert await brokers.ids() == [ID]
    assert await brokers.get(ID) == RECORD
    assert requests == []
