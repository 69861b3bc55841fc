"""Proves, over many seeds, that every feature of a broker keeps what it promises while the cluster
suffers: each seed tells some errands of ``features`` side by side, one for each feature, and each
is judged by a model of its own.

In calm weather nothing happens. In change every part is told to end and is started again, one after
the other, which must cost no client anything. In storms all that is on the menu comes, and parts
are told to end besides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pytest
from tests.simulation.accounts import check_accounts
from tests.simulation.bugs.planted import Plant, found_by
from tests.simulation.bugs.planted_features import (
    believe_the_index_of_the_record,
    delete_no_cursor,
    dispatch_without_a_limit,
    evict_half_of_a_backlog,
    expire_early,
    expire_never,
    forget_parts_of_batches,
    forget_places_in_batches,
    keep_the_room_of_dead_letters,
    keep_the_room_of_refusals,
    let_all_be_exclusive,
    publish_without_a_limit,
    seek_an_entry_behind,
    send_what_is_not_kept_twice,
    take_a_message_for_whole_early,
    truncate_what_is_closed,
)
from tests.simulation.features import making, quotas
from tests.simulation.features.batch_acks import BatchAcks
from tests.simulation.features.chunks import ENTRY_BYTES_MAX, Chunks
from tests.simulation.features.ending import Ending
from tests.simulation.features.expiry import CHECK_S, Expiry
from tests.simulation.features.indexed import INTERCEPTORS, Indexed
from tests.simulation.features.letters import Letters
from tests.simulation.features.making import Making
from tests.simulation.features.non_persistent import NonPersistent
from tests.simulation.features.postponing import Postponing
from tests.simulation.features.quotas import Quotas
from tests.simulation.features.refusing import Refusing
from tests.simulation.features.seeking import Seeking
from tests.simulation.features.stage import LIVE_S, RETRY_S, Errand, Stage, Weather
from tests.simulation.features.strangers import Strangers
from tests.simulation.features.throttling import Throttling
from tests.simulation.seeds import first_seeds

from geminga_broker.broker import Broker
from geminga_broker.config import BrokerConfig
from geminga_broker.ownership.assignment.split import split_boundaries
from geminga_broker.policies.backlog import BacklogConfig
from geminga_broker.policies.effective import PolicyConfig
from geminga_broker.policies.expiry import ExpiryConfig
from geminga_broker.policies.inactivity import InactivityConfig
from geminga_broker.sessions.config import SessionConfig
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import SHORT_FAULTS, Cluster, Shape, Sizes
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.errors import HostCrashed
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 5
ALL: tuple[type[Errand], ...] = (
    *(Seeking, BatchAcks, Chunks, Ending, Expiry),
    *(NonPersistent, Quotas, Throttling, Strangers, Refusing, Making, Indexed, Letters),
    Postponing,
)
ERRANDS = {each.name: each for each in ALL}
ERRANDS_A_SEED_MAX = 4
# Storms are the rule.
WEATHERS = (Weather.CALM, Weather.CHANGE, Weather.CHANGE, *[Weather.STORM] * 5)
SHAPES = (
    Shape(),
    Shape(brokers=2),
    Shape(4, 2, Sizes(3, 3, 2)),
    Shape(4, 2, Sizes(3, 2, 2), proxies=1),
)
CLIENTS = ("client", "other-client")
# A part that does not end in good order within so long is killed, as supervisors do.
STOP_S_MAX = 20.0
DOWN_S_MAX = 1.0
# In so many seeds an operator moves topics and bundles about, so often.
OPERATED_SHARE = 0.5
OPERATED_EACH_S = 1.0
TIME_LIMIT_S = 1500.0
CONFIG = BrokerConfig(
    sessions=SessionConfig(max_message_bytes=ENTRY_BYTES_MAX),
    policies=PolicyConfig(
        expiry=ExpiryConfig(check_s=CHECK_S),
        backlog=BacklogConfig(backlog_quota_check_s=quotas.CHECK_S),
        # As long as else, where a namespace does not say how long.
        inactivity=InactivityConfig(check_s=making.CHECK_S, unused_s_max=60.0),
    ),
)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a story did, in counts: a story in which nothing happened would prove nothing."""

    weather: Weather
    deeds: dict[str, int]


