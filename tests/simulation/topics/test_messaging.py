"""Proves, over many seeds, what a cluster promises about messages beyond keeping them: their order
by key, that one producer at a time has a topic, how often a message was refused, that what is sent
again is stored once, and what is to come later does not come early.

In calm weather workers and producers come and go, and what they see is judged strictly. In change
the brokers are killed once. In storms brokers and bookies crash, are killed, stand still and are
cut off while all goes on; another broker takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from random import Random

import pytest
from tests.simulation.accounts import check_accounts
from tests.simulation.bugs.planted import (
    Plant,
    count_refusals_twice,
    deliver_early,
    fence_nobody,
    forget_refusals,
    forget_what_was_sent,
    found_by,
    hand_keys_over_at_once,
    lose_segments,
    write_counts_once,
)
from tests.simulation.harm import patience, with_bad_disks
from tests.simulation.listened import listen
from tests.simulation.seeds import first_seeds
from tests.simulation.topics import delayed, fenced, keyed, once, refused
from tests.simulation.topics.delayed import (
    Appointments,
    check_appointments,
    send_ahead,
    wait_for_them,
)
from tests.simulation.topics.fenced import Reigns, check_reigns, reign
from tests.simulation.topics.keyed import Work, check_nothing_overtaken, check_work, work_in_shifts
from tests.simulation.topics.once import Numbered, check_once, send_numbers
from tests.simulation.topics.refused import Refusals, refuse, send_all
from tests.simulation.topics.traffic import (
    FROM_THE_FIRST,
    PRODUCERS,
    READER,
    Told,
    pass_by,
    publish_end,
    read_all,
)

from geminga import Client, ClientError, ConsumerOptions
from geminga_ledger import LedgerConfig
from geminga_runtime.clock import Clock
from geminga_scenarios.cluster import SHAPES, SHORT_FAULTS, Cluster, Shape
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.histories.checkers import check_nothing_lost
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 5
SEND_S = 5.0
# When in it the brokers are killed, in change: many a message was refused often by then.
CHANGE_AT = 0.8
CALM_S_MAX = 200.0
LOOK_S = 0.1
RETRY_S = 0.5
WORKERS = 3
RULERS = 2
REFUSED_MESSAGES = 8
READ_IN_THE_END = (fenced.TOPIC, once.TOPIC)
TIME_LIMIT_S = 900.0


class Weather(Enum):
    """What happens to the cluster."""

    CALM = "calm"
    CHANGE = "change"
    STORM = "storm"


# Storms are the rule.
WEATHERS = (Weather.CALM, Weather.CHANGE, *[Weather.STORM] * 4)

# A broker that is killed forgets the refusals of its last second, which are three at most, and the
# client the one that it was about to tell. In a storm brokers are killed often.
FORGOTTEN_MAX = {Weather.CALM: 0, Weather.CHANGE: 4, Weather.STORM: None}


@dataclass(slots=True)
class Story:
    """What all clients did and saw."""

    work: Work = field(default_factory=Work)
    reigns: Reigns = field(default_factory=Reigns)
    refusals: Refusals = field(default_factory=Refusals)
    numbered: Numbered = field(default_factory=Numbered)
    appointments: Appointments = field(default_factory=Appointments)
    # Everything in a topic, in its order.
    read: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be done."""
        return self.work.is_done and self.refusals.is_done and self.appointments.is_done


@dataclass(frozen=True, slots=True)
class Summary:
    """What a story did, in counts: a story in which nothing happened would prove nothing."""

    settled: int
    shifts: int
    reigns: int
    refusals: int
    lives: int


async def publish_keys(client: Client, name: str, work: Work, chance: Random) -> None:
    """Send the keyed messages of producer ``name``, however often no broker takes it at first."""
    while True:
        try:
            producer = await client.producer(
                keyed.TOPIC, name=name, send_timeout_s=None, batching=None
            )
            break
        except ClientError:
            await asyncio.sleep(RETRY_S)
    await keyed.publish(producer, name, work, chance, SEND_S)


async def live_through(
    cluster: Cluster, weather: Weather, menu: FaultMenu, clock: Clock, chance: Random
) -> Story:
    """One story: faults, if any, while messages flow, then calm until all is done."""
    story = Story()
    victims = [*cluster.storage.bookies, *cluster.brokers]
    async with (
        cluster.client("client") as client,
        cluster.client("other-client") as other,
        asyncio.TaskGroup() as tasks,
    ):
        # What comes before a topic's first subscription is not kept.
        for topic in READ_IN_THE_END:
            await _subscribe_first(client, topic, READER, FROM_THE_FIRST)
        await _subscribe_first(client, keyed.TOPIC, keyed.SUBSCRIPTION, keyed.OPTIONS)
        await _subscribe_first(client, refused.TOPIC, refused.SUBSCRIPTION, refused.OPTIONS)
        await _subscribe_first(client, delayed.TOPIC, delayed.SUBSCRIPTION, delayed.OPTIONS)
        await send_all(client, story.refusals, REFUSED_MESSAGES, chance)
        await send_ahead(client, story.appointments, clock, chance)
        endless = [
            *(
                tasks.create_task(work_in_shifts(each, story.work, Random(chance.random())))
                for each in (client, other, client)[:WORKERS]
            ),
            *(
                tasks.create_task(reign(each, story.reigns, Random(chance.random())))
                for each in (client, other)[:RULERS]
            ),
            tasks.create_task(refuse(other, story.refusals)),
            tasks.create_task(wait_for_them(client, story.appointments, clock)),
        ]
        async with FaultInjector(cluster.world, menu, victims):
            publishing = [
                tasks.create_task(publish_keys(each, name, story.work, Random(chance.random())))
                for each, name in zip((client, other), PRODUCERS, strict=True)
            ]
            publishing += [
                tasks.create_task(
                    send_numbers((client, other), name, story.numbered, Random(chance.random()))
                )
                for name in PRODUCERS
            ]
            if weather is Weather.CHANGE:
                await asyncio.sleep(SEND_S * CHANGE_AT)
                cluster.restart_brokers()
            passing = tasks.create_task(pass_by(other, once.TOPIC, Random(chance.random())))
            await asyncio.wait(publishing, timeout=SEND_S * 2)
            passing.cancel()
        await asyncio.wait(publishing)
        await _until(lambda: story.is_over)
        for task in endless:
            task.cancel()
    async with cluster.client("client") as client:
        for topic in READ_IN_THE_END:
            told = Told(topic)
            await publish_end(client, told)
            await read_all(client, told)
            story.read[topic] = [message.data for message in told.read]
    return story


