"""Proves, over many seeds, that no instance of a function ever runs twice while functions workers
are killed, stand still, are cut off, join and leave, and the brokers of their topics restart; and
that in the end every instance runs once, at its newest version, and all workers agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.simulation.bugs.planted import Plant, found_by
from tests.simulation.functions.workers import COMPACTION_S, REMOVED_KEPT_S, Workers
from tests.simulation.seeds import first_seeds

from geminga import AccessMode, ClientError, Reader
from geminga_broker.broker import Broker
from geminga_functions.cluster import keyed_log
from geminga_functions.cluster.heartbeats import Heartbeats
from geminga_functions.cluster.keyed_log import LogWriter
from geminga_functions.cluster.leadership import Leadership, WorkerInstances
from geminga_functions.cluster.orders import instances_of
from geminga_functions.errors import NotLeader
from geminga_functions.names import FunctionName
from geminga_functions.runtime.instances import Instances
from geminga_functions.worker import Worker
from geminga_protocol.functions.functions_pb2 import FunctionMetaData
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import Cluster, Shape
from geminga_scenarios.verdicts import raise_loop_failures, results
from geminga_simulation.conditions import CoordinationConditions
from geminga_simulation.errors import HostCrashed, InvariantViolated
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import ROUGH_NETWORK, FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 5
SHAPE = Shape(brokers=2)
WORKERS_MIN, WORKERS_MAX = 3, 5
NAMES = [FunctionName("public", "default", name) for name in ("one", "two", "three")]
PARALLELISM_MAX = 5
CHANGES = 20
CHANGES_S = 25.0
# Of ten changes so many concern the brokers' topics, strike the leader, drain a worker, and cut one
# off from all brokers.
UNLOADS, STRIKES, DRAINS, ISOLATIONS = 1, 1, 1, 1
# A client asks brokers for half a minute, then it gives up.
ISOLATED_S_MIN, ISOLATED_S_MAX = 32.0, 45.0
STOP_S_MAX = 15.0
# A topic that no function has ever got anything from.
CONSUMED = "persistent://public/default/consumed"
# A change that takes longer may come yet; the next one may be at another leader.
PATIENCE_S = 2.0
LOOK_S = 0.05
# Faults are over: a broker needs seconds to notice a connection gone dark, then a lease has to end.
SETTLE_S = 120.0
# From the moment that the broker notices the death of the leader: here at once.
ELECTION_S = 3.0
# Instances that fail and start again are nothing to the leader.
CALM_S, CALM_STEPS_MAX = 60.0, 10
TIME_LIMIT_S = 600.0
# A lease is three seconds: some pauses and partitions are longer, most are not.
MENU = FaultMenu(
    kill_rate=0.1,
    pause_rate=0.2,
    partition_rate=0.2,
    reset_rate=0.5,
    half_open_rate=0.05,
    session_loss_rate=0.05,
    hosts_down_max=2,
    down_s_max=5.0,
    pause_s_max=8.0,
    partition_s_max=8.0,
    network=ROUGH_NETWORK,
    coordination=CoordinationConditions(delay_s_max=0.02),
)
COORDINATION = TopicName.parse("persistent://public/functions/coordinate")


@dataclass(slots=True)
class Story:
    """What was asked for. ``possible``: the versions that a function may have; None: there is none.
    More than one where whether a change was stored is not known."""

    workers: Workers
    chance: Random
    possible: dict[FunctionName, set[int | None]] = field(
        default_factory=lambda: {name: {None} for name in NAMES}
    )
    versions: int = 0
    is_isolated: bool = False
    ending: list[asyncio.Task[None]] = field(default_factory=list["asyncio.Task[None]"])
    # Who is cut off as soon as it has read the logs: it has no producer and no consumer yet.
    beginner: Host | None = None

    def leader(self) -> tuple[Host, Leadership] | None:
        """A worker that takes itself for the leader."""
        serving = self.workers.serving().items()
        leads = [(host, each.leadership) for host, each in serving if each.leadership.is_leader]
        return self.chance.choice(leads) if leads else None

    async def change(self) -> None:
        """Create, update or remove a function, if a worker leads."""
        if (leader := self.leader()) is None:
            return
        host, leadership = leader
        name, version, work = self.next_change(leadership)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await host.run(work)
        except NotLeader:
            return
        except (ClientError, HostCrashed, TimeoutError):
            self.possible[name].add(version)
        else:
            self.possible[name] = {version}

    def next_change(
        self, leadership: Leadership
    ) -> tuple[FunctionName, int | None, Coroutine[Any, Any, None]]:
        """Choose a function, the version that it gets (None: it is removed), and the work that
        makes this change."""
        name = self.chance.choice(NAMES)
        self.versions += 1
        if self.chance.random() < 0.25:
            return name, None, leadership.remove(name)
        metadata = FunctionMetaData(version=self.versions)
        metadata.functionDetails.parallelism = self.chance.randint(1, PARALLELISM_MAX)
        metadata.functionDetails.className = f"v{self.versions}"
        metadata.functionDetails.source.cleanupSubscription = True
        metadata.functionDetails.source.inputSpecs[CONSUMED].isRegexPattern = False
        return name, self.versions, leadership.put(name, metadata)

    def strike(self) -> None:
        """Let the leader stand still in the midst of a change, and break its connections."""
        if (leader := self.leader()) is None:
            return
        host, leadership = leader
        name, version, work = self.next_change(leadership)
        self.possible[name].add(version)
        changing = host.run(work)
        changing.add_done_callback(lambda done: done.cancelled() or done.exception())
        host.pause(self.chance.random() * MENU.pause_s_max)
        world = self.workers.world
        for stream in world.network.streams(host.name):
            world.network.reset(stream)

    def drain(self) -> None:
        """Drain a worker, if none is: whichever one leads, it takes nothing as long as it lives."""
        serving = self.workers.serving()
        if serving and not any(each.heartbeats.is_draining for each in serving.values()):
            host = self.chance.choice(list(serving))
            heartbeats = serving[host].heartbeats

            async def drain() -> None:
                heartbeats.drain()

            host.run(drain()).add_done_callback(lambda done: done.cancelled() or done.exception())

    def isolate(self) -> None:
        """Cut a worker off from all brokers, for longer than its client asks them for anything: at
        once, when it begins, or, one that leads, before it drops what was removed. It may be told
        to end meanwhile. One at a time."""
        if self.is_isolated or self.beginner is not None:
            return
        moment = self.chance.randrange(4)
        if moment == 0:
            self.ending.append(asyncio.create_task(self._isolate_before_drop()))
            return
        host = self.chance.choice(self.workers.hosts)
        if moment == 1 and host.is_running:
            self.beginner = host
            self.workers.on_read = self._isolate_beginner
            host.kill()
            host.restart()
            return
        self._cut_off(host, self.chance.uniform(ISOLATED_S_MIN, ISOLATED_S_MAX))
        if host.lives and self.chance.randrange(2):  # one has not begun yet
            self.ending.append(asyncio.create_task(self._end_and_begin(host)))

    def _isolate_beginner(self, host: Host) -> None:
        if host is self.beginner:
            self.beginner = None
            self._cut_off(host, self.chance.uniform(ISOLATED_S_MIN, ISOLATED_S_MAX))

    async def _isolate_before_drop(self) -> None:
        """Of what was removed long ago the leader drops the next time all there is."""
        end_s = self.workers.world.loop.now_s + REMOVED_KEPT_S
        while self.workers.world.loop.now_s < end_s:
            for host, worker in self.workers.serving().items():
                removed_ms = host.clock.wall_ms() - REMOVED_KEPT_S * 1000
                removals = worker.functions.removed.values()
                is_dropping = any(each < removed_ms for each in removals)
                if worker.leadership.is_leader and is_dropping and not self.is_isolated:
                    seconds = self.chance.uniform(ISOLATED_S_MIN, ISOLATED_S_MAX)
                    self._cut_off(host, seconds + COMPACTION_S)
                    return
            await asyncio.sleep(LOOK_S)

    def _cut_off(self, host: Host, seconds: float) -> None:
        self.is_isolated = True
        world = self.workers.world
        brokers = [each.name for each in self.workers.cluster.brokers]
        world.note(f"{host.name} reaches no broker for {seconds:.6f} s")
        for broker in brokers:
            world.network.cut(host.name, broker)

        def end() -> None:
            self.is_isolated = False
            for broker in brokers:
                world.network.heal(host.name, broker)

        world.later(seconds, end)

    async def _end_and_begin(self, host: Host) -> None:
        """Tell a worker to end, and start it again."""
        await self.pause_before_end()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S_MAX):
                await host.stop()
        if host.is_running:
            host.kill()
        host.restart()

    async def pause_before_end(self) -> None:
        """A worker that is cut off may have noticed or not."""
        await asyncio.sleep(self.chance.random() * ISOLATED_S_MIN)

    async def unload(self) -> None:
        """Let the owner of the topic by which workers elect their leader hand the topic over."""

        async def unload(broker: Broker) -> None:
            if broker.ownership.owns(COORDINATION):
                await broker.ownership.unload(await broker.ownership.rings.bundle_of(COORDINATION))

        cluster = self.workers.cluster
        for host in cluster.brokers:
            try:
                await cluster.do(host, unload)
            except (GemingaError, HostCrashed):
                continue

    async def go_on(self) -> None:
        """All changes, one after the other."""
        for _ in range(CHANGES):
            await asyncio.sleep(self.chance.random() * CHANGES_S / CHANGES * 2)
            number = self.chance.randrange(10)
            if number < UNLOADS:
                await self.unload()
            elif number < UNLOADS + STRIKES:
                self.strike()
            elif number < UNLOADS + STRIKES + DRAINS:
                self.drain()
            elif number < UNLOADS + STRIKES + DRAINS + ISOLATIONS:
                self.isolate()
            else:
                await self.change()
            self.workers.notes.check()
        await asyncio.gather(*self.ending)
        self.beginner = None

    async def settle(self) -> None:
        """Wait until everything is as it should be without faults. Raises ``InvariantViolated``."""
        notes = self.workers.notes
        try:
            async with asyncio.timeout(SETTLE_S):
                while self.wrong():
                    notes.check()
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise InvariantViolated(f"{SETTLE_S:g} s after the faults: {self.wrong()}") from None
        notes.check()

    def wrong(self) -> str:
        """What is not as it should be; empty if all is."""
        serving = self.workers.serving()
        workers = list(serving.values())
        if len(workers) < len(self.workers.hosts):
            return f"workers: {[host.name for host in serving]}"
        leaders = [worker.me.worker_id for worker in workers if worker.leadership.is_leader]
        if len(leaders) != 1:
            return f"leaders: {leaders}"
        functions = workers[0].functions.records
        if any(worker.functions.records != functions for worker in workers):
            return "workers have read different functions"
        for name, versions in self.possible.items():
            version = functions[name].version if name in functions else None
            if version not in versions:
                return f"{name} has the version {version}, not one of {versions}"
        assigned = {name: each.worker for name, each in workers[0].assignments.records.items()}
        for worker in workers:
            if {name: each.worker for name, each in worker.assignments.records.items()} != assigned:
                return "workers have read different assignments"
        running = self.workers.notes.running()
        wanted = {name: functions[name.function].version for name in instances_of(functions)}
        if {name: each.version for name, each in running.items()} != wanted:
            return f"runs: {running}, should run: {wanted}"
        if {name: each.host.name for name, each in running.items()} != assigned:
            return "an instance runs where it is not assigned"
        places = list(assigned.values())
        loads = {worker.me.worker_id: places.count(worker.me.worker_id) for worker in workers}
        drained = [each.me.worker_id for each in workers if each.heartbeats.is_draining]
        if (
            any(loads.pop(worker) for worker in drained)
            or max(loads.values()) - min(loads.values()) > 1
        ):
            return f"places: {places}, drained: {drained}"
        return ""


async def live_through(menu: FaultMenu) -> int:
    """One story; how many lives of instances there were."""
    async with World() as world:
        cluster = Cluster(world, SHAPE)
        await cluster.open()
        chance = world.loop.stream("story")
        workers = Workers(cluster, chance.randint(WORKERS_MIN, WORKERS_MAX))
        story = Story(workers, chance)
        late, *early = workers.hosts
        for host in early:
            host.start(workers.run_worker)
        async with FaultInjector(world, menu, [*early, *cluster.brokers]):
            going_on = asyncio.create_task(story.go_on())
            await asyncio.sleep(chance.random() * CHANGES_S)
            late.start(workers.run_worker)
            await going_on
        await story.settle()
        raise_loop_failures(world)
        return workers.notes.starts


def run(seed: int, *, record: bool = False) -> Outcome[int]:
    """The story of one seed, which also chooses what goes wrong."""
    menu = MENU.drawn(Random(seed))
    return simulate(seed, partial(live_through, menu), time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("functions workers", SEEDS_A_TEST))
def test_no_instance_runs_twice(first: int) -> None:
    starts = list(results(run, range(first, first + SEEDS_A_TEST)))
    assert all(starts)


async def calm_and_election(steps: list[float]) -> None:
    """Nothing happens for a while; then the leader is killed."""
    async with World() as world:
        cluster = Cluster(world, SHAPE)
        await cluster.open()
        workers = Workers(cluster, WORKERS_MIN)
        story = Story(workers, world.loop.stream("story"))
        for host in workers.hosts:
            host.start(workers.run_worker)
        async with asyncio.timeout(SETTLE_S):
            while story.leader() is None:  # noqa: ASYNC110 - of other hosts
                await asyncio.sleep(LOOK_S)
        while not any(story.workers.notes.running()):
            await story.change()
            await story.settle()
        steps.clear()
        await asyncio.sleep(CALM_S)
        assert len(steps) <= CALM_STEPS_MAX
        found = story.leader()
        assert found is not None
        found[0].kill()
        async with asyncio.timeout(ELECTION_S):
            while story.leader() is None:  # noqa: ASYNC110 - of other hosts
                await asyncio.sleep(LOOK_S)
        found[0].restart()
        await story.settle()
        raise_loop_failures(world)


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_rests_while_nothing_changes_and_is_soon_replaced(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[float] = []
    honest = Leadership._step

    async def step(leadership: Leadership, writer: LogWriter) -> float:
        steps.append(await honest(leadership, writer))
        return steps[-1]

    monkeypatch.setattr(Leadership, "_step", step)
    simulate(seed, partial(calm_and_election, steps), time_limit_s=TIME_LIMIT_S)


def ignore_leases(patch: pytest.MonkeyPatch) -> None:
    """Workers take their leases for longer than they are."""
    honest = Instances.extend_lease

    def extend(instances: Instances, until_s: float) -> None:
        honest(instances, until_s + 20.0)

    patch.setattr(Instances, "extend_lease", extend)


def await_no_end(patch: pytest.MonkeyPatch) -> None:
    """Workers say that an instance is gone while it still ends."""

    def present(worker: Worker) -> WorkerInstances:
        return WorkerInstances(worker.assignments.position, frozenset())

    patch.setattr(Worker, "present", present)


def keep_the_session(patch: pytest.MonkeyPatch) -> None:
    """Workers come back in the session that was given up."""
    patch.setattr(f"{__name__}.STRIKES", 5)
    honest = Heartbeats.__init__

    def init(heartbeats: Heartbeats, *given: Any, **options: Any) -> None:
        honest(heartbeats, *given, **{**options, "make_session": lambda: "always"})

    patch.setattr(Heartbeats, "__init__", init)


def fence_no_leader(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not fence the one before it, which may go on after a pause."""
    patch.setattr(f"{__name__}.STRIKES", 5)
    patch.setattr(keyed_log, "LEADERS_ACCESS", AccessMode.SHARED)


def drop_at_once(patch: pytest.MonkeyPatch) -> None:
    """What is removed is dropped at once, and a worker that lost its connection reads on where it
    was, whatever was compacted meanwhile."""
    patch.setattr(LogWriter, "remove", LogWriter.drop)
    patch.setattr(Reader, "attachments", 0)


# Each with the seed from which on it is looked for, which spares a second for each before it.
@pytest.mark.parametrize(
    ("plant", "first"),
    [
        (ignore_leases, 1),
        (await_no_end, 3),
        pytest.param(keep_the_session, 40, marks=pytest.mark.full),
        (fence_no_leader, 10),
        (drop_at_once, 2),
    ],
)
def test_a_planted_bug_is_found(plant: Plant, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(run, first)
    run(seed)  # the same story is clean without the bug
