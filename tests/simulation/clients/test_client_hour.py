"""Proves that an hour of a client's life leaves nothing behind: tasks, streams, timers, futures and
the client's own objects are as many at the end as after the beginning.

A consumer and a producer last all the while. Beside them others are opened, used and closed round
by round: receiving is polled with short time-outs and cancelled, sending and opening are cancelled,
connections are cut at any command, go dark and are reset, topics are unloaded. Also that a peer
which is silently gone is noticed in time, and that a slow consumer holds up no other.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random
from types import FunctionType
from typing import Any
from weakref import ProxyTypes

import pytest
from tests.simulation.clients.cut_links import Cut, CuttingNetwork, Moment, Way
from tests.simulation.clients.errands import again
from tests.simulation.topics import once

import geminga
from geminga import EARLIEST, Client, Consumer, Producer, SubscriptionType, connect
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import Cluster, Shape
from geminga_simulation.event_loop.incarnation import CURRENT, SimulatedFuture, SimulatedHandle
from geminga_simulation.host import Host
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

TOPIC = f"persistent://{once.NAMESPACE}/lasting"
HOUR_S = 3600.0
# How long a round is, of which the most is idle; `make test-full` has more rounds.
ROUND_S = 180.0
SHORT_ROUND_S = 40.0
# After so many rounds everything was used that there is.
FIRST_ROUNDS = 4
TOPICS = 3
MESSAGES = 6
# After so long keep-alive has noticed every dark stream, and the kernel has given it up.
QUIET_S = 150.0
TIME_LIMIT_S = 2 * HOUR_S
# How long a client waits at most before it comes back, and how long the broker then takes to see
# that the one before is gone; until then the subscription is taken.
RECONNECT_S = 0.2
BROKER_NOTICES_S = 15.0
# The sum of the sizes of dictionaries, lists and the like, and by how much it may differ: a
# dictionary that was larger once does not shrink.
CONTAINERS = "bytes of containers"
CONTAINER_BYTES_MAX = 1024
# What may be allocated more after half an hour. The interpreter recycles tables of dictionaries,
# up to 80 of 120 bytes, which keep the place where they were first used.
DRIFT_BYTES_MAX = 16 * 1024


class Bench:
    """A cluster of one broker, and a client on a host of its own."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.cluster = Cluster(world, Shape())
        self.host: Host = world.host("client")
        self.network = CuttingNetwork(self.host.network)
        self._options = options

    async def run(self, work: Callable[[Client], Awaitable[None]]) -> None:
        """Have the client's process do some work."""
        await self.cluster.open()
        await self.cluster.create_namespace(once.NAMESPACE, once.POLICIES)
        self.host.start(lambda _: asyncio.Event().wait())

        async def enter() -> None:
            host = self.host
            async with connect(
                self.cluster.service_url,
                network=self.network,
                clock=host.clock,
                random=host.random,
                **self._options,
            ) as client:
                await work(client)

        await self.host.run(enter())

    async def unload(self, topic: str) -> None:
        """Have the broker let go of a topic."""
        name = TopicName.parse(topic)
        with suppress(GemingaError):
            await self.cluster.do(
                self.cluster.brokers[0], lambda each: each.administration.unload_topic(name)
            )

    def what_there_is(self) -> Counter[str]:
        """What the client's process holds at this moment, by kind. To be called in it."""
        incarnation = CURRENT.get()
        incarnation.tasks = incarnation.pending_tasks()  # the simulation keeps some that are done
        gc.collect()
        loop, name = self.world.loop, self.host.name
        there: Counter[str] = Counter()
        there["tasks"] = sum(each.startswith(f"{name}: ") for each in loop.pending_tasks())
        there["streams"] = sum(not each.is_gone for each in self.world.network.streams(name))
        for each in objects():
            if isinstance(each, SimulatedHandle):
                is_due = not each.is_cancelled and each.when_s >= loop.time()
                there["timers"] += is_due and each.incarnation.name == name
            elif isinstance(each, SimulatedFuture):
                there["futures"] += each.incarnation.name == name
            elif is_the_clients(each):
                there[type(each).__qualname__] += 1
                there[CONTAINERS] += bytes_of_containers(each)
        return +there


def objects() -> Iterator[object]:
    """All objects but weak proxies: asking one for its class is an error once its object is
    gone."""
    return (each for each in gc.get_objects() if type(each) not in ProxyTypes)


def is_the_clients(each: object) -> bool:
    """Is it an instance of one of the client library's classes?"""
    module: object = type(each).__module__  # of classes that are compiled, not always text
    return str(module).partition(".")[0] == "geminga" and not isinstance(each, FunctionType)


def bytes_of_containers(each: object) -> int:
    """How large the containers of an object are, without what is in them."""
    attributes: dict[str, object] = getattr(each, "__dict__", {})
    held: list[object] = [*gc.get_referents(each), *attributes.values()]
    containers = (dict, list, set, deque)
    by_id = {id(one): one for one in held if isinstance(one, containers) and one is not attributes}
    return sum(sys.getsizeof(one) for one in by_id.values())


