"""Proves what a client is told of its own consumers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.unit.geminga_broker.sessions.stand_ins import FrameClient

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]


async def test_stats_of_a_consumer_are_what_is_known_of_it(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.open_producer()
    client.subscribe(consumer_name="c")
    await settle()
    client.publish(b"a", b"b", b"c")
    client.say("flow", consumer_id=1, messagePermits=2)
    await settle()
    client.ask("consumerStats", consumer_id=1)
    await settle()
    (stats,) = client.all_of("consumerStatsResponse")
    assert (stats.type, stats.msgBacklog, stats.availablePermits) == ("Exclusive", 3, 0)
    assert (stats.address, stats.consumerName) == ("/10.0.0.1:4711", "c")
    assert stats.connectedSince.endswith("Z")