async def end_in_order(host: Host) -> bool:
    """Tell a part to end and start it again; whether it ended by itself."""
    if not host.is_running:
        return False
    host_stopped = True
    try:
        async with asyncio.timeout(STOP_S_MAX):
            await host.stop()
    except TimeoutError:
        host_stopped = False
        host.kill()
    return host_stopped


async def end_all_in_turn(cluster: Cluster, chance: Random) -> None:
    """Each part is told to end and started again, one at a time."""
    parts = [*cluster.storage.bookies, *cluster.brokers, *cluster.proxies]
    chance.shuffle(parts)
    for part in parts:
        await end_in_order(part)
        await asyncio.sleep(chance.random() * DOWN_S_MAX)
        if not part.is_running:
            part.restart()
        await asyncio.sleep(LIVE_S / len(parts) * chance.random())


async def operate(stage: Stage, errands: Sequence[Errand]) -> None:
    """Unload a topic or a bundle, or split one, now and then. Never ends."""
    cluster, chance = stage.cluster, stage.chance
    while True:
        await asyncio.sleep(chance.random() * OPERATED_EACH_S)
        topic = TopicName.parse(chance.choice(errands).topic())
        what = chance.choice((unload_topic, unload_bundle, split_bundle))
        for host in cluster.brokers:
            broker = cluster.broker(host)
            if broker is not None and broker.ownership.owns(topic):
                cluster.world.note(f"{what.__name__} of {topic} at {host.name}")
                with suppress(GemingaError, HostCrashed):
                    await cluster.do(host, partial(what, topic=topic))
                break


async def unload_topic(broker: Broker, topic: TopicName) -> None:
    """Close it; its clients look it up again."""
    await broker.administration.unload_topic(topic)


async def unload_bundle(broker: Broker, topic: TopicName) -> None:
    """Give the bundle that it is in to whichever broker is next."""
    await broker.ownership.unload(await broker.ownership.rings.bundle_of(topic))


async def split_bundle(broker: Broker, topic: TopicName) -> None:
    """Make two bundles of the one that it is in."""
    bundle = await broker.ownership.rings.bundle_of(topic)
    cuts = split_boundaries(bundle, "range_equally_divide", hashes=[], positions=[])
    await broker.ownership.split(bundle, cuts)


async def begin_anew(cluster: Cluster, chance: Random) -> None:
    """What is read in the end comes from memory, from brokers that were killed and started again,
    or from such that were told to end."""
    roll = chance.random()
    if roll < 1 / 3:
        cluster.restart_brokers()
    elif roll < 2 / 3:
        await asyncio.gather(*[end_in_order(broker) for broker in cluster.brokers])
        for broker in cluster.brokers:
            broker.restart()


async def until_known(cluster: Cluster) -> None:
    """Return when every broker knows which topics it has."""
    while cluster.has_former_owner():  # noqa: ASYNC110 -- it learns of that soon
        await asyncio.sleep(RETRY_S)


async def live_through(stage: Stage, errands: Sequence[Errand], menu: FaultMenu) -> None:
    """One story: faults while errands are run, then calm, in which each is finished."""
    cluster = stage.cluster
    for errand in errands:
        await errand.open()
    victims = [*cluster.storage.bookies, *cluster.brokers, *cluster.proxies]
    async with asyncio.TaskGroup() as tasks:
        living = [tasks.create_task(errand.live()) for errand in errands]
        if stage.weather is not Weather.CALM and stage.chance.random() < OPERATED_SHARE:
            operating = tasks.create_task(operate(stage, errands))
            asyncio.get_running_loop().call_later(LIVE_S, operating.cancel)
        async with FaultInjector(cluster.world, menu, victims):
            if stage.weather is Weather.CHANGE:
                await end_all_in_turn(cluster, stage.chance)
            await asyncio.wait(living, timeout=2 * LIVE_S)
    await until_known(cluster)
    await asyncio.gather(*[errand.calm() for errand in errands])
    await begin_anew(cluster, stage.chance)
    await until_known(cluster)
    await asyncio.gather(*[errand.finish() for errand in errands])