def simulated(work: Callable[[Bench, Client], Awaitable[None]], seed: int, **options: Any) -> None:
    """Do ``work`` with a client of these options."""

    async def main() -> None:
        async with World() as world:
            bench = Bench(world, **options)
            await bench.run(partial(work, bench))

    simulate(seed, main, time_limit_s=TIME_LIMIT_S)


class Life:
    """What a client does in an hour."""

    def __init__(
        self, bench: Bench, client: Client, lasting: Consumer[bytes], round_s: float
    ) -> None:
        self._bench = bench
        self._client = client
        self._lasting = lasting
        self._round_s = round_s
        self._chance: Random = bench.world.loop.stream("life")
        self._rounds = 0
        self.opened = self.cancelled = self.cut = 0

    async def go_on(self, rounds: int) -> None:
        """Live so many rounds, then let things calm down."""
        loop = asyncio.get_running_loop()
        for _ in range(rounds):
            end_s = loop.time() + self._round_s
            self._rounds += 1
            if self._rounds % 2:  # what grows on a connection that lasts is seen in the others
                self._plan_a_fault()
            topic = f"persistent://{once.NAMESPACE}/round-{self._rounds % TOPICS}"
            await self._use(topic)
            await asyncio.sleep(max(0.0, end_s - loop.time()))
        await asyncio.sleep(QUIET_S)

    def _plan_a_fault(self) -> None:
        """Plan the next faults: one of the commands that were seen is cut off, and a stream may
        break."""
        network, chance, world = self._bench.network, self._chance, self._bench.world
        self.cut += network.cut is None
        if network.seen:
            way, kind = chance.choice(sorted(network.seen, key=str))
            network.cut = Cut(way, kind, chance.choice(list(Moment)), chance.randint(1, 3))
        fault = chance.choice((world.network.reset, world.network.darken, None, None))
        streams = [each for each in world.network.streams("client") if not each.is_gone]
        if fault is not None and streams:
            world.later(chance.random() * self._round_s, partial(fault, chance.choice(streams)))

    async def _use(self, topic: str) -> None:
        client = self._client
        kind = self._chance.choice(list(SubscriptionType))
        consumer = await again(
            lambda: client.consumer(topic, kind.label, type=kind, initial_position="earliest")
        )
        async with await again(lambda: client.producer(topic, send_timeout_s=None)) as producer:
            self.opened += 2
            await self._exchange(producer, consumer)
            await self._give_up(producer, consumer)
            if self._rounds % 4 == 0:
                await self._bench.unload(topic)
            if self._rounds % 3 == 0:
                await again(lambda: consumer.seek(geminga.LATEST))
        await consumer.close()
        async with await again(lambda: client.reader(topic, EARLIEST)) as reader:
            if await again(reader.has_message_available):
                await reader.read()
        async with await again(lambda: client.table_view(topic)):
            self.opened += 2

    async def _exchange(self, producer: Producer[bytes], consumer: Consumer[bytes]) -> None:
        for number in range(MESSAGES):
            await producer.ready()
            producer.send_nowait(b"%d" % number, key=str(number))
        await producer.flush()
        for number in range(MESSAGES):
            message = await consumer.receive()
            if number % 3 == 1:
                consumer.nack(message)
            else:
                consumer.ack(message)

    async def _give_up(self, producer: Producer[bytes], consumer: Consumer[bytes]) -> None:
        """Poll with short time-outs, and cancel whatever can be."""
        for _ in range(10):
            for each in (consumer, self._lasting):
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.005):
                        await each.receive()
                await each.receive_many(10, 0.005)
        works: list[Awaitable[Any]] = [
            *(each.receive() for each in (consumer, self._lasting)),
            *(each.receive_many(100, 60.0) for each in (consumer, self._lasting)),
            consumer.last_message_id(),
            producer.send(b"given up"),
            self._client.consumer(TOPIC, f"given up {self._rounds}"),
            self._client.producer(TOPIC),
            self._client.table_view(TOPIC),
        ]
        for work in works:
            task = asyncio.ensure_future(work)
            await asyncio.sleep(self._chance.choice((0.0, 0.001, 0.002)))
            self.cancelled += task.cancel()
            with suppress(asyncio.CancelledError, geminga.ClientError):
                opened = await task
                if hasattr(opened, "close"):
                    await opened.close()


def check_level(bench: Bench, level: Counter[str]) -> None:
    """There is of nothing more than there was before."""
    now = bench.what_there_is()
    assert now[CONTAINERS] - level[CONTAINERS] < CONTAINER_BYTES_MAX
    more = {kind for kind in now.keys() - {CONTAINERS} if now[kind] > level[kind]}
    assert not more, [(kind, level[kind], now[kind]) for kind in sorted(more)]


