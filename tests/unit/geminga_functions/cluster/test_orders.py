"""Proves that no instance is ever given to a second worker while it may still run at the first: by
workers that come, go, stand still and begin new sessions, and leaders that know only the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from geminga_functions.cluster.assignment import Assigned
from geminga_functions.cluster.orders import Facts, decide
from geminga_functions.cluster.sessions import Session, WorkerSessions
from geminga_functions.names import FunctionName, InstanceName
from geminga_protocol.functions.functions_pb2 import FunctionMetaData

LEASE_S = 3.0
STEP_S = 0.25
STEPS = 400
WORKERS = ("a", "b", "c", "d")
NAMES = [FunctionName("public", "default", each) for each in ("f", "g")]


@dataclass
class SimulatedWorker:
    """Runs what the part of the log that it has read assigns to its session, under its lease."""

    name: str
    session: str = ""
    sessions: int = 0
    lease_until_s: float = -1.0
    read: int = 0
    is_reachable: bool = True
    running: set[InstanceName] = field(default_factory=set[InstanceName])

    def beat(self, now_s: float) -> Session:
        if now_s >= self.lease_until_s:
            self.sessions += 1
            self.session = f"{self.name}{self.sessions}"
            self.running.clear()
        self.lease_until_s = now_s + LEASE_S
        return Session(self.name, self.session)


class World:
    """The log of assignments, the workers, and one leader at a time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_s = 0.0
        self.log: list[tuple[InstanceName, Assigned | None]] = []
        self.workers = {name: SimulatedWorker(name) for name in WORKERS}
        self.functions: dict[FunctionName, FunctionMetaData] = {}
        self.draining: set[str] = set()
        self.versions = 0
        self.moves = 0
        self.lead()

    def lead(self) -> None:
        """Another leader, which has read the log and nothing else."""
        self.sessions = WorkerSessions(LEASE_S)
        self.sessions.suppose(
            {Session(each.worker, each.session) for each in self.table().values()}, self.now_s
        )

    def table(self, end: int | None = None) -> dict[InstanceName, Assigned]:
        table: dict[InstanceName, Assigned] = {}
        for name, each in self.log[:end]:
            if each is None:
                table.pop(name, None)
            else:
                table[name] = each
        return table

    def step(self) -> None:
        self.now_s += STEP_S
        random = self.random
        self.change()
        for worker in self.workers.values():
            if random.random() < 0.04:
                worker.is_reachable = not worker.is_reachable
            if worker.is_reachable:
                self.sessions.heard(worker.beat(self.now_s), self.now_s)
                worker.read = random.randint(worker.read, len(self.log))
            self.run(worker)
        self.sessions.caught_up(self.now_s)
        self.sessions.forget()
        self.check()
        if random.random() < 0.05:
            self.lead()
        elif random.random() < 0.9:
            self.decide()

    def change(self) -> None:
        random = self.random
        if random.random() < 0.1:
            name = random.choice(NAMES)
            if random.random() < 0.3:
                self.functions.pop(name, None)
            else:
                self.versions += 1
                metadata = FunctionMetaData(version=self.versions)
                metadata.functionDetails.parallelism = random.randint(1, 6)
                self.functions[name] = metadata
        if random.random() < 0.03:
            self.draining ^= {random.choice(WORKERS)}

    def run(self, worker: SimulatedWorker) -> None:
        """A worker does what it has read; without a lease it runs nothing."""
        if self.now_s >= worker.lease_until_s:
            worker.running.clear()
            return
        assigned = {
            name
            for name, each in self.table(worker.read).items()
            if (each.worker, each.session) == (worker.name, worker.session) and not each.is_stopped
        }
        # It takes a while until an instance has ended.
        ending = {name for name in worker.running - assigned if self.random.random() < 0.5}
        worker.running = assigned | (worker.running - assigned - ending)

    def check(self) -> None:
        for name in [InstanceName(each, number) for each in NAMES for number in range(6)]:
            places = [worker.name for worker in self.workers.values() if name in worker.running]
            assert len(places) <= 1, f"{name} runs on {places} at {self.now_s}"

    def decide(self) -> None:
        table = self.table()
        facts = Facts(self.functions, table, self.sessions, (), self.draining, balances=True)
        orders = decide(facts)
        ended: set[InstanceName] = set()
        for worker in map(self.workers.__getitem__, orders.ask):
            if worker.is_reachable:
                positions = {name: number for number, (name, _) in enumerate(self.log)}
                ended |= {
                    name
                    for name, each in table.items()
                    if each.worker == worker.name
                    and each.is_stopped
                    and positions[name] < worker.read
                    and name not in worker.running
                }
        orders = decide(
            Facts(self.functions, table, self.sessions, ended, self.draining, balances=True)
        )
        self.log += [(each.instance, each) for each in orders.assign]
        self.log += [(name, None) for name in orders.remove]
        self.moves += len(orders.assign)


@pytest.mark.parametrize("seed", range(30))
def test_no_instance_runs_at_two_workers(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    assert world.moves > 0


@pytest.mark.parametrize("seed", range(10))
def test_in_the_end_everything_runs_evenly_and_nothing_moves(seed: int) -> None:
    world = World(seed)
    for _ in range(100):
        world.step()
    world.draining.clear()
    for worker in world.workers.values():
        worker.is_reachable = True
    world.random = CalmRandom(seed)
    for _ in range(30):
        world.step()
    wanted = {
        InstanceName(name, number)
        for name, metadata in world.functions.items()
        for number in range(metadata.functionDetails.parallelism)
    }
    loads = [len(worker.running) for worker in world.workers.values()]
    assert set().union(*(worker.running for worker in world.workers.values())) == wanted
    assert max(loads) - min(loads) <= 1
    published = len(world.log)
    for _ in range(20):
        world.step()
    assert len(world.log) == published


class CalmRandom(Random):
    """Chance of a cluster in which nothing changes any more, and every worker is quick."""

    def random(self) -> float:
        return 0.4

    def randint(self, a: int, b: int) -> int:
        del a
        return b


def test_an_instance_of_a_worker_that_is_only_late_stays() -> None:
    name = InstanceName(NAMES[0], 0)
    sessions = WorkerSessions(LEASE_S)
    sessions.heard(Session("a", "a1"), 0.0)
    sessions.heard(Session("b", "b1"), 2.0)
    sessions.caught_up(3.0)
    assert sessions.forget() == []
    sessions.caught_up(3.4)
    assert sessions.forget() == [Session("a", "a1")]
    assigned = Assigned(name, "a", "a1", FunctionMetaData(version=1))
    orders = decide(
        Facts(
            {NAMES[0]: FunctionMetaData(version=1)},
            {name: assigned},
            sessions,
            (),
            (),
            balances=False,
        )
    )
    assert [(each.worker, each.session) for each in orders.assign] == [("b", "b1")]
