"""Producer access modes: all orders in which producers of all modes can come, and how the first
leaves."""

from __future__ import annotations

from itertools import pairwise

from tests.differential.patience import pause
from tests.differential.scenario import Wanted, register_scenario, scenario
from tests.differential.world import World

from geminga_protocol.pulsar import api_pb2 as api

# A producer that waited is let in when a new topic epoch is stored.
PROMOTION_S = 0.25

MODES = {
    "shared": api.Shared,
    "exclusive": api.Exclusive,
    "waiting": api.WaitForExclusive,
    "fencing": api.ExclusiveWithFencing,
}


async def three_producers(world: World, modes: tuple[str, str, str]) -> None:
    topic = "-".join(modes)
    clients = [await world.client(f"{name}-{modes[index]}") for index, name in enumerate("abc")]
    for client, mode in zip(clients, modes, strict=True):
        await client.producer(1, topic, producer_name=client.name, producer_access_mode=MODES[mode])
    await clients[0].close_producer()
    await pause(PROMOTION_S)
    for client in clients:
        client.leftovers(but_not=api.BaseCommand.CLOSE_PRODUCER)  # see a-fenced-producer-sends
        await client.close()


WAITING = Wanted(
    "Topic has an existing exclusive producer: null",
    "Topic has producers that wait to be the exclusive one",
    "there is none yet: upstream names the one it has not got",
)


def family(first: str, second: str) -> None:
    async def talk(world: World) -> None:
        for third in MODES:
            await three_producers(world, (first, second, third))

    talk.__module__ = __name__
    wanted = [WAITING] if (first, second) == ("shared", "waiting") else []
    register_scenario(f"access-{first}-then-{second}", talk, wanted=wanted)


for _first in MODES:
    for _second in MODES:
        family(_first, _second)


@scenario()
async def a_topic_epoch_grows_with_each_exclusive_producer(world: World) -> None:
    client = await world.client()
    for mode in ("exclusive", "exclusive", "waiting", "fencing", "shared", "exclusive"):
        await client.producer(1, producer_access_mode=MODES[mode])
        await client.close_producer()


@scenario()
async def an_exclusive_producer_comes_again_with_its_epoch(world: World) -> None:
    a, b = await world.client("a"), await world.client("b")
    await a.producer(1, producer_name="mine", producer_access_mode=api.Exclusive)
    await a.close()
    await world.settled_stats(lambda stats: not stats["publishers"])
    await b.producer(1, producer_name="mine", producer_access_mode=api.Exclusive, topic_epoch=0)
    await b.close_producer()
    await b.producer(2, producer_name="other", producer_access_mode=api.Exclusive)
    await b.close_producer(2)
    await b.producer(1, producer_name="mine", producer_access_mode=api.Exclusive, topic_epoch=0)
    await b.producer(1, producer_name="mine", producer_access_mode=api.Exclusive, topic_epoch=9)


@scenario(
    wanted=[
        Wanted(
            ["a", "< end of connection"],
            ["a", "< CLOSE_PRODUCER", {"producer_id": 1, "request_id": "none"}],
            "a producer that was fenced hears so at once, and its connection's others live on",
        )
    ]
)
async def a_fenced_producer_sends(world: World) -> None:
    a, b = await world.client("a"), await world.client("b")
    await a.producer(1, producer_name="old")
    await b.producer(1, producer_name="new", producer_access_mode=api.ExclusiveWithFencing)
    a.send(1, 0, "late")
    await a.silence()
    b.send(1, 0, "mine")
    await b.receipts()
    await world.stats(lambda stats: [each["producerName"] for each in stats["publishers"]])


@scenario()
async def who_waits_is_let_in_in_order(world: World) -> None:
    clients = [await world.client(name) for name in "abcd"]
    for client in clients:
        await client.producer(
            1, producer_name=client.name, producer_access_mode=api.WaitForExclusive
        )
    for gone, heir in pairwise(clients):
        await gone.close_producer()
        await heir.take(1)
    clients[-1].send(1, 0, "mine")
    await clients[-1].receipts()


@scenario()
async def who_waits_may_not_send(world: World) -> None:
    a, b = await world.client("a"), await world.client("b")
    await a.producer(1, producer_name="a", producer_access_mode=api.Exclusive)
    await b.producer(1, producer_name="b", producer_access_mode=api.WaitForExclusive)
    b.send(1, 0, "early")
    await b.silence()
    await b.lookup()


@scenario(
    wanted=[Wanted(2, 1, "who gave up waiting was never the exclusive one, and is not counted")]
)
async def who_waits_gives_up(world: World) -> None:
    a, b, c = [await world.client(name) for name in "abc"]
    await a.producer(1, producer_name="a", producer_access_mode=api.Exclusive)
    await b.producer(1, producer_name="b", producer_access_mode=api.WaitForExclusive)
    await c.producer(1, producer_name="c", producer_access_mode=api.WaitForExclusive)
    await b.close_producer()
    await a.close_producer()
    await c.take(1)
    await b.silence()
