"""Proves, over many seeds, what is left where more is lost than is promised to survive: every copy
of an entry is damaged, or an operator deletes a ledger that a topic needs.

A topic is compacted, another holds back delayed messages in buckets, a third one expires what is
old, a fourth one keeps a backlog. Then brokers end, and entries are spoilt on all disks, or ledgers
are gone: of topics, of buckets, of what was compacted. Clients that need none of that must notice
nothing; none may be sent anything wrong; and there is a way out for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.simulation.features.stage import opened
from tests.simulation.seeds import first_seeds
from tests.simulation.storage.log_book import now_s
from tests.simulation.storage.spoiling import spoil
from tests.simulation.topics import damage
from tests.simulation.topics.damage import (
    CHECK_S,
    KEYED,
    KEYS,
    LAST,
    LATER,
    MESSAGES,
    OLD,
    PLAIN,
    TTL_S,
    Published,
    check_keyed,
    check_old,
    check_plain,
    look_at_keyed,
    take_later,
)

from geminga import Client, ClientError, Consumer, SubscriptionNotFound
from geminga_broker.broker import Broker
from geminga_broker.compaction.report import CompactionStatus
from geminga_broker.config import BrokerConfig
from geminga_broker.policies.effective import PolicyConfig
from geminga_broker.policies.expiry import ExpiryConfig
from geminga_ledger import LedgerConfig
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata, ledger_id_of
from geminga_protocol.records.topics.managed_ledger import managed_ledger_path
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import NodeMissing
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import IMPATIENT, PATIENT, Cluster, Shape, Sizes
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.conditions import CoordinationConditions
from geminga_simulation.errors import HostCrashed, InvariantViolated
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 10
SHAPES = (Shape(), Shape(2, 1, Sizes(2, 2, 2)))
# Of buckets and of messages so many entries are spoilt.
SPOILT_MAX = 3
TAIL = 3
LOOK_S = 0.1
GUEST = "guest"
DONE_S_MAX = 300.0
COMPACTED_S = 100.0
# While brokers begin anew, ZooKeeper's answers get lost in some seeds.
LOSSY = CoordinationConditions(loss_probability=0.07, reconnect_s_max=0.1)
LOSSY_S = 6.0
# A truncation waits for a minute: longer than that no bookie is reached.
HELD_S = 75.0
TIME_LIMIT_S = 1500.0
CONFIG = BrokerConfig(policies=PolicyConfig(expiry=ExpiryConfig(check_s=CHECK_S)))


@dataclass(slots=True)
class Stage:
    """A cluster with topics, and what became of them."""

    cluster: Cluster
    client: Client
    clock: Clock
    chance: Random
    topics: dict[TopicName, Published]
    harms: list[str]

    # What is there

    def ledgers(self, label: str, topic: TopicName) -> list[int]:
        """The ledgers whose metadata say with ``label`` that they are of the topic, oldest first;
        of those that can be harmed without harm to others."""
        found = list[int]()
        for path, value in self.cluster.world.zookeeper.tree.values().items():
            ledger_id = ledger_id_of(path)
            if ledger_id is not None:
                custom = LedgerMetadata.decode(value).custom
                is_wanted = custom.get(label) == str(topic).encode()
                if is_wanted:
                    found.append(ledger_id)
        return found

    # Harm

    async def spoil_messages(self, topic: TopicName) -> None:
        """Some consecutive entries are damaged on all disks."""
        published = self.topics[topic]
        # Not the last ones: a ledger that was not closed could not be any more.
        places = [each.position for each in published.sent.values()][:-TAIL]
        first = self.chance.randrange(len(places))
        wanted = places[first : first + self.chance.randint(1, SPOILT_MAX)]
        for ledger_id in dict.fromkeys(each[0] for each in wanted):
            ids = [each[1] for each in wanted if each[0] == ledger_id]
            spoilt = await spoil(self.cluster.storage, ledger_id, ids)
            published.damaged |= {(ledger_id, each) for each in spoilt}

    async def spoil_compacted(self) -> None:
        """So are some of what was compacted."""
        for ledger_id in self.ledgers("pulsar/compactedTopic", KEYED)[-1:]:
            await spoil(self.cluster.storage, ledger_id, range(KEYS))

    async def spoil_buckets(self) -> None:
        """The buckets are damaged: in their first entries, or only in those of their segments."""
        for ledger_id in self.ledgers("pulsar/delayedIndexTopic", LATER):
            first = self.chance.randrange(2)
            await spoil(self.cluster.storage, ledger_id, range(first, first + SPOILT_MAX))

    async def delete_compacted(self) -> None:
        """The ledger that was compacted is gone."""
        self._delete(self.ledgers("pulsar/compactedTopic", KEYED))

    async def delete_buckets(self) -> None:
        """So are those of some buckets."""
        ids = self.ledgers("pulsar/delayedIndexTopic", LATER)
        self._delete([each for each in ids if self.chance.random() < 0.7])

    def _delete(self, ledger_ids: list[int]) -> None:
        zookeeper = self.cluster.world.zookeeper
        for path in zookeeper.tree.values():
            if ledger_id_of(path) in ledger_ids:
                self.cluster.world.note(f"somebody deletes {path}")
                zookeeper.remove(path)

    async def meddle(self) -> None:
        """An operator writes the record of a topic as it is: its owner takes the topic for lost,
        and loads it again."""
        zookeeper = self.cluster.world.zookeeper
        path = managed_ledger_path(LATER.managed_ledger_name)
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(self.chance.random())
            with suppress(NodeMissing):
                zookeeper.put(path, zookeeper.tree.get(path)[0])

    # What operators do

    async def ask(self, what: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
        """Have the broker that has the keyed topic do something, until that is done."""
        end_s = now_s() + DONE_S_MAX
        while True:
            for host in self.cluster.brokers:
                try:
                    broker = self.cluster.broker(host)
                    if broker is not None:
                        await host.run(broker.ownership.owner(KEYED))
                        await self.cluster.do(host, what)
                        return
                except (GemingaError, HostCrashed) as error:
                    if now_s() > end_s:
                        raise InvariantViolated(f"never done: {error!r}") from error
            await asyncio.sleep(LOOK_S)

    async def compact(self) -> CompactionStatus:
        """How a compaction of what there is ended."""
        statuses: list[CompactionStatus] = []

        async def compact(broker: Broker) -> None:
            await broker.administration.compact_topic(KEYED)
            status = CompactionStatus.RUNNING
            while status is CompactionStatus.RUNNING:
                await asyncio.sleep(LOOK_S)
                status = (await broker.administration.compaction_report(KEYED)).status
            statuses.append(status)

        async with asyncio.timeout(COMPACTED_S):
            await self.ask(compact)
        return statuses[-1]

    async def truncate_in_vain(self) -> None:
        """No bookie is reachable while the keyed topic is truncated: the operator is told so."""
        world = self.cluster.world
        pairs = [
            (broker.name, bookie.name)
            for broker in self.cluster.brokers
            for bookie in self.cluster.storage.bookies
        ]
        for pair in pairs:
            world.partition(*pair)
        told: list[GemingaError | None] = []

        async def truncate(broker: Broker) -> None:
            try:
                await broker.administration.truncate_topic(KEYED)
            except GemingaError as error:
                told.append(error)
            else:
                told.append(None)

        asking = asyncio.create_task(self.ask(truncate))
        await asyncio.sleep(2 * HELD_S)
        for pair in pairs:
            world.heal(*pair)
        await asking
        if told == [None]:
            raise InvariantViolated("a topic was truncated without bookies")


HARMS: dict[Callable[[Stage], Awaitable[None]], bool] = {
    # Whether brokers must be gone for it: nothing may be written where entries are spoilt.
    Stage.delete_compacted: False,
    Stage.delete_buckets: False,
    Stage.spoil_compacted: True,
    Stage.spoil_buckets: True,
    **{partial(Stage.spoil_messages, topic=each): True for each in (PLAIN, LATER, OLD)},
}


async def live_through(stage: Stage) -> list[str]:
    """One story; which harm was done."""
    client, chance, topics = stage.client, stage.chance, stage.topics
    for topic in topics:  # what no client is to read is trimmed
        keeper = await opened(
            lambda topic=topic: client.consumer(  # type: ignore[misc]
                str(topic), damage.SUBSCRIPTION, **damage.OPTIONS
            )
        )
        await keeper.close()
    came = set[bytes]()
    guest = await opened(partial(client.consumer, str(LATER), GUEST, type="shared"))
    taking = asyncio.create_task(take_later(client, topics[LATER], came, stage.clock))
    numbers = [b"%d" % number for number in range(MESSAGES)]
    keyed = [b"%d/%d" % (chance.randrange(KEYS), number) for number in range(2 * MESSAGES)]
    meddling = asyncio.create_task(stage.meddle())
    async with asyncio.TaskGroup() as tasks:
        for topic in (PLAIN, LATER, OLD):
            tasks.create_task(topics[topic].publish(client, numbers, stage.clock))
        tasks.create_task(topics[KEYED].publish(client, keyed[:MESSAGES], stage.clock))
    meddling.cancel()
    await stage.compact()
    # These are not compacted: they must come, whatever becomes of the others.
    await topics[KEYED].publish(client, keyed[MESSAGES:], stage.clock)
    if chance.random() < 0.5:
        await look_at_keyed(client, topics[KEYED])
    else:
        await stage.compact()
    await do_harm(stage, guest)
    await until_all_is_well(stage, keyed, came)
    taking.cancel()
    with suppress(asyncio.CancelledError):
        await taking  # tells what was wrong with it
    return stage.harms


async def do_harm(stage: Stage, guest: Consumer[bytes]) -> None:
    """Some of it, while brokers serve or while they are gone; then a subscription is given up."""
    cluster, chance = stage.cluster, stage.chance
    are_gone = chance.random() < 0.7
    if are_gone:
        for broker in cluster.brokers:
            broker.kill()
    possible = [each for each, needs_calm in HARMS.items() if are_gone or not needs_calm]
    for harm in chance.sample(possible, chance.randint(1, min(3, len(possible)))):
        stage.harms.append(getattr(harm, "__name__", "spoil_messages"))
        await harm(stage)
    if chance.random() < 0.7:
        zookeeper = cluster.world.zookeeper
        zookeeper.conditions = LOSSY
        cluster.world.later(
            LOSSY_S, lambda: setattr(zookeeper, "conditions", CoordinationConditions())
        )
    if are_gone:
        for broker in cluster.brokers:
            broker.restart()
    async with asyncio.TaskGroup() as tasks:
        if chance.random() < 0.6:  # or the compaction finds what was done first
            tasks.create_task(look_at_keyed(stage.client, stage.topics[KEYED]))
        tasks.create_task(give_up(guest))


async def give_up(guest: Consumer[bytes]) -> None:
    """Unsubscribe: what cannot be done now can be done in a moment."""
    end_s = now_s() + DONE_S_MAX
    while True:
        try:
            await guest.unsubscribe()
        except SubscriptionNotFound:
            return
        except ClientError as error:
            if now_s() > end_s:
                raise InvariantViolated(f"never given up: {error!r}") from error
            await asyncio.sleep(LOOK_S)
        else:
            return


async def until_all_is_well(stage: Stage, keyed: list[bytes], came: set[bytes]) -> None:
    """What every topic's clients see, and the ways out of it."""
    client, topics, chance = stage.client, stage.topics, stage.chance
    is_spoilt = "spoil_compacted" in stage.harms
    if chance.random() < 0.5:
        await stage.compact()
    if is_spoilt:
        if chance.random() < 0.5:
            await stage.truncate_in_vain()
        await stage.ask(lambda broker: broker.administration.truncate_topic(KEYED))
    await topics[KEYED].publish(client, [LAST], stage.clock)
    newest = {each.partition(b"/")[0]: each for each in keyed}.values()
    harmless = not is_spoilt and "delete_compacted" not in stage.harms
    await check_keyed(client, topics[KEYED], [*newest] if harmless else [])
    await check_plain(client, topics[PLAIN])
    await asyncio.sleep(TTL_S)
    await check_old(client, topics[OLD], stage.clock)
    later = topics[LATER]
    missing = [each for each in later.sent if each not in came]
    if missing and not later.damaged:
        raise InvariantViolated(f"never delivered: {missing}")


