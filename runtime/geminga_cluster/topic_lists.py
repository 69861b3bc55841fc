"""The persistent topics of namespaces, followed as long as there is a follower.

One watch in ZooKeeper serves all followers of a namespace, whichever broker creates or deletes its
topics. Sessions decide what they pass on to clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from geminga_cluster.persistent_topics import domain_path
from geminga_cluster.watched import read_if_exists
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    OnChange,
    SessionState,
)
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# After a read, the next one waits four times as long as the read took, so that a namespace with
# very many topics takes at most a fifth of the time; and at most half a second, so that a change is
# reported within a second.
REST_FACTOR = 4.0
REST_S_MAX = 0.5
RETRY_S = 0.5

Names = frozenset[str]
OnTopics = Callable[[Names, Names], None]
"""Called with the names of the nodes of topics that were created, and of those deleted."""


@dataclass(slots=True, eq=False)
class FollowedList:
    """The topics of one namespace, and their followers."""

    # Done once ``names`` was read for the first time.
    is_read: asyncio.Future[None]
    names: Names = frozenset()
    # The list may have changed since it was read.
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    # In the order of following: a set's would differ from run to run of a simulation.
    followers: dict[OnTopics, None] = field(default_factory=dict["OnTopics", None])
    # How many follow the list or wait for its first read; without any it is dropped.
    users: int = 0
    # Reads the list, again after each change.
    task: asyncio.Task[object] | None = None


class TopicLists(Service):
    """The lists that have followers."""

    def __init__(self, coordination: Coordination) -> None:
        super().__init__()
        self._coordination = coordination
        # By namespace; one without followers is dropped at once, with its task and its watch.
        self.lists: dict[NamespaceName, FollowedList] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack
        self._coordination.on_session(self._session_changed)

    async def follow(self, namespace: NamespaceName, on_topics: OnTopics) -> Names:
        """Return the names of the nodes of a namespace's topics, and call ``on_topics`` when they
        change, until ``leave``. Waits until ZooKeeper answers."""
        followed = self.lists.get(namespace)
        if followed is None:
            first_read = asyncio.get_running_loop().create_future()
            followed = self.lists[namespace] = FollowedList(first_read)
            followed.task = self.spawn(
                self._run(namespace, followed), name=f"follow the topics of {namespace}"
            )
        # Before the wait: a follower that leaves meanwhile must not drop the list that this one
        # waits for.
        followed.users += 1
        try:
            # Shielded: one follower that gives up must not cancel the read of the others.
            await asyncio.shield(followed.is_read)
        except BaseException:
            self._release(namespace, followed)
            raise
        # No await between the two: the follower gets every change after the names returned here.
        followed.followers[on_topics] = None
        return followed.names

    def leave(self, namespace: NamespaceName, on_topics: OnTopics) -> None:
        """Call ``on_topics`` no more."""
        followed = self.lists[namespace]
        del followed.followers[on_topics]
        self._release(namespace, followed)

    def _release(self, namespace: NamespaceName, followed: FollowedList) -> None:
        followed.users -= 1
        # The watch stays in ZooKeeper until it fires once more, to no effect.
        if followed.users == 0:
            # A follower that comes later begins with a list, a task and a watch of its own.
            del self.lists[namespace]
            assert followed.task is not None
            followed.task.cancel()

    async def _run(self, namespace: NamespaceName, followed: FollowedList) -> None:
        loop = asyncio.get_running_loop()
        # There is no such node before the first topic is created in the namespace.
        path = domain_path(namespace, "persistent")

        async def children(path: str, on_change: OnChange) -> list[str]:
            return await self._coordination.children(path, on_change=on_change)

        while True:
            # Before the read, which leaves the watch: a change during it is not missed.
            followed.changed.clear()
            began_s = loop.time()
            try:
                found = await read_if_exists(
                    self._coordination, path, children, followed.changed.set
                )
            except CoordinationError as error:
                log.info(
                    "topics not listed", extra={"namespace": str(namespace), "error": str(error)}
                )
                await asyncio.sleep(RETRY_S)
                continue
            # A topic that was created and deleted since the last read is in neither difference.
            before, names = followed.names, frozenset(found or ())
            # Before the followers are called: one that comes in a call begins with these names.
            followed.names = names
            added, removed = names - before, before - names
            if not followed.is_read.done():
                # Those that wait in ``follow`` take ``names`` as they are when they run on.
                followed.is_read.set_result(None)
            elif added or removed:
                for on_topics in list(followed.followers):  # one of them may leave meanwhile
                    on_topics(added, removed)
            # A change during this rest is kept by the event, and read at its end.
            await asyncio.sleep(min((loop.time() - began_s) * REST_FACTOR, REST_S_MAX))
            await followed.changed.wait()

    def _session_changed(self, state: SessionState) -> None:
        """Read all lists again when there is a connection: changes may have gone unseen."""
        if state is SessionState.CONNECTED:
            for followed in self.lists.values():
                followed.changed.set()
