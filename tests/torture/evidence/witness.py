"""Clients of our own library in a siege: they publish, acknowledge one by one and up to a message,
wait for each confirmation, and ask for the last message, and a journal notes all that they hear.

The official client is told of no acknowledgement that it is stored; ours is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.torture.evidence.journal import Journal

from geminga import Client, ClientError, Consumer, ConsumerOptions, connect
from geminga_runtime.network import AsyncioNetwork

TOPICS = tuple(f"persistent://public/default/witness-{number}" for number in range(3))
SINGLY = ConsumerOptions(type="shared", initial_position="earliest")
ALL_BEFORE = ConsumerOptions(type="failover", initial_position="earliest")
# Of three messages two are acknowledged one by one; up to each fourth all of them are.
LEFT_EACH = 3
CUMULATIVE_EACH = 4
PAUSE_S = 0.1
LAST_EACH_S = 1.0
LOOK_UP_EACH_S = 1.0
RETRY_S = 0.5
END_S_MAX = 120.0
OpenedT = TypeVar("OpenedT")


class Witness:
    """Works on a thread of its own while the block is entered."""

    def __init__(self, service_url: str, journal: Journal) -> None:
        self._service_url = service_url
        self._journal = journal
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join(END_S_MAX)
        if error is None:
            assert not self._thread.is_alive(), "a witness did not end"
            for failure in self._failures:
                raise failure

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as failure:  # noqa: BLE001 (raised again by ``__exit__``)
            self._failures.append(failure)

    async def _live(self) -> None:
        network = self._journal.network(AsyncioNetwork(), "witness")
        async with (
            connect(self._service_url, network=network) as client,
            asyncio.TaskGroup() as tasks,
        ):
            lasting = [
                tasks.create_task(each)
                for topic in TOPICS
                for each in (
                    _settle(client, topic, "singly", SINGLY, _settles_one),
                    _settle(client, topic, "all before", ALL_BEFORE, _settles_all),
                    look_up_again_and_again(client, topic),
                )
            ]
            await asyncio.gather(*(self._publish(client, topic) for topic in TOPICS))
            for each in lasting:
                each.cancel()

    async def _publish(self, client: Client, topic: str) -> None:
        producer = await _opened(lambda: client.producer(topic, send_timeout_s=None, batching=None))
        number = 0
        async with producer:
            while not self._is_over.is_set():
                producer.send_nowait(b"%d" % number)
                number += 1
                await asyncio.sleep(PAUSE_S)
            await producer.flush()


async def _opened(opening: Callable[[], Awaitable[OpenedT]]) -> OpenedT:
    while True:
        try:
            return await opening()
        except ClientError:
            await asyncio.sleep(RETRY_S)


async def _settle(
    client: Client,
    topic: str,
    subscription: str,
    options: ConsumerOptions,
    settles: Callable[[Consumer[bytes], int, Any], Awaitable[None] | None],
) -> None:
    """Take what comes, and acknowledge some of it. Never ends."""
    consumer = await _opened(lambda: client.consumer(topic, subscription, **options))
    async with consumer, asyncio.TaskGroup() as tasks:
        tasks.create_task(_ask_for_the_last(consumer))
        count = 0
        while True:
            message = await consumer.receive()
            count += 1
            settling = settles(consumer, count, message)
            if settling is not None:
                try:
                    await settling
                except ClientError:
                    continue  # in doubt: it may come again


def _settles_one(consumer: Consumer[bytes], count: int, message: Any) -> Awaitable[None] | None:
    return consumer.ack_confirmed(message) if count % LEFT_EACH else None


def _settles_all(consumer: Consumer[bytes], count: int, message: Any) -> Awaitable[None] | None:
    if count % CUMULATIVE_EACH:
        return None
    return consumer.ack_confirmed(message, cumulative=True)


async def look_up_again_and_again(client: Client, topic: str) -> None:
    """Have brokers say who serves a topic, not only when that has changed. Never ends."""
    while True:
        await asyncio.sleep(LOOK_UP_EACH_S)
        try:
            async with client.producer(topic):
                pass
        except ClientError:
            continue


async def _ask_for_the_last(consumer: Consumer[bytes]) -> None:
    while True:
        await asyncio.sleep(LAST_EACH_S)
        try:
            await consumer.last_message_id()
        except ClientError:
            continue