async def story(shape: Shape, ledgers: LedgerConfig) -> list[str]:
    """``live_through`` in a world of its own."""
    async with World() as world:
        cluster = Cluster(world, shape, ledgers, config=CONFIG, acknowledges_all=True)
        await cluster.open()
        await cluster.create_namespace(
            NamespaceName("public", "old"), Policies(message_ttl_s=TTL_S)
        )
        host = world.host("client")
        host.start(lambda _: asyncio.Event().wait())
        chance = world.loop.stream("story")

        async def tell() -> list[str]:
            async with cluster.client("client") as client:
                topics = damage.fresh(chance, host.clock)
                return await live_through(Stage(cluster, client, host.clock, chance, topics, []))

        try:
            harms = await host.run(tell())
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        raise_loop_failures(world)
    return harms


def run(seed: int, *, record: bool = False) -> Outcome[list[str]]:
    """The story of one seed, which also chooses the cluster and how patient it is."""
    random = Random(seed)
    told = partial(story, random.choice(SHAPES), random.choice((PATIENT, IMPATIENT)))
    return simulate(seed, told, time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("damage", SEEDS_A_TEST))
def test_what_is_left_of_damaged_topics_is_served(first: int) -> None:
    harms = {each for told in results(run, range(first, first + SEEDS_A_TEST)) for each in told}
    assert len(harms) > len(HARMS) // 2
