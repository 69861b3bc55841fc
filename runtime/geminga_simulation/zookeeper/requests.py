"""What is on its way between a client and the simulated ZooKeeper, and where it arrives: requests,
the watches that they leave, the servers' copies of the tree, and what a server is to a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Protocol

from geminga_runtime.coordination import CoordinationError, OnChange
from geminga_simulation.conditions import CoordinationConditions
from geminga_simulation.event_loop.loop import SimulatedLoop
from geminga_simulation.zookeeper.node_tree import Event, NodeTree
from geminga_simulation.zookeeper.write_troubles import Trouble, WriteTroubles

if TYPE_CHECKING:
    from geminga_simulation.zookeeper.session import SimulatedSession


class Watch:
    """Somebody wants to hear of the next change, once."""

    __slots__ = ("is_spent", "on_change", "session")

    def __init__(self, session: SimulatedSession, on_change: OnChange) -> None:
        self.session = session
        self.on_change = on_change
        self.is_spent = False


class Request:
    """One question on its way: what the server does for it, and who waits for the answer.

    ``work`` is done to the tree that the server has. ``verb`` says what a write does to the node at
    ``path``; it is empty where nothing is written. ``trouble`` is what the server will do to it.
    ``watch`` is left there, on the node or on the list of its children.
    """

    __slots__ = (
        "future",
        "path",
        "timer",
        "trouble",
        "verb",
        "watch",
        "watches_children",
        "work",
    )

    def __init__(
        self,
        path: str,
        work: Callable[[NodeTree], object],
        future: asyncio.Future[object],
        watch: Watch | None,
        *,
        verb: str,
        watches_children: bool,
    ) -> None:
        self.path = path
        self.verb = verb
        self.trouble: Trouble | None = None
        self.work = work
        self.future = future
        self.watch = watch
        self.watches_children = watches_children
        self.timer: asyncio.TimerHandle | None = None

    def settle(self, result: object, error: CoordinationError | None) -> None:
        """Answer it, unless nobody waits any more."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)


class Replica:
    """The tree as a server of the ensemble has it, and the watches that its clients left there."""

    def __init__(self, tree: NodeTree) -> None:
        self.tree = tree
        self.value_watches: dict[str, list[Watch]] = {}
        self.children_watches: dict[str, list[Watch]] = {}

    def watch(self, request: Request, watch: Watch) -> None:
        """Leave a watch."""
        watches = self.children_watches if request.watches_children else self.value_watches
        watches.setdefault(request.path, []).append(watch)

    def spend(self, event: Event, path: str) -> list[Watch]:
        """Take away the watches on what has changed."""
        spent: list[Watch] = []
        if event is not Event.CHILDREN:
            spent += self.value_watches.pop(path, ())
        if event in (Event.CHILDREN, Event.DELETED):
            spent += self.children_watches.pop(path, ())
        return spent

    def forget(self, session: SimulatedSession) -> None:
        """The connection of a session is gone, and its watches with it."""
        for watches in (self.value_watches, self.children_watches):
            for path in [path for path, known in watches.items() if known]:
                watches[path] = [watch for watch in watches[path] if watch.session is not session]

    def move(self, other: Replica, sessions: Collection[SimulatedSession]) -> None:
        """Let another server have the watches of these sessions."""
        for mine, theirs in (
            (self.value_watches, other.value_watches),
            (self.children_watches, other.children_watches),
        ):
            for path, watches in mine.items():
                moved = [watch for watch in watches if watch.session in sessions]
                if moved:
                    mine[path] = [watch for watch in watches if watch.session not in sessions]
                    theirs.setdefault(path, []).extend(moved)


class Follower(Replica):
    """A server that has heard of no change since ``since_s``. Its clients, and no others, see the
    tree as it was; ``behind`` is what it does, in order, when it hears: events, answers to writes.
    """

    def __init__(self, tree: NodeTree, since_s: float) -> None:
        super().__init__(tree)
        self.since_s = since_s
        self.behind: list[Callable[[], None]] = []


class Server(Protocol):
    """ZooKeeper, as its sessions see it: ``SimulatedZooKeeper``, where each is explained."""

    loop: SimulatedLoop
    random: Random
    conditions: CoordinationConditions
    context: Context
    troubles: WriteTroubles
    leader: Replica
    isolated_hosts: dict[str, None]
    is_away: bool

    def begin(self) -> int:
        """Begin a session; its id."""
        ...

    def is_alive(self, session_id: int) -> bool:
        """Whether the session has not ended."""
        ...

    def end(self, session_id: int) -> None:
        """End a session at its own wish."""
        ...

    def expire(self, client: SimulatedSession) -> None:
        """End a session, and its connection."""
        ...

    def count_silence(self, session_id: int, timeout_s: float) -> float:
        """Count from now on how long a session is silent; how long it has been already."""
        ...

    def stop_silence(self, session_id: int) -> None:
        """It is heard of again."""
        ...

    def delay_s(self) -> float:
        """How long the next message takes."""
        ...

    def replica_for(self, client: SimulatedSession) -> Replica:
        """Which server a session connects to that goes on."""
        ...
