"""Proves that loads keep their rate and their limits, and measure what they say."""

from __future__ import annotations

import argparse
import asyncio
import json
from random import Random

import pytest
from tests.unit.geminga.fake_broker import LEDGER, FakeBroker, Session, metadata, until

from geminga import Client, TopicTerminated
from geminga_cli.commands.perf import PARSERS, complete
from geminga_cli.messaging import loads
from geminga_cli.messaging.loads import Load, MessagesMissing
from geminga_protocol.pulsar.answers import encode_send_error
from geminga_protocol.pulsar.api_pb2 import BaseCommand, ServerError
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.send import encode_receipt
from geminga_simulation.event_loop.clock import SimulatedClock


def given_of(*words: str) -> argparse.Namespace:
    name, *rest = words
    parser = PARSERS[name][1]()
    given = parser.parse_args(rest)
    complete(parser, given)
    return given


def load_of(*words: str) -> Load:
    return Load(given_of(*words), SimulatedClock(), Random(1))


async def test_producing_keeps_its_rate_and_ends_in_time(
    client: Client, broker: FakeBroker
) -> None:
    load = load_of("produce", "t", "-r", "100", "-time", "10", "-s", "7", "-n", "2", "-i", "0")
    began_s = load.clock.monotonic()
    await loads.produce(client, load)
    assert load.clock.monotonic() - began_s == pytest.approx(10, abs=0.2)
    assert load.meter.whole.messages == pytest.approx(1000, abs=4)
    assert len(broker.stored) == load.meter.whole.messages
    assert {len(body) for body in broker.stored_bodies} == {7}
    assert len(broker.of_type(BaseCommand.PRODUCER)) == 2


async def test_producing_ends_with_the_number_of_messages(
    client: Client, broker: FakeBroker
) -> None:
    load = load_of("produce", "t", "-r", "0", "-m", "777", "-t", "3", "-mk", "autoIncrement")
    await loads.produce(client, load)
    assert len(broker.stored) == load.meter.whole.messages == 777
    topics = {each.producer.topic for each in broker.of_type(BaseCommand.PRODUCER)}
    assert topics == {f"persistent://public/default/t-{number}" for number in range(3)}


async def test_a_latency_is_from_sending_to_the_receipt(client: Client, broker: FakeBroker) -> None:
    def store_later(session: Session, command: BaseCommand, payload: bytes) -> None:
        asyncio.get_running_loop().call_later(0.5, broker.store, session, command, payload)

    broker.on(BaseCommand.SEND, store_later)
    load = load_of("produce", "t", "-m", "5", "-db")
    await loads.produce(client, load)
    (median,) = load.meter.whole.latencies.percentiles_us(50)
    assert median == pytest.approx(500_000, rel=0.02)


async def test_progress_is_told_in_intervals(
    client: Client, broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    load = load_of("produce", "t", "-r", "10", "-time", "35", "--json")
    await loads.produce(client, load)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all("10.0 msg/s" in line for line in lines)
    load.show_summary()
    assert json.loads(capsys.readouterr().out)["messages"] == len(broker.stored)


async def test_failures_are_counted_and_raised_at_the_end(
    client: Client, broker: FakeBroker
) -> None:
    def refuse(session: Session, command: BaseCommand, _: bytes) -> None:
        send = command.send
        session.write(
            encode_send_error(
                send.producer_id, send.sequence_id, ServerError.TopicTerminatedError, "over"
            )
        )

    broker.on(BaseCommand.SEND, refuse)
    load = load_of("produce", "t", "-m", "1", "-db")
    with pytest.raises(TopicTerminated):
        await loads.produce(client, load)
    assert load.meter.whole.failed == 1


async def test_consuming_counts_acknowledges_and_ends(client: Client, broker: FakeBroker) -> None:
    load = load_of("consume", "t", "-m", "3")
    work = asyncio.ensure_future(loads.consume(client, load))
    await until(lambda: broker.permits > 0)
    for number in range(5):
        told = metadata(number)
        told.publish_time = load.clock.wall_ms() - 250
        broker.deliver(number, payload=encode_payload(told, b"four"))
    await work
    whole = load.meter.whole
    assert (whole.messages, whole.size_bytes) == (3, 12)
    assert list(whole.latencies.percentiles_us(50)) == [pytest.approx(250_000, rel=0.02)]
    assert broker.acked == [0, 1, 2]


async def test_consuming_ends_in_time_without_messages(client: Client, broker: FakeBroker) -> None:
    load = load_of("consume", "t", "-time", "5", "-ns", "2", "-n", "2", "-st", "Shared")
    began_s = load.clock.monotonic()
    await loads.consume(client, load)
    assert load.clock.monotonic() - began_s == pytest.approx(5, abs=0.1)
    told = [each.subscribe.subscription for each in broker.of_type(BaseCommand.SUBSCRIBE)]
    assert sorted(told) == ["sub-0", "sub-0", "sub-1", "sub-1"]


@pytest.mark.parametrize("lost", [0, 2])
async def test_latency_is_that_of_the_round_trip(
    client: Client, broker: FakeBroker, lost: int
) -> None:
    def store_and_deliver(session: Session, command: BaseCommand, payload: bytes) -> None:
        broker.keep(command, payload)
        number = len(broker.stored)
        send = command.send
        session.write(encode_receipt(send.producer_id, send.sequence_id, 0, LEDGER, number))
        broker.deliver(2 * number, b"published by others")
        if number > lost:
            later = asyncio.get_running_loop().call_later
            later(0.2, lambda: broker.deliver(2 * number + 1, payload=payload))

    broker.on(BaseCommand.SEND, store_and_deliver)
    load = load_of("latency", "t", "-m", "10", "-db", "-r", "1", "--warmup-time", "0", "-s", "20")
    if lost:
        with pytest.raises(MessagesMissing, match="2 of 10"):
            await loads.latency(client, load)
    else:
        await loads.latency(client, load)
    whole = load.meter.whole
    assert whole.messages == 10 - lost
    assert whole.size_bytes == 20 * whole.messages
    assert list(whole.latencies.percentiles_us(50)) == [pytest.approx(200_000, rel=0.02)]
