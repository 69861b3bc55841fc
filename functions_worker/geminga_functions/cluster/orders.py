"""Which steps the leader takes now, from what is assigned towards what is to be. Pure.

An instance runs nowhere twice because an assignment is moved or removed only once the instance
surely runs no more: its worker said so, or its session is over. Everything that this needs stands
in the log of assignments, so that the next leader goes on where this one ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from geminga_functions.cluster.assignment import Assigned
from geminga_functions.cluster.schedule import schedule
from geminga_functions.cluster.sessions import Session, WorkerSessions
from geminga_functions.names import FunctionName, InstanceName
from geminga_protocol.functions.functions_pb2 import FunctionMetaData


@dataclass(frozen=True, slots=True)
class Facts:
    """What the leader knows when it decides.

    - ``functions``: what is to run, ``assigned``: where it runs now.
    - ``ended``: instances that are stopped in the log, and of which their worker said that it has
      read this and that they run no more.
    - ``draining``: workers that are to be left without instances.
    """

    functions: Mapping[FunctionName, FunctionMetaData]
    assigned: Mapping[InstanceName, Assigned]
    sessions: WorkerSessions
    ended: Collection[InstanceName]
    draining: Collection[str]
    balances: bool


@dataclass(frozen=True, slots=True)
class Orders:
    """What is to be published, and the workers that are to be asked what they still run."""

    assign: tuple[Assigned, ...]
    remove: tuple[InstanceName, ...]
    ask: tuple[str, ...]


def instances_of(functions: Mapping[FunctionName, FunctionMetaData]) -> Iterator[InstanceName]:
    """All instances that are to run, in their order."""
    for name in sorted(functions):
        for number in range(max(1, functions[name].functionDetails.parallelism)):
            yield InstanceName(name, number)


def decide(facts: Facts) -> Orders:
    """The steps that are safe now."""
    wanted = list(instances_of(facts.functions))
    sessions = facts.sessions
    workers = [worker for worker in sessions.workers() if worker not in facts.draining]
    # Where an instance may still run it stays, until that is known.
    places = {name: each.worker for name, each in facts.assigned.items()}
    kept = {
        each.worker
        for each in facts.assigned.values()
        if each.worker not in facts.draining
        and sessions.current(each.worker) is None
        and sessions.may_run(Session(each.worker, each.session))
    }
    targets = schedule(wanted, places, workers, kept=kept, balances=facts.balances)
    assign: list[Assigned] = []
    remove: list[InstanceName] = []
    ask: set[str] = set()
    is_wanted = set(wanted)
    for name in sorted(is_wanted.union(facts.assigned)):
        metadata = facts.functions[name.function] if name in is_wanted else None
        target = targets.get(name)
        session = None if target is None else sessions.current(target)
        new = None
        if metadata is not None and session is not None:
            new = Assigned(name, session.worker, session.session, metadata)
        old = facts.assigned.get(name)
        holder = None if old is None else Session(old.worker, old.session)
        if old is None or holder is None or not sessions.may_run(holder):
            if new is not None:
                assign.append(new)
            elif old is not None and metadata is None:
                remove.append(name)
        elif new is not None and holder == session:
            if old.metadata != new.metadata:
                assign.append(new)
        elif (new is not None or metadata is None) and sessions.current(old.worker) == holder:
            # It goes elsewhere, or is no more: first it must end. Of an earlier session of its
            # worker the lease ends by itself.
            if not old.is_stopped:
                assign.append(old.stopped())
            elif name not in facts.ended:
                ask.add(old.worker)
            elif new is not None:
                assign.append(new)
            else:
                remove.append(name)
    return Orders(tuple(assign), tuple(remove), tuple(sorted(ask)))