async def _subscribe_first(
    client: Client, topic: str, subscription: str, options: ConsumerOptions
) -> None:
    async with await client.consumer(topic, subscription, **options):
        pass


async def _until(is_reached: Callable[[], bool]) -> None:
    """Return when it is, or after long enough: what is missing then, the checks will say."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + CALM_S_MAX
    while not is_reached() and loop.time() < end_s:  # noqa: ASYNC110 -- calm times
        await asyncio.sleep(LOOK_S)


def check_refusals(refusals: Refusals, *, forgotten_max: int | None) -> None:
    """Every message was accepted, and none was refused more often than it wanted but for what a
    broker forgot in a crash."""
    if not refusals.is_done:
        missing = sorted(set(refusals.wanted) - refusals.accepted)
        raise InvariantViolated(f"never accepted: {missing}, counts {refusals.counts}")
    for payload, wanted in refusals.wanted.items():
        if forgotten_max is not None and refusals.refused[payload] > wanted + forgotten_max:
            raise InvariantViolated(
                f"{payload!r} was to be refused {wanted} times: {refusals.counts[payload]}"
            )


async def story(weather: Weather, menu: FaultMenu, shape: Shape, ledgers: LedgerConfig) -> Summary:
    """``live_through`` in a world of its own, and its checks."""
    async with World() as world:
        cluster = Cluster(world, shape, ledgers, acknowledges_all=True)
        histories = listen(cluster)
        await cluster.open()
        await cluster.create_namespace(once.NAMESPACE, once.POLICIES)
        chance = world.loop.stream("story")
        client, other = world.host("client"), world.host("other-client")
        for host in (client, other):
            host.start(lambda _: asyncio.Event().wait())
        try:
            told = await client.run(live_through(cluster, weather, menu, client.clock, chance))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        await check_accounts(cluster)
        raise_loop_failures(world)
    histories.check()
    check_work(told.work)
    check_reigns(told.reigns, told.read[fenced.TOPIC])
    check_once(PRODUCERS, told.read[once.TOPIC])
    check_nothing_lost(told.numbered.stored, told.read[once.TOPIC])
    check_appointments(told.appointments, clocks_jump=menu.clock_jump_rate > 0)
    check_refusals(told.refusals, forgotten_max=FORGOTTEN_MAX[weather])
    if weather is Weather.CALM:
        check_nothing_overtaken(told.work)
    return Summary(
        len(told.work.settled),
        told.work.shifts,
        len(told.reigns.sent),
        told.refusals.refused.total(),
        told.numbered.lives,
    )


def run(seed: int, *, weather: Weather | None = None, record: bool = False) -> Outcome[Summary]:
    """The story of one seed, which also chooses the cluster, the weather unless that is given, and
    what may go wrong in it."""
    random = Random(seed)
    weather = weather or random.choice(WEATHERS)
    is_stormy = weather is Weather.STORM
    menu = with_bad_disks(SHORT_FAULTS.drawn(random), random) if is_stormy else FaultMenu()
    shape = random.choice(SHAPES)
    return simulate(
        seed,
        partial(story, weather, menu, shape, patience(menu, random)),
        time_limit_s=TIME_LIMIT_S,
        record=record,
    )


@pytest.mark.parametrize("first", first_seeds("messaging", SEEDS_A_TEST))
def test_messages_come_in_order_and_as_often_as_they_should(first: int) -> None:
    summaries = list(results(run, range(first, first + SEEDS_A_TEST)))
    for summary in summaries:
        assert summary.settled == keyed.MESSAGES * len(PRODUCERS)
    assert sum(each.shifts for each in summaries) > WORKERS * SEEDS_A_TEST, "workers came and went"
    assert sum(each.reigns for each in summaries) > RULERS * SEEDS_A_TEST, "the topic changed hands"
    assert sum(each.refusals for each in summaries) > refused.REFUSALS_MAX, "messages came again"
    assert sum(each.lives for each in summaries) > len(PRODUCERS) * SEEDS_A_TEST, "and went on"


@pytest.mark.parametrize(
    ("plant", "weather"),
    [
        (hand_keys_over_at_once, Weather.CALM),
        (fence_nobody, Weather.CALM),
        (deliver_early, Weather.CALM),
        (count_refusals_twice, Weather.CALM),
        (forget_what_was_sent, Weather.CHANGE),
        pytest.param(lose_segments, Weather.CHANGE, marks=pytest.mark.full),
        (forget_refusals, Weather.CHANGE),
        (write_counts_once, Weather.CHANGE),
    ],
)
def test_a_planted_bug_is_found_by_a_checker(
    plant: Plant, weather: Weather, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = partial(run, weather=weather)
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(tell)
    tell(seed)  # the same story is clean without the bug
