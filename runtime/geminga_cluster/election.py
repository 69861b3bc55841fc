"""One of many leads: whoever holds an ephemeral node that all of them watch.

A candidate claims the node when it opens, and again whenever the node is gone. It leads from the
moment the node is its session's until it closes, until the node is another's, or until the session
is in doubt: that is told before ZooKeeper could give the node to another candidate.
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
"""Called with whether this candidate leads now, whenever that has changed."""


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
        """``record`` says who this candidate is, as it stands in the node ``path``; ``is_past``
        tells the record of an earlier life of this candidate, whose node it takes over."""
        super().__init__()
        self._coordination = coordination
        self._path = path
        self._record = record
        self._decode = type(record).decode
        self._is_past = is_past
        self._on_leading = on_leading
        self._leader = watched_values(coordination, self._decode)
        self._is_leader = False
        self._doubts = 0  # tells an answer that came before the last doubt
        self._running = asyncio.Lock()

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads."""
        return self._is_leader

    async def leader(self) -> RecordT | None:
        """Who leads; None in the moment between two leaders. Raises ``CoordinationError``."""
        return await self._leader.get(self._path)

    async def _open(self, stack: AsyncExitStack) -> None:
        self._coordination.on_session(self._session_changed)
        stack.push_async_callback(self._withdraw)
        await self._run()

    async def _run(self) -> None:
        """Become the leader if there is none; in any case learn when there is none again."""
        async with self._running:
            doubts = self._doubts
            node = await claim(
                self._coordination,
                self._path,
                self._record.encode(),
                is_stale=lambda value: self._is_past(self._decode(value)),
                on_change=self._run_again_soon,
            )
            self._set_leading(is_leader=node.is_ours and doubts == self._doubts)

    def _set_leading(self, *, is_leader: bool) -> None:
        if self._is_leader != is_leader:
            self._is_leader = is_leader
            self._on_leading(is_leader)

    def _run_again_soon(self) -> None:
        if not self._is_closing:
            self.spawn(self._run_again(), name=f"elect the leader of {self._path}")

    async def _run_again(self) -> None:
        """Run again; a lost connection may break it off, and then it runs when that is back."""
        try:
            await self._run()
        except GemingaError as error:
            log.info("leader not elected", extra={"path": self._path, "why": str(error)})

    def _session_changed(self, state: SessionState) -> None:
        if state in (SessionState.DOUBTFUL, SessionState.EXPIRED):
            self._doubts += 1
            self._set_leading(is_leader=False)
        elif state is SessionState.CONNECTED:
            self._run_again_soon()

    async def _withdraw(self) -> None:
        """On closing: the others need not wait for the session's end to elect another leader."""
        if self._is_leader:
            self._set_leading(is_leader=False)
            with suppress(CoordinationError):
                await self._coordination.delete(self._path)
