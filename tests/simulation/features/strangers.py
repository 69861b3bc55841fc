"""Clients that know no better, and an operator who does not ask them: two connections on which any
command may come at any time, and subscriptions that are moved, made and deleted meanwhile.

- Each request is answered, and none with an error inside of the broker.
- What is confirmed is stored, once, where the receipt says, and nothing else is.
- When they have gone, a client that knows better finds a topic that works: it may be its exclusive
  producer, and have each of its subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from tests.simulation.features.stage import (
    CALM_S_MAX,
    LIVE_S,
    Errand,
    Weather,
    opened,
    taking,
)
from tests.simulation.features.stranger import SUBSCRIPTIONS, Stranger, Told, keep_visiting

from geminga import EARLIEST, Message, ProducerFenced
from geminga_broker.broker import Broker
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_runtime.errors import GemingaError
from geminga_simulation.errors import HostCrashed, InvariantViolated

NAMES = ("first", "second")
CONSUMERS_MAX = 2
PRODUCERS_MAX = 3
STRAYING_SHARE = 0.2
OPERATED_EACH_S = 0.3
UNLOAD_SHARE = 0.25
LAST = b"last"


class Strangers(Errand):
    """Two strangers and an operator at one topic."""

    name = "strangers"
    policies = Policies(
        consumers_per_subscription_max=CONSUMERS_MAX, producers_per_topic_max=PRODUCERS_MAX
    )

    async def open(self) -> None:
        """Keep all that is published."""
        self.told = Told()
        await self.keep(self.topic())

    async def live(self) -> None:
        """Let them do what they like."""
        stage = self.stage
        host = stage.cluster.world.host("client")
        end_s = stage.now_s() + LIVE_S
        async with asyncio.TaskGroup() as tasks:
            operating = tasks.create_task(self._operate())
            visits = [
                tasks.create_task(
                    keep_visiting(self._stranger(name), host.network, self._broker, end_s)
                )
                for name in NAMES
            ]
            await asyncio.wait(visits)
            operating.cancel()
        self.deeds += self.told.answers + self.told.refusals

    def _stranger(self, name: str) -> Stranger:
        is_calm = self.stage.weather is Weather.CALM
        return Stranger(
            name, self.topic(), self.told, self.chance, self.stage.clock, is_calm=is_calm
        )

    def _broker(self) -> str:
        """Mostly the one that has the topic."""
        cluster, name = self.stage.cluster, TopicName.parse(self.topic())
        for host in cluster.brokers:
            broker = cluster.broker(host)
            if broker is not None and broker.ownership.owns(name):
                if self.chance.random() >= STRAYING_SHARE:
                    return host.name
                break
        return self.chance.choice(cluster.brokers).name

    async def _operate(self) -> None:
        """Have done to some subscription what REST would have, often two things at once. Never
        ends."""
        while True:
            await self.pause(2 * OPERATED_EACH_S)
            name = self.chance.choice(SUBSCRIPTIONS)
            await asyncio.gather(*[self._ask_owner(name) for _ in range(self.chance.randint(1, 2))])

    async def _ask_owner(self, name: str) -> None:
        what = self.chance.choice((self._make, *[self._delete] * 2, *[self._reset] * 2))
        with suppress(GemingaError, HostCrashed):
            if self.chance.random() < UNLOAD_SHARE:
                await self.stage.ask_owner(self.topic(), self._unload)
            else:
                await self.stage.ask_owner(self.topic(), partial(self._to_one, what, name))

    async def _unload(self, broker: Broker) -> bool:
        await broker.administration.unload_topic(TopicName.parse(self.topic()))
        return True

    async def _to_one(
        self,
        what: Callable[[PersistentSubscriptions, str], Awaitable[None]],
        name: str,
        broker: Broker,
    ) -> bool:
        """Requests about a whole namespace look a topic up, and come to it when they are done with
        those before it."""
        topic = await broker.administration.persistent_topic(TopicName.parse(self.topic()))
        await self.pause(self.chance.choice((0.0, 0.01, 0.03, 0.1)))
        await what(topic.part(PersistentSubscriptions), name)
        return True

    async def _make(self, subscriptions: PersistentSubscriptions, name: str) -> None:
        await subscriptions.create(name, from_earliest=self.chance.random() < 0.5)

    async def _delete(self, subscriptions: PersistentSubscriptions, name: str) -> None:
        is_forced = self.chance.random() < 0.5
        await subscriptions.delete_subscription(subscriptions.named(name), force=is_forced)

    async def _reset(self, subscriptions: PersistentSubscriptions, name: str) -> None:
        subscription = subscriptions.named(name)
        places = sorted(self.told.stored)
        if places and self.chance.random() < 0.5:
            await subscription.seek(Position(*self.chance.choice(places)))
        else:
            await subscription.seek_time(self.stage.clock.wall_ms() - self.chance.randrange(3000))

    async def finish(self) -> None:
        """One who knows better comes."""
        await self._check_log()
        name = TopicName.parse(self.topic())
        names = await self.stage.have_owner(
            self.topic(), lambda broker: broker.administration.subscription_names(name)
        )
        if wrong := set(names) - {"keeper", *SUBSCRIPTIONS}:
            raise InvariantViolated(f"there are the subscriptions {sorted(wrong)}")
        await self._check_subscriptions()

    async def _check_log(self) -> None:
        client, other = self.stage.clients
        exclusive = await opened(partial(client.producer, self.topic(), access_mode="exclusive"))
        await exclusive.send(LAST)
        with suppress(ProducerFenced):
            await opened(
                partial(other.producer, self.topic(), access_mode="exclusive"), ProducerFenced
            )
            raise InvariantViolated("a topic has two exclusive producers")
        read: dict[tuple[int, int], bytes] = {}

        def came(message: Message[bytes]) -> None:
            read[message.id.position] = message.data

        reader = await opened(partial(client.reader, self.topic(), EARLIEST))
        async with taking(reader.read, came):
            await self.until(lambda: LAST in read.values(), f"the last message after {read}")
        await reader.close()
        await exclusive.close()
        wrong = {at: each for at, each in self.told.stored.items() if read.get(at) != each}
        if wrong:
            raise InvariantViolated(f"confirmed, and not there: {wrong}")
        if unknown := set(read.values()) - self.told.sent - {LAST}:
            raise InvariantViolated(f"{sorted(unknown)} was never sent")

    async def _check_subscriptions(self) -> None:
        client = self.stage.clients[1]
        for name in SUBSCRIPTIONS:
            consumer = await opened(partial(client.consumer, self.topic(), name))
            await self.in_the_end(partial(consumer.seek, EARLIEST))
            async with asyncio.timeout(CALM_S_MAX):
                message = await consumer.receive()
                await self.in_the_end(partial(consumer.ack_confirmed, message))
            await self.in_the_end(consumer.unsubscribe)