async def story(
    chosen: Sequence[type[Errand]], weather: Weather, menu: FaultMenu, shape: Shape
) -> Summary:
    """``live_through`` in a world of its own, and its checks."""
    async with World() as world:
        interceptors = INTERCEPTORS if Indexed in chosen else ()
        config = replace(CONFIG, broker_entry_metadata_interceptors=interceptors)
        cluster = Cluster(world, shape, config=config)
        # Errands send without waiting for room.
        cluster.client_options.pop("memory_limit_bytes", None)
        await cluster.open()
        for errand in chosen:
            await cluster.create_namespace(errand.namespace(), errand.policies)
        chance = world.loop.stream("story")
        hosts = [world.host(name) for name in CLIENTS]
        for host in hosts:
            host.start(lambda _: asyncio.Event().wait())

        async def tell() -> dict[str, int]:
            async with cluster.client(CLIENTS[0]) as client, cluster.client(CLIENTS[1]) as other:
                stage = Stage(cluster, (client, other), weather, chance)
                errands = [errand(stage) for errand in chosen]
                await live_through(stage, errands, menu)
                return {errand.name: errand.deeds for errand in errands}

        try:
            deeds = await hosts[0].run(tell())
        except ExceptionGroup as group:
            raise _first_of(group) from group
        await check_accounts(cluster)
        raise_loop_failures(world)
    return Summary(weather, deeds)


def _first_of(group: ExceptionGroup[Exception]) -> Exception:
    """Of the errors of several tasks the first that says something."""
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def run(
    seed: int,
    *,
    weather: Weather | None = None,
    errands: Sequence[str] | None = None,
    record: bool = False,
) -> Outcome[Summary]:
    """The story of one seed, which also chooses the cluster, what may go wrong in it, and, unless
    these are given, the weather and the errands."""
    random = Random(seed)
    weather = weather or random.choice(WEATHERS)
    # By a chance of its own: what else a seed means does not change with a new errand.
    names = Random(f"{seed}/errands").sample([*ERRANDS], min(ERRANDS_A_SEED_MAX, len(ERRANDS)))
    chosen = [ERRANDS[name] for name in errands or names]
    menu = SHORT_FAULTS.drawn(random) if weather is Weather.STORM else FaultMenu()
    if any(errand.goes_by_time for errand in chosen):
        menu = replace(menu, clock_jump_rate=0.0)
    shape = random.choice(SHAPES)
    return simulate(
        seed,
        partial(story, chosen, weather, menu, shape),
        time_limit_s=TIME_LIMIT_S,
        record=record,
    )


@pytest.mark.parametrize("first", first_seeds("features", SEEDS_A_TEST))
def test_features_keep_what_they_promise_under_faults(first: int) -> None:
    for summary in results(run, range(first, first + SEEDS_A_TEST)):
        # In a storm one of them may come to nothing.
        assert sum(summary.deeds.values()) >= len(summary.deeds)


@pytest.mark.parametrize(
    ("plant", "errand", "weather"),
    [
        (forget_places_in_batches, "seeking", None),
        (seek_an_entry_behind, "seeking", None),
        (forget_parts_of_batches, "batch-acks", None),
        (take_a_message_for_whole_early, "chunks", None),
        pytest.param(truncate_what_is_closed, "ending", None, marks=pytest.mark.full),
        (delete_no_cursor, "ending", None),
        (expire_early, "expiry", None),
        (expire_never, "expiry", None),
        (publish_without_a_limit, "throttling", Weather.CALM),
        (dispatch_without_a_limit, "throttling", Weather.CALM),
        (evict_half_of_a_backlog, "quotas", None),
        (believe_the_index_of_the_record, "indexed", None),
        (keep_the_room_of_dead_letters, "letters", None),
        (keep_the_room_of_refusals, "postponing", Weather.CALM),
        (send_what_is_not_kept_twice, "non-persistent", Weather.CALM),
        (let_all_be_exclusive, "strangers", None),
    ],
)
def test_a_planted_bug_is_found_by_its_model(
    plant: Plant, errand: str, weather: Weather | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = partial(run, errands=[errand], weather=weather)
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(tell)
    tell(seed)  # the same story is clean without the bug
