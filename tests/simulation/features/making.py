"""Topics that are made, used and deleted by several at once: by clients that come and go, by
operators who do not know of each other, and by brokers which find that no client uses them.

- A deletion that succeeds has met with no topic that clients use, as long as they stay.
- What is published to a topic reaches each subscription that a client holds, unless it is deleted.
- A topic that no client uses is gone after a while, and comes back when it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import ClassVar

from tests.simulation.features.stage import (
    CALM_S_MAX,
    LIVE_S,
    RETRY_S,
    Errand,
    Weather,
    opened,
)

from geminga import Client, ClientError
from geminga_broker.admin.topics.stats import StatsQuery
from geminga_broker.broker import Broker
from geminga_broker.errors import TopicBusy, TopicExists, TopicNotFound
from geminga_broker.policies.inactivity import DELETE_MODES
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import InactiveTopics, Policies
from geminga_runtime.errors import GemingaError
from geminga_simulation.errors import HostCrashed, InvariantViolated

# How often brokers of the story look for topics that no client uses (``CONFIG``).
CHECK_S = 1.0
UNUSED_S_MAX = 1
SHARED = ("zero", "one", "two", "three", "four", "five")
HELD = "held"
OPERATED_EACH_S = 0.25
USED_EACH_S = 0.3
OPERATORS_AT_ONCE_MAX = 3

Deed = Callable[[Broker, TopicName], Awaitable[object]]


async def _make(broker: Broker, name: TopicName) -> None:
    await broker.topics.create(name, {})


async def _delete(broker: Broker, name: TopicName) -> None:
    await broker.topics.delete(name, force=False)


async def _look(broker: Broker, name: TopicName) -> None:
    await broker.administration.topic_stats(name, StatsQuery())


async def _unload(broker: Broker, name: TopicName) -> None:
    await broker.administration.unload_topic(name)


# All but the first leave a topic where it is.
DEEDS: tuple[Deed, ...] = (_unload, _make, _make, _delete, _look)


class Making(Errand):
    """Topics that all make and delete, and one that a client holds all the time."""

    name = "making"
    policies: ClassVar[Policies] = Policies(
        inactive_topics=InactiveTopics(
            delete_mode=DELETE_MODES[0],
            inactive_s_max=UNUSED_S_MAX,
            delete_while_inactive=True,
        )
    )

    async def open(self) -> None:
        """A topic with a subscription and a producer."""
        self.refusals = 0
        client = self.stage.clients[0]
        # It may come back to a topic made anew later than messages.
        opening = partial(client.consumer, self.topic(HELD), "holder", initial_position="earliest")
        self.consumer = await opened(opening)

    async def live(self) -> None:
        """Make, use and delete."""
        end_s = self.stage.now_s() + LIVE_S
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._operate_until(end_s))
            tasks.create_task(self._leave_all_unused(end_s))
            for client in self.stage.clients:
                tasks.create_task(self._use_until(client, end_s))

    async def _operate_until(self, end_s: float) -> None:
        while self.stage.now_s() < end_s:
            await self.pause(2 * OPERATED_EACH_S)
            local = self.chance.choice((*SHARED, HELD))
            operators = self.chance.randint(1, OPERATORS_AT_ONCE_MAX)
            is_staying = local == HELD and self.stage.weather is Weather.CALM
            deeds = self.chance.choices(DEEDS[is_staying:], k=operators)
            await asyncio.gather(*[self._operate(deed, local) for deed in deeds])

    async def _operate(self, deed: Deed, local: str) -> None:
        name = TopicName.parse(self.topic(local))

        async def done(broker: Broker) -> bool:
            await deed(broker, name)
            return True

        try:
            is_done = await self.stage.ask_owner(self.topic(local), done) or False
        except (TopicBusy, TopicExists, TopicNotFound):
            self.refusals += 1
            return
        except (GemingaError, HostCrashed):
            return
        self.deeds += is_done
        if is_done and deed is _delete and local == HELD and self.stage.weather is Weather.CALM:
            raise InvariantViolated(f"{name} is deleted, and its consumer was there")

    async def _leave_all_unused(self, end_s: float) -> None:
        """Make all topics again and again, and unload them just when brokers delete them."""
        while self.stage.now_s() < end_s:
            for deed in (_make, _unload):
                await asyncio.gather(*[self._operate(deed, local) for local in SHARED])
                await asyncio.sleep(UNUSED_S_MAX + self.chance.random() * CHECK_S)

    async def _use_until(self, client: Client, end_s: float) -> None:
        """Publish to some topic, or come to it and leave; now and then, let all be unused."""
        while self.stage.now_s() < end_s:
            await self.pause(self.chance.choice((USED_EACH_S, USED_EACH_S, 3 * CHECK_S)))
            topic = self.topic(self.chance.choice(SHARED))
            with suppress(ClientError):
                if self.chance.random() < 0.5:
                    async with client.producer(topic, send_timeout_s=LIVE_S) as producer:
                        await producer.send(b"hello")
                else:
                    async with client.consumer(topic, "guest") as consumer:
                        await consumer.unsubscribe()

    async def finish(self) -> None:
        """The held topic was never deleted, the others go and come."""
        if self.stage.weather is Weather.CALM and not self.refusals:
            raise InvariantViolated("no operator was told that a topic is there, or is not")
        await self._check_held()
        for local in SHARED:
            await self._check_shared(local)

    async def _check_held(self) -> None:
        """Its consumer gets what comes now: where the topic was deleted while the consumer was
        away, it makes the topic anew, or comes to one that the producer holds until then."""
        client, consumer = self.stage.clients[1], self.consumer
        async with (
            await opened(partial(client.producer, self.topic(HELD))) as producer,
            asyncio.timeout(CALM_S_MAX),
        ):
            await producer.send(b"last")
            while (await consumer.receive()).data != b"last":
                pass
        with suppress(ClientError):
            await consumer.close()

    async def _check_shared(self, local: str) -> None:
        """It works, and goes when no client uses it any more."""
        client, other = self.stage.clients
        consumer = await opened(partial(client.consumer, self.topic(local), "guest"))
        async with await opened(partial(other.producer, self.topic(local))) as producer:
            await producer.send(b"last")
        async with asyncio.timeout(CALM_S_MAX):
            await consumer.receive()
        await self.in_the_end(consumer.unsubscribe)
        end_s, name = self.stage.now_s() + CALM_S_MAX, TopicName.parse(self.topic(local))

        async def exists(broker: Broker) -> tuple[bool]:
            return (await broker.persistent_topics.exists(name),)

        while await self.stage.have_owner(self.topic(local), exists) == (True,):
            if self.stage.now_s() > end_s:
                raise InvariantViolated(f"no client uses {name}, and it is still there")
            await asyncio.sleep(RETRY_S)
