"""Elects the auditor: one of all recovery daemons of the cluster, ours and Java's.

BookKeeper elects by ephemeral sequential nodes, the votes: the lowest wins, and each daemon watches
the vote before its own (``ZkLedgerAuditorManager``). Pulsar's metadata driver elects by one
ephemeral node instead (``PulsarLedgerAuditorManager``). The winner of the votes here then takes
that node too, so that there is one auditor whatever else runs on the same ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

from geminga_autorecovery.zookeeper.children import children_of
from geminga_autorecovery.zookeeper.watches import Watches
from geminga_protocol.records.ledgers.underreplication import (
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

# Below /ledgers/underreplication, while three daemons run:
#
#     auditorelection/V_0000000003    of bookie-2: the lowest, so it has won, and takes ``leader``
#     auditorelection/V_0000000004    of bookie-1, which watches V_0000000003
#     auditorelection/V_0000000007    of bookie-3, which watches V_0000000004
#     leader                          of bookie-2, or of one of Pulsar's daemons
#
# All are ephemeral: when bookie-2 is lost, V_0000000003 goes with its session, and bookie-1, which
# alone is woken by that, becomes the auditor.

# Votes are watched; they are read again after so long in case a watch was missed.
RECHECK_S = 60.0
# Stopping waits no longer for ZooKeeper: the end of the session withdraws the vote as well.
LEAVE_TIMEOUT_S = 1.0


class Election(Service):
    """One candidate, which does ``work`` whenever, and for as long as, it is the auditor.

    ``work`` should not end; it is cancelled when the election is lost, or the session is in doubt.
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
        # How often this daemon tried to become the auditor, and whether it is.
        self.attempts = 0
        self.is_auditor = False
        self._coordination = coordination
        self._bookie_id = bookie_id
        self._work = work
        self._retry_s = retry_s
        self._watches = Watches(coordination)
        # The path of our vote, as far as we know of it. None before the first vote and after its
        # session has ended. While a creation has had no answer yet there may be a vote of ours that
        # this does not know.
        self._vote: str | None = None
        # ``work``, in the term that is, or was the last.
        self._working: asyncio.Task[object] | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._leave)
        self._coordination.on_session(self._session_changed)
        self.spawn_lasting(self._run, name="auditor election")

    async def _run(self) -> None:
        while True:
            # Counted for metrics: many attempts with no term mean that ZooKeeper is unwell.
            self.attempts += 1
            try:
                # Over and over:
                #
                #     vote --> ours is the lowest --> the leader node is ours --> work
                #       ^                                                           |
                #       +-- a node is lost, the session in doubt, the work over <---+
                await self._win()
                await self._serve()
            except CoordinationError as error:
                log.info("election goes on later", extra={"error": str(error)})
            # Also after a lost term: work that fails at once must not be begun in a tight loop.
            await asyncio.sleep(self._retry_s)

    async def _leave(self) -> None:
        """Withdraw, so that other daemons need not wait for the end of our session."""
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
                # In this order, votes first: all of our daemons queue at the votes, and only the
                # first of them competes with Pulsar's for the node.
                if await self._take_leader_node():
                    # As BookKeeper does: tools read the auditor's name there.
                    await self._coordination.set(VOTES_PATH, encode_vote(self._bookie_id))
                    return
            else:
                # The later node (Pulsar's) is never kept while the earlier one (the lowest vote) is
                # still wanted: so no two daemons can wait for each other.
                await self._delete_if_ours(LEADER_PATH)
                # The watch and the look are one request, so that a vote which goes in between
                # cannot be missed.
                stat = await self._watches.exists(before)
                if stat is None:
                    continue
                if stat.ephemeral_owner == self._coordination.session_id:
                    # A vote of ours whose creation got no answer: no candidate stands behind it.
                    await self._delete_if_ours(before)
                    continue
            await self._watches.wait(RECHECK_S)

    async def _serve(self) -> None:
        """Work as long as our vote and the leader node are ours."""
        log.info("this bookie is the auditor", extra={"bookie": self._bookie_id})
        # Only now: both nodes are ours, and have been since the last look.
        self.is_auditor = True
        task = self._working = self.spawn(self._work(), name="auditor")
        # Work that ends by itself, by a mistake or by ``_session_changed``, ends the term.
        task.add_done_callback(lambda _: self._watches.wake())
        try:
            while True:
                self._watches.begin()
                # Both nodes are looked at anew after each change, and once in a while in any case.
                # In between the session keeps them: they cannot go without it, except by hand.
                if task.done() or not await self._is_still_auditor():
                    break
                await self._watches.wait(RECHECK_S)
        finally:
            self.is_auditor = False
            task.cancel()
            # The next election begins when nothing of this term goes on any more.
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
        """The vote right before ours, which must go before ours wins; None where ours is the
        lowest.

        Votes first, unless there is a vote of this session already: one whose creation got no
        answer.
        """
        if self._vote is None:
            for name in await self._names():
                path = f"{VOTES_PATH}/{name}"
                if await self._is_ours(path):
                    self._vote = path
                    break
            else:
                self._vote = await self._coordination.create(
                    f"{VOTES_PATH}/{VOTE_PREFIX}",
                    encode_vote(self._bookie_id),
                    ephemeral=True,
                    sequential=True,
                    make_parents=True,
                )
        # Listed after the vote was cast, so that of two daemons that vote at once each sees the
        # other.
        names = await self._names()
        own_name = self._vote.rpartition("/")[2]
        if own_name not in names:
            # Gone with its session, or deleted by an operator: the next attempt votes again.
            self._vote = None
            raise NodeMissing(own_name)
        # Only the vote right before ours is watched: when the auditor is lost, one daemon wakes and
        # not all (upstream watches alike).
        own = names.index(own_name)
        return f"{VOTES_PATH}/{names[own - 1]}" if own else None

    async def _take_leader_node(self) -> bool:
        """Whether the node of Pulsar's election is ours; wakes when it changes."""
        stat = await self._watches.exists(LEADER_PATH)
        if stat is not None:
            return stat.ephemeral_owner == self._coordination.session_id
        # Between the two another daemon may have taken it; the watch of ``exists`` then fires.
        try:
            await self._coordination.create(
                LEADER_PATH, encode_leader(self._bookie_id), ephemeral=True
            )
        except NodeExists:
            return False
        return True

    async def _is_ours(self, path: str) -> bool:
        # By the session and not by the name in the node: a daemon that was restarted has the same
        # name, and its old nodes go with its old session.
        stat = await self._coordination.exists(path)
        return stat is not None and stat.ephemeral_owner == self._coordination.session_id

    async def _delete_if_ours(self, path: str) -> None:
        if await self._is_ours(path):
            with suppress(NodeMissing):
                await self._coordination.delete(path)

    async def _names(self) -> list[str]:
        """All votes, the lowest first."""
        return votes_in_order(await children_of(self._coordination.children, VOTES_PATH))

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            # It went with the session.
            self._vote = None
        elif state is SessionState.DOUBTFUL and self._working is not None:
            # Our session may expire unnoticed, and another daemon be elected.
            self._working.cancel()
        self._watches.wake()
