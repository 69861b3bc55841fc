"""Leader election: the leader is the candidate whose session holds an ephemeral node.

A candidate claims the node when it opens, and again whenever the node is gone. It leads from the
moment that the node is its session's until it closes, the node is another session's, or its own
session is in doubt: that is reported before ZooKeeper could give the node to another candidate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Generic, TypeVar

from geminga_cluster.claims import claim
from geminga_cluster.watched import watched_values
from geminga_protocol.records.encodings.json_records import JsonRecord
from geminga_runtime.coordination import Coordination, CoordinationError, SessionState
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

RecordT = TypeVar("RecordT", bound=JsonRecord)
OnLeading = Callable[[bool], None]
"""Called with whether this candidate leads, whenever that changes."""


# What ends a leadership, and when the candidate claims the node again:
#
#     the node is another session's     when the node is gone: the claim left a watch on it
#     the session is in doubt           when it is connected again
#     the candidate closes              never
class LeaderElection(Service, Generic[RecordT]):
    """One candidate. Opening takes part in the election, closing withdraws from it."""

    def __init__(
        self,
        coordination: Coordination,
        path: str,
        record: RecordT,
        *,
        is_past: Callable[[RecordT], bool],
        on_leading: OnLeading,
    ) -> None:
        """``record`` identifies this candidate in the node ``path``; ``is_past`` recognises the
        record of an earlier life of it, whose node it takes over."""
        super().__init__()
        self._coordination = coordination
        self._path = path
        self._record = record
        self._decode = type(record).decode
        self._is_past = is_past
        # Called in the same turn in which ``is_leader`` changes, so that the two never disagree.
        self._on_leading = on_leading
        # Whether this candidate leads.
        self.is_leader = False
        # The record in the node, for those who only ask who leads.
        self._leader = watched_values(coordination, self._decode)
        # Counts doubts of the session. A claim that was made before the last doubt proves nothing:
        # ZooKeeper may have given the node to another candidate since.
        self._doubts = 0
        # One attempt at a time: a second one would see the node of the first.
        self._running = asyncio.Lock()

    async def leader(self) -> RecordT | None:
        """The leader's record; None between two leaders. Raises ``CoordinationError``."""
        # Cached under a watch: brokers ask for the leader at each placement.
        return await self._leader.get(self._path)

    async def _open(self, stack: AsyncExitStack) -> None:
        # Before the first claim: a session that is lost during it must count as a doubt.
        self._coordination.on_session(self._session_changed)
        stack.push_async_callback(self._withdraw)
        await self._run()

    async def _run(self) -> None:
        """Become the leader if there is none. In any case the claim leaves a watch on the node."""
        async with self._running:
            # Noted before the claim is sent, compared when its answer is there.
            doubts = self._doubts
            node = await claim(
                self._coordination,
                self._path,
                self._record.encode(),
                is_stale=lambda value: self._is_past(self._decode(value)),
                on_change=self._run_again_soon,
            )
            # A claim that a doubt overtook is made again when the session is connected again.
            self._set_leading(is_leader=node.is_ours and doubts == self._doubts)

    def _set_leading(self, *, is_leader: bool) -> None:
        # Only changes are reported: claims are repeated for other reasons, too.
        if self.is_leader != is_leader:
            self.is_leader = is_leader
            self._on_leading(is_leader)

    def _run_again_soon(self) -> None:
        # A watch may still fire while the candidate withdraws, when no task may begin any more.
        if not self._is_closing:
            # A task, because a watch is called on the loop and a claim takes requests.
            self.spawn(self._run_again(), name=f"elect the leader of {self._path}")

    async def _run_again(self) -> None:
        """Claim again. If the connection is lost meanwhile, this runs again when it is back."""
        try:
            await self._run()
        except GemingaError as error:
            log.info("leader not elected", extra={"path": self._path, "why": str(error)})

    def _session_changed(self, state: SessionState) -> None:
        if state in (SessionState.DOUBTFUL, SessionState.EXPIRED):
            # A claim under way is worth nothing from here on, even if its answer comes.
            self._doubts += 1
            self._set_leading(is_leader=False)
        elif state is SessionState.CONNECTED:
            # The watch on the node was lost with the connection, and so may the node be.
            self._run_again_soon()

    async def _withdraw(self) -> None:
        """Delete the node on closing: others need not wait until the session has timed out."""
        # No claim is under way: a service ends its tasks before it closes what it opened.
        if self.is_leader:
            # First: another candidate may lead as soon as the node is gone.
            self._set_leading(is_leader=False)
            with suppress(CoordinationError):
                await self._coordination.delete(self._path)
