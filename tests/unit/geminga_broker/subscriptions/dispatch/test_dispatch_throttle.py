"""Proves which entries a dispatcher may send now, and that it waits where nothing may pass."""

from __future__ import annotations

import asyncio

from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.policies.dispatch import COUNT_ALL, Counting, DispatchLimit
from geminga_broker.subscriptions.dispatch.dispatch_throttle import DispatchThrottle
from geminga_broker.subscriptions.dispatch.rate_limiter import RateLimiter
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop

NO_LIMIT = DispatchLimit(messages=1_000_000)


def gate_of(limit: DispatchLimit) -> RateLimiter:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return RateLimiter(limit, SimulatedClock(loop))


def run_of(*messages: int, size_bytes: int = 10) -> list[Entry]:
    """Entries of so many messages."""
    return [(number, b"x" * size_bytes, count) for number, count in enumerate(messages)]


def needed(_: Entry) -> bool:
    return True


def nothing() -> None:
    raise AssertionError("no dispatcher waits")


async def test_the_tightest_gate_counts() -> None:
    gates = [gate_of(NO_LIMIT), gate_of(DispatchLimit(messages=3)), gate_of(NO_LIMIT)]
    throttle = DispatchThrottle(gates, COUNT_ALL, nothing)
    assert len(throttle.allow(run_of(1, 1, 1, 1, 1), needed)) == 3
    throttle = DispatchThrottle([*gates, gate_of(DispatchLimit(size_bytes=15))], COUNT_ALL, nothing)
    assert len(throttle.allow(run_of(1, 1, 1, 1, 1), needed)) == 2


async def test_a_batch_is_never_split_and_what_is_too_much_is_owed() -> None:
    gate = gate_of(DispatchLimit(messages=3))
    throttle = DispatchThrottle([gate], COUNT_ALL, nothing)
    assert len(throttle.allow(run_of(2, 50, 1), needed)) == 2
    throttle.passed(entries=2, messages=52, size_bytes=20)
    assert gate.available()[0] == -49


async def test_a_batch_may_count_as_one_message() -> None:
    gate = gate_of(DispatchLimit(messages=3))
    throttle = DispatchThrottle([gate], Counting(batches_as_one=True), nothing)
    assert len(throttle.allow(run_of(9, 9, 9, 9), needed)) == 3
    throttle.passed(entries=3, messages=27, size_bytes=30)
    assert gate.available()[0] == 0


async def test_a_batch_from_a_bookie_counts_by_its_metadata() -> None:
    metadata = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    metadata.num_messages_in_batch = 3
    run: list[Entry] = [(number, encode_payload(metadata, b""), 0) for number in range(4)]
    throttle = DispatchThrottle([gate_of(DispatchLimit(messages=4))], COUNT_ALL, nothing)
    assert len(throttle.allow(run, needed)) == 2


async def test_what_is_acknowledged_costs_nothing() -> None:
    gate = gate_of(DispatchLimit(messages=2))
    throttle = DispatchThrottle([gate], COUNT_ALL, nothing)
    run = run_of(*[1] * 10)
    assert len(throttle.allow(run, lambda entry: entry[0] % 3 == 0)) == 4
    throttle.passed(entries=0, messages=0, size_bytes=0)
    assert gate.available()[0] == 2


async def test_a_dispatcher_that_is_called_overtakes_those_that_wait_at_other_limiters() -> None:
    broker, topic = gate_of(DispatchLimit(messages=10)), gate_of(NO_LIMIT)
    allowed: list[int] = []

    def wake() -> None:
        allowed.append(len(throttle.allow(run_of(*[1] * 5), needed)))

    throttle = DispatchThrottle([broker, topic], COUNT_ALL, wake)
    broker.take(10, 0)
    assert throttle.allow(run_of(1), needed) == []
    topic.wait(lambda: None)
    await asyncio.sleep(0.5)
    assert allowed == [1], "a tenth of a second has brought one"


async def test_a_newcomer_does_not_overtake_a_waiting_dispatcher() -> None:
    gate = gate_of(DispatchLimit(messages=10))
    called: list[str] = []
    first = DispatchThrottle([gate], COUNT_ALL, lambda: called.append("first"))
    second = DispatchThrottle([gate], COUNT_ALL, lambda: called.append("second"))
    gate.take(10, 0)
    assert first.allow(run_of(1), needed) == []
    gate.take(-10, 0)
    assert second.allow(run_of(1), needed) == []
    await asyncio.sleep(1)
    assert called == ["first", "second"]


async def test_who_has_ended_is_not_called() -> None:
    gate = gate_of(DispatchLimit(messages=1))
    throttle = DispatchThrottle([gate], COUNT_ALL, nothing)
    gate.take(1, 0)
    throttle.allow(run_of(1), needed)
    throttle.end()
    await asyncio.sleep(10)