def check_drift(snapshot: tracemalloc.Snapshot) -> None:
    """Next to nothing is still there of what the client allocated while it was traced."""
    theirs = tracemalloc.Filter(inclusive=True, filename_pattern="*/client/geminga/*")
    grown = snapshot.filter_traces([theirs]).statistics("lineno")
    assert sum(each.size for each in grown) < DRIFT_BYTES_MAX, grown[:10]


async def live_an_hour(bench: Bench, client: Client, *, round_s: float, traces: bool) -> None:
    """Compare what there is after some minutes with what there is half an hour later, and then."""
    async with (
        await client.consumer(TOPIC, "lasting") as consumer,
        await client.producer(TOPIC, send_timeout_s=None) as producer,
    ):
        life = Life(bench, client, consumer, round_s)
        rounds = round(HOUR_S / round_s)
        await life.go_on(FIRST_ROUNDS)
        level = bench.what_there_is()
        await life.go_on(rounds // 2 - FIRST_ROUNDS)
        check_level(bench, level)
        if traces:
            tracemalloc.start()
        await life.go_on(rounds - rounds // 2)
        check_level(bench, level)
        if traces:
            check_drift(tracemalloc.take_snapshot())
        await producer.send(b"still there")
        while (message := await consumer.receive()).data != b"still there":
            consumer.ack(message)
    assert life.opened > 3 * rounds
    assert life.cancelled > 3 * rounds
    assert life.cut > rounds // 4


def test_after_an_hour_there_is_no_more_than_after_some_minutes() -> None:
    simulated(partial(live_an_hour, round_s=ROUND_S, traces=False), 1)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 5))
def test_in_a_busy_hour_no_memory_drifts(seed: int) -> None:
    try:
        simulated(partial(live_an_hour, round_s=SHORT_ROUND_S, traces=True), seed)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("ping_interval_s", [5.0, 30.0])
def test_a_peer_that_is_silently_gone_is_noticed_between_two_pings(ping_interval_s: float) -> None:
    """Half-open: both sides believe in the stream, and nothing gets through any more."""

    async def live(bench: Bench, client: Client) -> None:
        loop, network = bench.world.loop, bench.world.network
        async with (
            await client.consumer(TOPIC, "s") as consumer,
            await client.producer(TOPIC, send_timeout_s=None) as producer,
        ):
            for _ in range(3):
                await asyncio.sleep(ping_interval_s * 0.7)
                for stream in network.streams("client"):
                    network.darken(stream)
                gone_s = loop.time()
                connections = bench.network.seen[Way.SENT, BaseCommand.CONNECT]
                sending = asyncio.create_task(producer.send(b"on its way"))
                while bench.network.seen[Way.SENT, BaseCommand.CONNECT] == connections:  # noqa: ASYNC110 -- virtual time
                    await asyncio.sleep(0.1)
                noticed_s = loop.time() - gone_s
                assert ping_interval_s <= noticed_s <= 2 * ping_interval_s + RECONNECT_S
                async with asyncio.timeout(BROKER_NOTICES_S):
                    await sending
                    consumer.ack(await consumer.receive())

    simulated(live, 1, ping_interval_s=ping_interval_s)


def test_a_slow_consumer_gets_everything_and_holds_up_no_other() -> None:
    """Both are of one client, on one connection; the broker is killed in between."""
    payloads = [b"%d" % number for number in range(300)]
    look_each = 50

    async def live(bench: Bench, client: Client) -> None:
        loop = bench.world.loop
        slow = await client.consumer(TOPIC, "slow", receiver_queue_size=10)
        fast = await client.consumer(TOPIC, "fast", receiver_queue_size=10)
        ended_s: dict[str, float] = {}
        waiting_max = 0

        async def consume(consumer: Consumer[bytes], pause_s: float) -> None:
            nonlocal waiting_max
            came: list[bytes] = []
            while len(came) < len(payloads):
                message = await consumer.receive()
                consumer.ack(message)
                if message.data not in came:
                    came.append(message.data)
                await asyncio.sleep(pause_s)
                if len(came) % look_each == 0:
                    held = sum(isinstance(each, geminga.Message) for each in objects())
                    waiting_max = max(waiting_max, held)
            assert came == payloads
            ended_s[consumer.subscription] = loop.time()

        async with (
            await client.producer(TOPIC, send_timeout_s=None, batching=None) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(consume(slow, 0.2))
            tasks.create_task(consume(fast, 0.0))
            for payload in payloads:
                producer.send_nowait(payload)
                await producer.ready()
            await producer.flush()
            await asyncio.sleep(5.0)
            bench.cluster.restart_brokers()
        assert ended_s["fast"] < ended_s["slow"] - 50
        assert waiting_max <= 22, "two queues, and a message that each consumer has"
        await slow.close()
        await fast.close()

    simulated(live, 1)
