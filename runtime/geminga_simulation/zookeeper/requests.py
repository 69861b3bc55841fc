"""What travels from a client to the simulated ZooKeeper, and where it arrives: requests, watches
that they leave, and the copies of the tree that servers have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from geminga_runtime.coordination import CoordinationError, OnChange
from geminga_simulation.zookeeper.node_tree import Event, NodeTree
from geminga_simulation.zookeeper.write_troubles import Trouble

if TYPE_CHECKING:
    from geminga_simulation.zookeeper.link import SessionLink


@dataclass(slots=True, eq=False)
class Watch:
    """The callback of a session for the next change of a node; called at most once."""

    session: SessionLink
    on_change: OnChange
    # It was called, or its session gave up waiting for the request that set it.
    is_spent: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    """One request on its way: what the server does for it, and the future of its answer."""

    path: str
    # What a write does to the node at ``path`` (``set``); empty where nothing is written.
    verb: str
    # Done to the tree of the server that the request arrives at.
    work: Callable[[NodeTree], object]
    future: asyncio.Future[object]
    # Left at the server, on the node or on the list of its children.
    watch: Watch | None
    watches_children: bool
    # What goes wrong with a write; chosen when it is sent.
    trouble: Trouble | None = None
    # Ends the wait for an answer.
    timer: asyncio.TimerHandle | None = None

    def settle(self, result: object, error: CoordinationError | None) -> None:
        """Answer the request, unless its caller has given up."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class Replica:
    """The tree as a server of the ensemble has it, and the watches that its clients left there."""

    tree: NodeTree
    # By path, each list in the order in which the watches were set.
    value_watches: dict[str, list[Watch]] = field(default_factory=dict[str, list[Watch]])
    children_watches: dict[str, list[Watch]] = field(default_factory=dict[str, list[Watch]])

    def spend(self, event: Event, path: str) -> list[Watch]:
        """Take away and return the watches that an event fires."""
        # As in ZooKeeper: a deletion fires watches on the value, and those on the children, too.
        # Taken out before any of them is sent: a watch fires once.
        spent: list[Watch] = []
        if event is not Event.CHILDREN:
            spent += self.value_watches.pop(path, ())
        if event in (Event.CHILDREN, Event.DELETED):
            spent += self.children_watches.pop(path, ())
        return spent

    def forget(self, session: SessionLink) -> None:
        """Drop the watches of a session whose connection is gone."""
        # Empty lists are kept, and passed over here: most paths are watched again soon.
        for watches in (self.value_watches, self.children_watches):
            for path in [path for path, known in watches.items() if known]:
                watches[path] = [watch for watch in watches[path] if watch.session is not session]

    def move(self, other: Replica, sessions: Collection[SessionLink]) -> None:
        """Hand the watches of these sessions over to another server."""
        for mine, theirs in (
            (self.value_watches, other.value_watches),
            (self.children_watches, other.children_watches),
        ):
            for path, watches in mine.items():
                moved = [watch for watch in watches if watch.session in sessions]
                if moved:
                    mine[path] = [watch for watch in watches if watch.session not in sessions]
                    theirs.setdefault(path, []).extend(moved)


@dataclass(slots=True, eq=False, kw_only=True)
class Follower(Replica):
    """A server that has learned of no change since ``since_s``, in virtual time. Only its own
    clients see the tree as it was then."""

    since_s: float
    # What it does, in this order, once it learns of the changes: events, answers to writes.
    behind: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
