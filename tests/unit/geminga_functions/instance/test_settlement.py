"""Proves what results say of the message that they came of, and what is acknowledged when."""

from __future__ import annotations

import asyncio
import base64
from typing import cast

import pytest

import geminga
from geminga.message_ids import BatchAcks
from geminga.messages import Delivery
from geminga_functions.instance.settlement import EarlyAcknowledger, PendingMessage, id_text
from geminga_functions.instance.status import Counters
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_simulation.event_loop.clock import SimulatedClock

TOPIC = "persistent://public/default/t"


@pytest.mark.parametrize("partition", [-1, 0, 300])
@pytest.mark.parametrize("index", [-1, 0, 999])
@pytest.mark.parametrize("chunks", [(), ((3, 1), (3, 2))])
def test_the_id_of_an_input_is_that_which_every_client_reads(
    partition: int, index: int, chunks: tuple[tuple[int, int], ...]
) -> None:
    acks = None if index < 0 else BatchAcks(1000)
    delivery = Delivery(
        TOPIC, (1 << 33, 1 << 20), partition, MessageMetadata(), acks=acks, chunks=chunks
    )
    message: geminga.Message[bytes] = geminga.Message(b"", delivery, index)
    text = id_text(message)
    assert text == base64.urlsafe_b64encode(message.id.to_bytes()).decode()
    found = geminga.MessageId.from_bytes(base64.urlsafe_b64decode(text))
    assert (found, found.batch_size) == (message.id, message.id.batch_size)


class Acknowledging:
    """A consumer of which only acknowledging is asked."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.error: geminga.ClientError | None = None

    async def ack_confirmed(self, *messages: object) -> None:
        if self.error is not None:
            raise self.error
        self.acknowledged += len(messages)


async def test_no_more_is_acknowledged_ahead_than_is_processed_soon() -> None:
    clock, consumer = SimulatedClock(), Acknowledging()
    ahead = EarlyAcknowledger(200, Counters(clock), clock)
    sizes: list[int] = []
    for a_message_s in [0.0001] * 10 + [0.01] * 10 + [60.0] * 10:
        messages = cast(list[geminga.Message[bytes]], [None] * ahead.messages_max)
        assert await ahead.acknowledge(cast(geminga.Consumer[bytes], consumer), messages)
        sizes.append(ahead.messages_max)
        await asyncio.sleep(a_message_s * len(messages))
        ahead.adapt()
    assert sizes[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 200, 200]
    assert set(sizes[17:20]) <= set(range(3, 13))
    assert sizes[-1] == 1
    assert consumer.acknowledged == sum(sizes)


async def test_an_acknowledgement_without_a_confirmation_does_not_count() -> None:
    clock, consumer = SimulatedClock(), Acknowledging()
    counters = Counters(clock)
    consumer.error = geminga.ConnectionLost("cut")
    ahead = EarlyAcknowledger(200, counters, clock)
    assert not await ahead.acknowledge(cast(geminga.Consumer[bytes], consumer), [])
    assert counters.system_exceptions == 1


class Settled:
    """A consumer that notes what becomes of its message."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def ack(self, _: object) -> None:
        self.told.append("acknowledged")

    def nack(self, _: object) -> None:
        self.told.append("refused")


@pytest.mark.parametrize("failed", [0, 1, 2])
def test_a_message_of_which_one_result_was_not_stored_comes_again(failed: int) -> None:
    consumer = Settled()
    pending = PendingMessage(
        cast(geminga.Message[bytes], None),
        cast(geminga.Consumer[bytes], consumer),
        Counters(SimulatedClock()),
        3,
        True,  # noqa: FBT003 - made for each message
        None,
    )
    for number in range(3):
        assert consumer.told == []
        pending.published(geminga.ConnectionLost("cut") if number == failed else None)
    assert consumer.told == ["refused"]
