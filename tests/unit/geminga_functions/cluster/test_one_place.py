"""Proves that no instance ever runs at two places at once, whatever becomes of workers, leaders
and messages, and that all of them run once that ends."""

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
TICK_S = 0.25
TROUBLE_TICKS = 400
CALM_TICKS = 80


@dataclass(slots=True)
class Worker:
    """A worker as the leader's rules rely on it: it runs what it has read to be its own, in the
    session that has a lease, for as long as that lasts."""

    name: str
    session: str = ""
    leased: str = ""
    lease_until_s: float = -1.0
    sessions: int = 0
    read: int = 0
    is_paused: bool = False
    on_its_way: list[tuple[float, float, Session]] = field(default_factory=list)
    """Heartbeats: when they are stored, when they were sent, of which session; one at a time."""


class Cluster:
    """Workers, the two logs, and a leader, one step of time after the other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_s = 0.0
        self.workers = [Worker(f"w{number}") for number in range(3)]
        self.functions = {
            FunctionName("t", "n", f"f{number}"): FunctionMetaData() for number in range(4)
        }
        for metadata in self.functions.values():
            metadata.functionDetails.parallelism = 2
        self.coordination: list[tuple[float, Session]] = []
        self.acknowledged = 0
        self.log: list[tuple[InstanceName, Assigned | None]] = []
        self.leader = self.workers[0]
        self.sessions = WorkerSessions(LEASE_S)
        self.draining: set[str] = set()
        self.moves = 0

    def table(self, length: int | None = None) -> dict[InstanceName, Assigned]:
        """The assignments after so many records."""
        table: dict[InstanceName, Assigned] = {}
        for name, assigned in self.log[:length]:
            if assigned is None:
                table.pop(name, None)
            else:
                table[name] = assigned
        return table

    def running(self, worker: Worker) -> set[InstanceName]:
        """What runs on a worker now; its instances know when its lease ends, also while it is
        paused."""
        if self.now_s >= worker.lease_until_s:
            return set()
        mine = (worker.name, worker.leased)
        table = self.table(worker.read).values()
        return {x.instance for x in table if (x.worker, x.session) == mine and not x.is_stopped}

    def check(self) -> set[InstanceName]:
        """Nothing runs twice; returns what runs."""
        everything: set[InstanceName] = set()
        for worker in self.workers:
            here = self.running(worker)
            assert not here & everything, f"twice at {self.now_s}: {here & everything}"
            everything |= here
        return everything

    def tick(self, *, is_troubled: bool) -> None:
        """One step."""
        if is_troubled:
            self._trouble()
        for worker in self.random.sample(self.workers, len(self.workers)):
            if not worker.is_paused:
                self._work(worker, is_troubled=is_troubled)
            self.check()
        if not self.leader.is_paused:
            self._lead()
            self.check()
        self.now_s += TICK_S

    def _trouble(self) -> None:
        worker = self.random.choice(self.workers)
        match self.random.randrange(80):
            case 0:
                worker.is_paused = not worker.is_paused
            case 1:  # Killed, and started again: nothing is left of it but its name.
                number = self.workers.index(worker)
                self.workers[number] = Worker(worker.name, sessions=worker.sessions)
                self._elect()
            case 2:
                self._elect()
            case 3:
                self.draining ^= {worker.name}
            case 4:
                function = self.random.choice(sorted(self.functions))
                metadata = FunctionMetaData()
                metadata.CopyFrom(self.functions[function])
                metadata.functionDetails.parallelism = self.random.randrange(1, 4)
                self.functions[function] = metadata
            case _:
                pass

    def calm(self) -> None:
        """All workers are there from now on."""
        self.draining.clear()
        for worker in self.workers:
            worker.is_paused = False
        self._elect()

    def _elect(self) -> None:
        """Another leader: it knows what stands in the log, and gets what no other one got."""
        self.leader = self.random.choice(self.workers)
        self.sessions = WorkerSessions(LEASE_S)
        supposed = {Session(x.worker, x.session) for x in self.table().values()}
        self.sessions.suppose(supposed, self.now_s)

    def _work(self, worker: Worker, *, is_troubled: bool) -> None:
        for stored_s, sent_s, session in list(worker.on_its_way):
            if stored_s > self.now_s:
                continue
            worker.on_its_way.clear()
            is_first = session.session != worker.leased
            ends_s = sent_s + LEASE_S if is_first else worker.lease_until_s
            self.coordination.append((sent_s, session))
            if self.now_s < ends_s:
                worker.leased, worker.lease_until_s = session.session, sent_s + LEASE_S
        if not worker.on_its_way:
            if self.now_s >= worker.lease_until_s:
                worker.sessions += 1
                worker.session = f"{worker.name}-{worker.sessions}"
            is_slow = is_troubled and self.random.random() < 0.05
            takes_s = self.random.uniform(0, 5.0) if is_slow else 0.5
            beat = (self.now_s + takes_s, self.now_s, Session(worker.name, worker.session))
            worker.on_its_way.append(beat)
        is_behind = is_troubled and self.random.random() < 0.3
        worker.read = self.random.randint(worker.read, len(self.log)) if is_behind else 10**9
        worker.read = min(worker.read, len(self.log))

    def _lead(self) -> None:
        for sent_s, session in self.coordination[self.acknowledged :]:
            self.sessions.heard(session, self.now_s)
            if session.worker == self.leader.name:
                self.sessions.caught_up(sent_s)
        self.acknowledged = len(self.coordination)
        self.sessions.forget()
        table = self.table()
        ended = {
            name
            for name, assigned in table.items()
            for worker in self.workers
            if worker.name == assigned.worker and not worker.is_paused
            # Its answer counts where it has read the whole log.
            if worker.read == len(self.log) and name not in self.running(worker)
            if assigned.is_stopped
        }
        orders = decide(
            Facts(self.functions, table, self.sessions, ended, self.draining, balances=True)
        )
        self.log += [(each.instance, each) for each in orders.assign]
        self.log += [(name, None) for name in orders.remove]
        self.moves += len(orders.assign) + len(orders.remove)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_runs_twice_and_everything_runs_in_the_end(seed: int) -> None:
    cluster = Cluster(seed)
    for _ in range(TROUBLE_TICKS):
        cluster.tick(is_troubled=True)
    cluster.calm()
    for _ in range(CALM_TICKS):
        cluster.tick(is_troubled=False)

    wanted = {
        InstanceName(function, number)
        for function, metadata in cluster.functions.items()
        for number in range(metadata.functionDetails.parallelism)
    }
    assert cluster.check() == wanted
    loads = [len(cluster.running(worker)) for worker in cluster.workers]
    assert max(loads) - min(loads) <= 1
    moved = cluster.moves
    cluster.tick(is_troubled=False)
    assert cluster.moves == moved
