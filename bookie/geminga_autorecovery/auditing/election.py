"""Who is the auditor: one of all recovery daemons of the cluster, ours and Java's.

BookKeeper elects by ephemeral sequential votes, the lowest wins, everybody watches the one before
its own (``ZkLedgerAuditorManager``). Pulsar's metadata driver elects by one ephemeral node instead
(``PulsarLedgerAuditorManager``). Whoever wins the votes here then takes that node too, so that
there is one auditor whatever else runs on the same ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

from geminga_autorecovery.zookeeper.watches import Watches
from geminga_protocol.records.underreplication import (
    LEADER_PATH,
    VOTE_PREFIX,
    VOTES_PATH,
    encode_leader,
    encode_vote,
    votes_in_order,
)
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeExists,
    NodeMissing,
    SessionState,
)
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# A watch should tell; this is for one that was missed.
RECHECK_S = 60.0
LEAVE_TIMEOUT_S = 1.0


class Election(Service):
    """One candidate, which does ``work`` whenever, and for as long as, it is the auditor.

    ``work`` should not end; it is cancelled when the election is lost, or the session in doubt.
    """

    def __init__(
        self,
        coordination: Coordination,
        bookie_id: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        retry_s: float,
    ) -> None:
        super().__init__()
        self.attempts = 0
        self.is_auditor = False
        self._coordination = coordination
        self._bookie_id = bookie_id
        self._work = work
        self._retry_s = retry_s
        self._watches = Watches(coordination)
        self._vote: str | None = None
        self._working: asyncio.Task[object] | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._leave)
        self._coordination.on_session(self._session_changed)
        self.spawn_lasting(self._stand, name="auditor election")

    async def _stand(self) -> None:
        while True:
            self.attempts += 1
            try:
                await self._win()
                await self._serve()
            except CoordinationError as error:
                log.info("election goes on later", extra={"error": str(error)})
            await asyncio.sleep(self._retry_s)

    async def _leave(self) -> None:
        """Withdraw, so that others need not wait for the end of our session."""
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                if self._vote is not None:
                    await self._delete_if_ours(self._vote)
                await self._delete_if_ours(LEADER_PATH)
        except (CoordinationError, TimeoutError) as error:
            log.info("vote stays till its session ends", extra={"error": repr(error)})

    async def _win(self) -> None:
        """Return as the auditor."""
        while True:
            self._watches.begin()
            before = await self._vote_before_ours()
            if before is None:
                if await self._take_leader_node():
                    await self._coordination.set(VOTES_PATH, encode_vote(self._bookie_id))
                    return
            elif not await self._is_in_our_way(before):
                continue
            await self._watches.wait(RECHECK_S)

    async def _is_in_our_way(self, before: str) -> bool:
        """Whether a vote before ours is still there and another's; wakes when it goes."""
        # Of two nodes the later is never kept while the earlier is wanted: nobody waits in a ring.
        await self._delete_if_ours(LEADER_PATH)
        stat = await self._watches.exists(before)
        if stat is not None and stat.ephemeral_owner == self._coordination.session_id:
            # Its making got no answer, and it was made after all: a vote that nobody serves.
            await self._delete_if_ours(before)
            return False
        return stat is not None

    async def _serve(self) -> None:
        """Work until the votes, or our session, are not what they were."""
        log.info("this bookie is the auditor", extra={"bookie": self._bookie_id})
        self.is_auditor = True
        task = self._working = self.spawn(self._work(), name="auditor")
        task.add_done_callback(lambda _: self._watches.wake())
        try:
            while True:
                self._watches.begin()
                if task.done() or not await self._is_still_auditor():
                    break
                await self._watches.wait(RECHECK_S)
        finally:
            self.is_auditor = False
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is not None:
                self.faults += 1
            log.info("this bookie is the auditor no more", extra={"bookie": self._bookie_id})

    async def _is_still_auditor(self) -> bool:
        if self._vote is None:
            return False
        for path in (self._vote, LEADER_PATH):
            stat = await self._watches.exists(path)
            if stat is None or stat.ephemeral_owner != self._coordination.session_id:
                return False
        return True

    async def _vote_before_ours(self) -> str | None:
        """The vote that must go before ours wins; None where ours is the lowest."""
        if self._vote is None:
            self._vote = await self._find_or_cast()
        # Listed after the vote was cast, so that both of two who vote at once see the other.
        names = await self._names()
        own_name = self._vote.rpartition("/")[2]
        if own_name not in names:
            self._vote = None
            raise NodeMissing(own_name)
        own = names.index(own_name)
        return f"{VOTES_PATH}/{names[own - 1]}" if own else None

    async def _find_or_cast(self) -> str:
        """Vote, unless there is a vote of this session, whose making got no answer."""
        for name in await self._names():
            if await self._is_ours(f"{VOTES_PATH}/{name}"):
                return f"{VOTES_PATH}/{name}"
        return await self._coordination.create(
            f"{VOTES_PATH}/{VOTE_PREFIX}",
            encode_vote(self._bookie_id),
            ephemeral=True,
            sequential=True,
            make_parents=True,
        )

    async def _take_leader_node(self) -> bool:
        """Whether the node of Pulsar's election is ours; wakes when it changes."""
        stat = await self._watches.exists(LEADER_PATH)
        if stat is not None:
            return stat.ephemeral_owner == self._coordination.session_id
        try:
            await self._coordination.create(
                LEADER_PATH, encode_leader(self._bookie_id), ephemeral=True
            )
        except NodeExists:
            return False
        return True

    async def _is_ours(self, path: str) -> bool:
        stat = await self._coordination.exists(path)
        return stat is not None and stat.ephemeral_owner == self._coordination.session_id

    async def _delete_if_ours(self, path: str) -> None:
        if await self._is_ours(path):
            with suppress(NodeMissing):
                await self._coordination.delete(path)

    async def _names(self) -> list[str]:
        """All votes, the lowest first."""
        try:
            return votes_in_order(await self._coordination.children(VOTES_PATH))
        except NodeMissing:
            return []

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._vote = None
        elif state is SessionState.DOUBTFUL and self._working is not None:
            # ZooKeeper may have another elected next, and does not answer whether it has.
            self._working.cancel()
        self._watches.wake()
