"""Proves that made-up producer names belong to one producer each, and are fetched once."""

from __future__ import annotations

import asyncio
from typing import cast

from geminga_broker.sessions.context import COUNTER_PATH, ProducerNames
from geminga_runtime.coordination import Coordination


class Counter:
    """A ZooKeeper that only numbers nodes."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    async def create(
        self, path: str, *, ephemeral: bool, sequential: bool, make_parents: bool
    ) -> str:
        assert sequential
        assert make_parents
        await asyncio.sleep(0)
        self.asked.append((path, ephemeral))
        return f"{path}{len(self.asked) + 6:010d}"


async def test_names_of_all_brokers_and_of_all_times_differ() -> None:
    counter = Counter()
    one, two = (ProducerNames(cast(Coordination, counter), "standalone") for _ in range(2))
    names = await asyncio.gather(*(each.next() for each in (one, two) for _ in range(3)))
    assert sorted(names) == [f"standalone-{number}-{n}" for number in (7, 8) for n in range(3)]
    assert counter.asked == [(f"{COUNTER_PATH}/-", True)] * 2
