"""Where this bookie is: an ephemeral node below ``/ledgers/available`` for as long as it lives.

A read-only bookie has its node below ``readonly`` instead, where writers do not look. A new session
with ZooKeeper gets a new node. What an earlier run of this bookie left behind is taken over at
once, instead of waiting for its session to expire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH, READ_ONLY_PATH, BookieInfo
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeMissing,
    SessionState,
    take_over_ephemeral,
)
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# After a failure of ZooKeeper's. Reads and adds go on meanwhile.
RETRY_S = 1.0
LEAVE_TIMEOUT_S = 1.0


class Registration(Service):
    """Keeps the node of bookie ``bookie_id`` where ``is_read_only`` says it belongs.

    Taking a node over is sound because the process holds the lock of the bookie's directory: no
    other process has this id.
    """

    def __init__(
        self,
        coordination: Coordination,
        bookie_id: str,
        address: BookieInfo,
        *,
        is_read_only: Callable[[], bool],
    ) -> None:
        super().__init__()
        self._coordination = coordination
        self._bookie_id = bookie_id
        # What the node holds.
        self._value = address.encode()
        self._is_read_only = is_read_only
        # Something has changed that the node may have to follow.
        self._is_wanted = asyncio.Event()
        self._is_open = False
        self._has_lost_session = False
        # The node and the session that it is of, as our log said last.
        self._reported: tuple[str, int] | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        self._is_open = True
        stack.push_async_callback(self._leave)
        # Listening begins before the first registration, so that a session which ends in the middle
        # of it is noticed.
        self._coordination.on_session(self._session_changed)
        await self._register()
        self.spawn_lasting(self._register_when_wanted, name="registration")

    def review(self) -> None:
        """Check again where the node belongs: the bookie became read-only, or writable again."""
        self._is_wanted.set()

    def announce(self, address: BookieInfo) -> None:
        """Publish this address from now on."""
        self._value = address.encode()
        self._is_wanted.set()

    def _session_changed(self, state: SessionState) -> None:
        # ZooKeeper has deleted the node with the session. A session that was only disconnected
        # keeps its node, and nothing has to be done.
        if state is SessionState.EXPIRED:
            self._has_lost_session = True
        elif state is SessionState.CONNECTED and self._has_lost_session and self._is_open:
            self._has_lost_session = False
            self._is_wanted.set()

    async def _register_when_wanted(self) -> None:
        while True:
            await self._is_wanted.wait()
            # Before it is read what to register: what changes from here on sets it again.
            self._is_wanted.clear()
            try:
                await self._register()
            except CoordinationError as error:
                log.warning("bookie not registered yet", extra={"error": str(error)})
                self._is_wanted.set()
                await asyncio.sleep(RETRY_S)
            except Exception:
                # As lasting work this loop is started again, and must then try once more.
                self._is_wanted.set()
                raise

    async def _register(self) -> None:
        # This is read once. If it changes during the awaits below, ``review`` has asked for another
        # turn.
        is_read_only = self._is_read_only()
        here, elsewhere = (
            f"{AVAILABLE_PATH}/{self._bookie_id}",
            f"{READ_ONLY_PATH}/{self._bookie_id}",
        )
        if is_read_only:
            here, elsewhere = elsewhere, here
        # The new node first: in between the bookie has two, not none.
        await take_over_ephemeral(self._coordination, here, self._value)
        # Writers that see both nodes in between may choose a bookie that refuses their adds, and
        # replace it. With none they would take it for lost.
        await self._delete(elsewhere)
        reported, self._reported = self._reported, (here, self._coordination.session_id)
        # The same node of the same session only got another value, with the HTTP port, say.
        if reported != self._reported:
            log.info("bookie registered", extra={"node": here, "is_read_only": is_read_only})

    async def _delete(self, path: str) -> None:
        with suppress(NodeMissing):
            await self._coordination.delete(path)

    async def _leave(self) -> None:
        self._is_open = False
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                # Both nodes are deleted, as a move between them may have been cut short. Writers
                # stop choosing this bookie before its listener closes.
                await self._delete(f"{AVAILABLE_PATH}/{self._bookie_id}")
                await self._delete(f"{READ_ONLY_PATH}/{self._bookie_id}")
        except (CoordinationError, TimeoutError) as error:
            log.warning("bookie's node stays till its session ends", extra={"error": repr(error)})
