"""Producers of a topic that deduplicates: applications that begin where they had been.

An application numbers what it sends by its sequence ids. It dies in the middle of its work, and the
next of its name goes on behind the last message that the broker says it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from geminga import Client, ClientError, MessageId, Producer
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_simulation.errors import InvariantViolated

NAMESPACE = NamespaceName("public", "once")
POLICIES = Policies(deduplication_enabled=True)
TOPIC = f"persistent://{NAMESPACE}/numbers"
MESSAGES = 40
LIFE_MESSAGES_MAX = 15
BURST_MAX = 4
PAUSE_S_MAX = 0.3
RETRY_S = 0.5


@dataclass(slots=True)
class Numbered:
    """How far applications have come, and in how many lives."""

    stored: set[bytes] = field(default_factory=set[bytes])
    done: set[str] = field(default_factory=set[str])
    lives: int = 0


def content(name: str) -> list[bytes]:
    """All that application ``name`` sends, in its order."""
    return [f"{name}/{number}".encode() for number in range(MESSAGES)]


async def send_numbers(
    clients: Sequence[Client], name: str, numbered: Numbered, chance: Random
) -> None:
    """Live as often as it takes until the topic has everything, each time by some client."""
    # A life's end is sudden: what has no receipt by then is left behind.
    while name not in numbered.done:
        numbered.lives += 1
        with suppress(ClientError):
            async with chance.choice(clients).producer(
                TOPIC, name=name, send_timeout_s=None, close_timeout_s=0.0
            ) as producer:
                await _live(producer, name, numbered, chance)
        await asyncio.sleep(chance.random() * RETRY_S)


async def _live(producer: Producer[bytes], name: str, numbered: Numbered, chance: Random) -> None:
    rest = content(name)[producer.last_sequence_id + 1 :]
    for count, payload in enumerate(rest[: chance.randrange(1, LIFE_MESSAGES_MAX)]):
        await producer.ready()
        producer.send_nowait(payload, partial(_on_sent, numbered, payload))
        if count % BURST_MAX == 0:
            await asyncio.sleep(chance.random() * PAUSE_S_MAX)
    if not rest:
        numbered.done.add(name)


def _on_sent(
    numbered: Numbered, payload: bytes, message_id: MessageId | None, _: ClientError | None
) -> None:
    if message_id is not None:
        numbered.stored.add(payload)


def check_once(names: Sequence[str], read: Sequence[bytes]) -> None:
    """Everything of all applications is there, once and in order."""
    for name in names:
        mine = [payload for payload in read if payload.startswith(f"{name}/".encode())]
        if mine != content(name):
            raise InvariantViolated(f"{name} sent {MESSAGES} numbers, stored are {mine}")
