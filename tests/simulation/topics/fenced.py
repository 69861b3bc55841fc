"""Producers that fence each other off, and what must hold of what they leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from random import Random

from geminga import AccessMode, Client, ClientError, MessageId
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.checkers import (
    check_nothing_invented,
    check_nothing_lost,
    check_order,
)

TOPIC = "persistent://public/default/fenced"
MODES = (AccessMode.EXCLUSIVE_WITH_FENCING, AccessMode.WAIT_FOR_EXCLUSIVE)
REIGN_MESSAGES_MAX = 12
PAUSE_S_MAX = 0.2
RETRY_S = 0.5
# A producer that is to wait its turn waits no longer.
WAIT_S_MAX = 3.0


@dataclass(slots=True)
class Reigns:
    """What was sent, and what confirmed, in which reign: one producer's time with the topic."""

    sent: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    stored: set[bytes] = field(default_factory=set[bytes])

    def begin(self) -> int:
        """A new reign's number."""
        number = len(self.sent)
        self.sent[number] = []
        return number


async def reign(client: Client, reigns: Reigns, chance: Random) -> None:
    """Take the topic, send for a while, and lose it or leave; then again. Never ends."""
    while True:
        number = reigns.begin()
        mode = chance.choice(MODES)
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                producer = await client.producer(TOPIC, access_mode=mode, send_timeout_s=None)
        except (ClientError, TimeoutError):
            await asyncio.sleep(RETRY_S)
            continue
        try:
            async with producer:
                for count in range(chance.randrange(1, REIGN_MESSAGES_MAX)):
                    payload = b"%d/%d" % (number, count)
                    await producer.ready()
                    reigns.sent[number].append(payload)
                    producer.send_nowait(payload, partial(_on_sent, reigns, payload))
                    await asyncio.sleep(chance.random() * PAUSE_S_MAX)
        except ClientError:
            pass  # fenced off
        await asyncio.sleep(chance.random() * RETRY_S)


def _on_sent(
    reigns: Reigns, payload: bytes, message_id: MessageId | None, _: ClientError | None
) -> None:
    if message_id is not None:
        reigns.stored.add(payload)


def check_reigns(reigns: Reigns, read: Sequence[bytes]) -> None:
    """What was confirmed is there, in order, and the reigns follow each other: once another
    producer has the topic, the one before it stores nothing more."""
    sent = [payload for each in reigns.sent.values() for payload in each]
    check_nothing_lost(reigns.stored, read)
    check_nothing_invented(sent, read)
    for payloads in reigns.sent.values():
        mine = set(payloads)
        check_order(payloads, [each for each in read if each in mine])
    numbers = [number for number, _ in groupby(_reign_of(payload) for payload in read)]
    again = sorted({number for number in numbers if numbers.count(number) > 1})
    if again:
        raise InvariantViolated(f"reign {again[0]} went on after it was over: {numbers}")


def _reign_of(payload: bytes) -> int:
    return int(payload.partition(b"/")[0])
