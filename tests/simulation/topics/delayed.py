"""Messages that are to come later: none early, none left out, by whichever broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

from geminga import (
    Client,
    ClientError,
    Consumer,
    ConsumerOptions,
)
from geminga_runtime.clock import Clock
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.checkers import NoLostAcknowledgement

TOPIC = "persistent://public/default/delayed"
SUBSCRIPTION = "patient"
MESSAGES = 30
# So many come at once; the others after up to this time, in no order.
UNDELAYED_SHARE = 0.2
DELAY_S_MAX = 15.0
RETRY_S = 0.5
OPTIONS = ConsumerOptions(type="shared", initial_position="earliest", receiver_queue_size=10)


@dataclass(slots=True)
class Appointments:
    """When messages are due, by Unix time in milliseconds, and what came of them."""

    due_ms: dict[bytes, int] = field(default_factory=dict[bytes, int])
    delivered: set[bytes] = field(default_factory=set[bytes])
    # By message id: what was sent again, after a lost receipt, is in the topic twice.
    watch: NoLostAcknowledgement = field(default_factory=NoLostAcknowledgement)
    early: list[str] = field(default_factory=list[str])

    @property
    def is_done(self) -> bool:
        """Whether every message came."""
        return self.delivered == set(self.due_ms)


async def send_ahead(
    client: Client, appointments: Appointments, clock: Clock, chance: Random
) -> None:
    """Publish messages that are due at some time, most of them later."""
    async with await client.producer(TOPIC) as producer:
        for number in range(MESSAGES):
            payload = b"%d" % number
            delay_s = 0.0 if chance.random() < UNDELAYED_SHARE else chance.random() * DELAY_S_MAX
            due_ms = clock.wall_ms() + int(delay_s * 1000)
            appointments.due_ms[payload] = due_ms
            await producer.send(payload, deliver_at=due_ms if delay_s else None)


async def wait_for_them(client: Client, appointments: Appointments, clock: Clock) -> None:
    """Take what comes. Never ends."""
    while True:
        try:
            async with await client.consumer(TOPIC, SUBSCRIPTION, **OPTIONS) as consumer:
                while True:
                    await _take_one(consumer, appointments, clock)
        except ClientError:
            await asyncio.sleep(RETRY_S)


async def _take_one(consumer: Consumer[bytes], appointments: Appointments, clock: Clock) -> None:
    message = await consumer.receive()
    payload = message.data
    appointments.watch.delivered(message.id)
    early_ms = appointments.due_ms[payload] - clock.wall_ms()
    if early_ms > 0:
        appointments.early.append(f"{payload!r} by {early_ms} ms")
    appointments.delivered.add(payload)
    await consumer.ack_confirmed(message)
    appointments.watch.confirmed([message.id])


def check_appointments(appointments: Appointments, *, clocks_jump: bool) -> None:
    """Every message came, and, where brokers and clients have one time, none was early."""
    missing = sorted(appointments.due_ms.keys() - appointments.delivered)
    if missing:
        raise InvariantViolated(f"never delivered: {missing}")
    if appointments.early and not clocks_jump:
        raise InvariantViolated(f"too early: {appointments.early}")
