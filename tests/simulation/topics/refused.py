"""Messages that are refused again and again, and how often their redeliveries say they were."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from geminga import (
    Client,
    ClientError,
    Consumer,
    ConsumerOptions,
    Message,
)
from geminga_simulation.errors import InvariantViolated

TOPIC = "persistent://public/default/refused"
SUBSCRIPTION = "strict"
# Some are still being refused when brokers are killed, for much longer than counts are kept in
# memory alone.
NACK_DELAY_S = 0.4
REFUSALS_MAX = 20
RETRY_S = 0.5
OPTIONS = ConsumerOptions(
    type="shared",
    initial_position="earliest",
    nack_delay_s=NACK_DELAY_S,
    receiver_queue_size=10,
)


@dataclass(slots=True)
class Refusals:
    """How often each message was refused, and whether its deliveries knew it.

    ``wanted`` says after how many refusals a message is accepted.
    """

    wanted: dict[bytes, int] = field(default_factory=dict[bytes, int])
    refused: Counter[bytes] = field(default_factory=Counter[bytes])
    accepted: set[bytes] = field(default_factory=set[bytes])
    # Of these the client was told that they are.
    confirmed: set[bytes] = field(default_factory=set[bytes])
    # The counts that came, in order, for each message.
    counts: dict[bytes, list[int]] = field(default_factory=dict[bytes, list[int]])

    @property
    def is_done(self) -> bool:
        """Whether every message was accepted; what became of that may be in doubt."""
        return self.accepted == set(self.wanted)

    def delivered(self, message: Message[bytes]) -> None:
        """Note how often it says it was delivered before."""
        if message.data in self.confirmed:
            raise InvariantViolated(f"{message.data!r} comes again after it was acknowledged")
        self.counts.setdefault(message.data, []).append(message.redelivery_count)
        if message.redelivery_count > self.refused[message.data]:
            raise InvariantViolated(
                f"{message.data!r} was refused {self.refused[message.data]} times and says "
                f"{message.redelivery_count}"
            )


async def send_all(client: Client, refusals: Refusals, count: int, chance: Random) -> None:
    """Publish messages that will be refused so and so often."""
    async with await client.producer(TOPIC) as producer:
        for number in range(count):
            payload = b"%d" % number
            refusals.wanted[payload] = chance.randrange(REFUSALS_MAX + 1)
            await producer.send(payload)


async def refuse(client: Client, refusals: Refusals) -> None:
    """Refuse each message as often as it wants by its own count, then accept it. Never ends."""
    while True:
        try:
            async with await client.consumer(TOPIC, SUBSCRIPTION, **OPTIONS) as consumer:
                while True:
                    await _judge(consumer, refusals)
        except ClientError:
            await asyncio.sleep(RETRY_S)


async def _judge(consumer: Consumer[bytes], refusals: Refusals) -> None:
    message = await consumer.receive()
    payload = message.data
    refusals.delivered(message)
    if message.redelivery_count < refusals.wanted[payload]:
        refusals.refused[payload] += 1
        consumer.nack(message)
    else:
        refusals.accepted.add(payload)
        await consumer.ack_confirmed(message)
        refusals.confirmed.add(payload)
