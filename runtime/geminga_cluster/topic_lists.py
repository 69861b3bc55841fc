"""Which persistent topics a namespace has, followed while somebody wants to hear of it.

One watch in ZooKeeper serves all who follow a namespace, whichever broker makes or deletes its
topics. What clients are told of it is the business of their sessions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack

from geminga_cluster.persistent_topics import domain_path
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeMissing,
    OnChange,
    SessionState,
)
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# After a read the next change is left alone for as long as the read took four times, so that
# namespaces with very many topics take a fifth of the time at most, and still a change is told
# within a second.
REST_FACTOR = 4.0
REST_S_MAX = 0.5
RETRY_S = 0.5

Names = frozenset[str]
OnTopics = Callable[[Names, Names], None]
"""Called with the nodes' names of the topics that have come and of those that have gone."""


class _FollowedList:
    """The names of one namespace's topics. ``claims`` are those who follow it or wait to."""

    def __init__(self) -> None:
        self.names: Names = frozenset()
        self.is_read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()
        # In the order of coming: a set's would differ from run to run of a simulation.
        self.followers: dict[OnTopics, None] = {}
        self.claims = 0
        self.task: asyncio.Task[object] | None = None


class TopicLists(Service):
    """The lists that are followed now, by namespace."""

    def __init__(self, coordination: Coordination) -> None:
        super().__init__()
        self._coordination = coordination
        self._lists: dict[NamespaceName, _FollowedList] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack
        self._coordination.on_session(self._session_changed)

    @property
    def followed_count(self) -> int:
        """How many namespaces are followed."""
        return len(self._lists)

    async def follow(self, namespace: NamespaceName, on_topics: OnTopics) -> Names:
        """The nodes' names of the namespace's topics; ``on_topics`` is called when they change.

        ZooKeeper is asked until it answers. ``leave`` ends it.
        """
        followed = self._lists.get(namespace)
        if followed is None:
            followed = self._lists[namespace] = _FollowedList()
            followed.task = self.spawn(
                self._run(namespace, followed), name=f"follow the topics of {namespace}"
            )
        followed.claims += 1
        try:
            await asyncio.shield(followed.is_read)
        except BaseException:
            self._give_up(namespace, followed)
            raise
        followed.followers[on_topics] = None
        return followed.names

    def leave(self, namespace: NamespaceName, on_topics: OnTopics) -> None:
        """``on_topics`` wants to hear no more."""
        followed = self._lists[namespace]
        del followed.followers[on_topics]
        self._give_up(namespace, followed)

    def _give_up(self, namespace: NamespaceName, followed: _FollowedList) -> None:
        followed.claims -= 1
        if followed.claims == 0:
            del self._lists[namespace]
            assert followed.task is not None
            followed.task.cancel()

    async def _run(self, namespace: NamespaceName, followed: _FollowedList) -> None:
        loop = asyncio.get_running_loop()
        while True:
            followed.changed.clear()
            began_s = loop.time()
            try:
                names = await self._read(namespace, followed.changed.set)
            except CoordinationError as error:
                log.info(
                    "topics not listed", extra={"namespace": str(namespace), "error": str(error)}
                )
                await asyncio.sleep(RETRY_S)
                continue
            self._tell(followed, names)
            await asyncio.sleep(min((loop.time() - began_s) * REST_FACTOR, REST_S_MAX))
            await followed.changed.wait()

    async def _read(self, namespace: NamespaceName, on_change: OnChange) -> Names:
        path = domain_path(namespace, "persistent")
        while True:
            try:
                return frozenset(await self._coordination.children(path, on_change=on_change))
            except NodeMissing:
                # A read of a missing node leaves no watch; created in between, it is read again.
                if await self._coordination.exists(path, on_change=on_change) is None:
                    return frozenset()

    def _tell(self, followed: _FollowedList, names: Names) -> None:
        before, followed.names = followed.names, names
        if not followed.is_read.done():
            followed.is_read.set_result(None)
            return
        added, removed = names - before, before - names
        if added or removed:
            for on_topics in list(followed.followers):
                on_topics(added, removed)

    def _session_changed(self, state: SessionState) -> None:
        """Watches do not outlive a session, and what changed meanwhile was not told."""
        if state is SessionState.CONNECTED:
            for followed in self._lists.values():
                followed.changed.set()
