"""Proves that a lease which ended is never taken up again in the same session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Self, cast

from geminga import Client, ClientError
from geminga_functions.cluster.heartbeats import SESSION_PROPERTY, Heartbeats
from geminga_simulation.event_loop.clock import SimulatedClock

LEASE_S = 3.0
LOST = -1.0


class Topic:
    """A client and its producer in one: each heartbeat takes as long as the script says, and none
    ends after the script."""

    def __init__(self, *durations_s: float) -> None:
        self._durations_s = iter(durations_s)
        self.is_through = asyncio.Event()
        self.sessions: list[str] = []

    def producer(self, _topic: str, **_options: object) -> Topic:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    async def send(self, _value: bytes, *, properties: Mapping[str, str]) -> None:
        self.sessions.append(properties[SESSION_PROPERTY])
        duration_s = next(self._durations_s, None)
        if duration_s is None:
            self.is_through.set()
            await asyncio.Event().wait()
        elif duration_s == LOST:
            await asyncio.sleep(LEASE_S)
            raise ClientError("no receipt")
        else:
            await asyncio.sleep(duration_s)


async def leases_of(topic: Topic) -> list[tuple[str, float]]:
    """The leases that the heartbeats on ``topic`` give, as sessions and their ends."""
    leases: list[tuple[str, float]] = []
    clock = SimulatedClock()
    began_s = clock.monotonic()
    names: Iterator[str] = iter("abcdefgh")
    heartbeats = Heartbeats(
        cast("Client", topic),
        "coordinate",
        "w",
        lease_s=LEASE_S,
        clock=clock,
        on_lease=lambda session, until_s: leases.append((session, until_s - began_s)),
        make_session=lambda: next(names),
    )
    async with asyncio.timeout(60):
        async with heartbeats:
            await topic.is_through.wait()
    return leases


async def test_a_lease_goes_on_from_the_moment_of_sending() -> None:
    topic = Topic(1.0, 1.5)
    assert await leases_of(topic) == [("a", 3.0), ("a", 4.0)]
    assert topic.sessions == ["a", "a", "a"]


async def test_a_heartbeat_that_is_stored_after_the_end_of_its_lease_does_not_renew_it() -> None:
    # Sent at 1.0 and stored at 3.5; the lease of the first heartbeat ended at 3.0.
    topic = Topic(1.0, 2.5, 1.0)
    assert await leases_of(topic) == [("a", 3.0), ("b", 6.5)]
    assert topic.sessions[:3] == ["a", "a", "b"]


async def test_a_first_heartbeat_that_took_a_whole_lease_gives_none() -> None:
    assert await leases_of(Topic(3.0, 1.0)) == [("b", 6.0)]


async def test_a_session_of_which_a_heartbeat_was_lost_ends_with_its_lease() -> None:
    assert await leases_of(Topic(1.0, LOST, 1.0)) == [("a", 3.0), ("b", 7.0)]
