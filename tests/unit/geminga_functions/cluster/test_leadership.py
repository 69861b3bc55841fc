"""Proves that a leader knows nothing of workers from a time at which another one may have led."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

from geminga import Client, Consumer, Message
from geminga_functions.cluster.leadership import Assignments, Functions, Leadership
from geminga_functions.cluster.membership import WorkerInfo
from geminga_simulation.event_loop.clock import SimulatedClock

LEASE_S = 3.0


class Log:
    """A log without records. ``takers`` counts the leaders that took it for themselves."""

    def __init__(self) -> None:
        self.records: Mapping[object, object] = {}
        self.takers = 0
        # Nothing ever changes: they are never called.
        self.listeners: list[Callable[[], None]] = []

    async def writer(self, _stack: AsyncExitStack, _timeout_s: float) -> Log:
        self.takers += 1
        return self


class Candidate:
    """A client and its consumer in one, which hears nothing but that its turn begins and ends."""

    def __init__(self) -> None:
        self.is_active = self.is_connected = True
        self.activations = 1

    @asynccontextmanager
    async def consumer(self, *_: object, **__: object) -> AsyncGenerator[Consumer[bytes]]:
        yield cast("Consumer[bytes]", self)

    async def receive_many(self, _count: int, poll_s: float) -> Sequence[Message[bytes]]:
        await asyncio.sleep(poll_s)
        return []


def leadership_of(candidate: Candidate, assignments: Log) -> Leadership:
    async def ask(_worker: str) -> None:
        """None answers."""

    return Leadership(
        cast("Client", candidate),
        "coordinate",
        WorkerInfo("worker", "worker", 6750),
        cast("Functions", Log()),
        cast("Assignments", assignments),
        ask=ask,
        own_session=lambda: "session",
        lease_s=LEASE_S,
        balances=False,
        clock=SimulatedClock(),
    )


async def test_a_leader_leads_as_long_as_its_consumer_is_active() -> None:
    candidate, assignments = Candidate(), Log()
    async with leadership_of(candidate, assignments) as leadership:
        await asyncio.sleep(LEASE_S * 10)
        led = [leadership.is_leader]
        candidate.is_active = False
        await asyncio.sleep(1)
        assert [*led, leadership.is_leader] == [True, False]
        assert assignments.takers == 1


async def test_a_leader_whose_turn_ended_and_began_between_two_looks_begins_anew() -> None:
    """The one that was active meanwhile has received and acknowledged heartbeats."""
    candidate, assignments = Candidate(), Log()
    async with leadership_of(candidate, assignments) as leadership:
        await asyncio.sleep(LEASE_S * 10)
        candidate.activations += 1
        await asyncio.sleep(1)
        assert leadership.is_leader
        assert assignments.takers == 2
