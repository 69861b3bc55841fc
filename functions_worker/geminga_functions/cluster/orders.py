"""Decides the leader's next steps, from the present assignments towards the wanted ones. Pure.

No instance runs twice, because an assignment is moved or removed only once the instance has surely
ended: its worker said so, or its worker's session is over. Everything that this decision needs is
in the log of assignments, so the next leader continues where this one stopped.
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
    """What the leader knows when it decides."""

    # What should run, and what is assigned at present.
    functions: Mapping[FunctionName, FunctionMetaData]
    assigned: Mapping[InstanceName, Assigned]
    sessions: WorkerSessions
    # Instances that are stopped in the log, and whose worker has read this and has ended them.
    ended: Collection[InstanceName]
    # Workers that ask for no instances.
    draining: Collection[str]
    # Whether instances move so that all workers run equally many.
    balances: bool


@dataclass(frozen=True, slots=True)
class Orders:
    """What the leader does now."""

    # Assignments to publish, and those to remove.
    assign: tuple[Assigned, ...]
    remove: tuple[InstanceName, ...]
    # Workers to ask which instances still run there.
    ask: tuple[str, ...]


def instances_of(functions: Mapping[FunctionName, FunctionMetaData]) -> Iterator[InstanceName]:
    """All instances that should run, in the order of their names."""
    for name in sorted(functions):
        for number in range(max(1, functions[name].functionDetails.parallelism)):
            yield InstanceName(name, number)


def decide(facts: Facts) -> Orders:
    """The steps that are safe now."""
    # First: where should each instance run?
    wanted = list(instances_of(facts.functions))
    sessions = facts.sessions
    workers = [worker for worker in sorted(sessions.newest) if worker not in facts.draining]
    places = {name: each.worker for name, each in facts.assigned.items()}
    # A worker without a current session whose last one may still hold a lease is probably cut off
    # for a moment. Its instances stay until the lease has ended: it may come back.
    kept = {
        each.worker
        for each in facts.assigned.values()
        if each.worker not in facts.draining
        and each.worker not in sessions.newest
        and sessions.may_run(Session(each.worker, each.session))
    }
    # Of the places, not of the sessions: a worker in a new session gets its instances back.
    targets = schedule(wanted, places, workers, kept=kept, balances=facts.balances)
    # Then: which step towards that is safe?
    assign: list[Assigned] = []
    remove: list[InstanceName] = []
    ask: set[str] = set()
    # The life of an assignment, by the records that are published for it:
    #
    #   none -> assigned -> stopped -> assigned to the next worker
    #              |           |-----> removed, if the function was deleted
    #              +-> assigned anew, or removed: at once, if the session of its holder is over
    is_wanted = set(wanted)
    for name in sorted(is_wanted.union(facts.assigned)):
        metadata = facts.functions[name.function] if name in is_wanted else None
        target = targets.get(name)
        session = None if target is None else sessions.newest.get(target)
        new = None
        if metadata is not None and session is not None:
            new = Assigned(name, session.worker, session.session, metadata)
        old = facts.assigned.get(name)
        holder = None if old is None else Session(old.worker, old.session)
        if old is None or holder is None or not sessions.may_run(holder):
            # No process can run it: it may go anywhere.
            if new is not None:
                assign.append(new)
            elif old is not None and metadata is None:
                remove.append(name)
        elif new is not None and holder == session:
            # It stays, perhaps with a changed config. Published only if something differs: each
            # record wakes every worker.
            if old.metadata != new.metadata:
                assign.append(new)
        elif (new is not None or metadata is None) and sessions.newest.get(old.worker) == holder:
            # It moves, or its function was deleted: first it must end. (If the worker is already in
            # a later session, nothing needs to be published: the lease of ``holder`` ends by
            # itself.)
            if not old.is_stopped:
                assign.append(old.stopped())
            elif name not in facts.ended:
                ask.add(old.worker)
            elif new is not None:
                assign.append(new)
            else:
                remove.append(name)
    return Orders(tuple(assign), tuple(remove), tuple(sorted(ask)))
