"""A session with the simulated ZooKeeper, as code under test uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from geminga_runtime.coordination import (
    ANY_VERSION,
    MAKE_PARENTS_ATTEMPTS_MAX,
    ConnectionLost,
    CoordinationError,
    NodeExists,
    NodeMissing,
    NodeStat,
    OnChange,
    OnSession,
    Operation,
    check_size,
    operation_bytes,
)
from geminga_simulation.zookeeper.link import SessionLink
from geminga_simulation.zookeeper.node_tree import NodeTree

CONNECT_TIMEOUT_S = 10.0


class SimulatedSession(SessionLink):
    """A client's session: implements ``geminga_runtime.coordination.Coordination``.

    Usable at once; ``async with`` waits for the connection first and ends the session at the end.
    """

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                # Requests that are made before wait as well; this only tells that a ZooKeeper is
                # there.
                await self.connected.wait()
        except TimeoutError as error:
            raise ConnectionLost(f"no ZooKeeper answers {self.host}") from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the session at the server, if it can be reached; what still waits fails."""
        # Closed already, or its process died: then the session must time out, and not end now.
        if self.is_over:
            return
        # Behind all requests sent before; without a connection the session times out.
        if self.is_link_up:
            server, session_id = self.server, self.session_id
            # As a request, so that it arrives behind those that were sent before.
            goodbye = self.ask("/", lambda _: server.end(session_id))
            with suppress(CoordinationError):
                await goodbye
        # Before the rest fails: its callers may ask again, and get a refusal.
        self.finish()
        self.fail_all(ConnectionLost, "the session was closed")

    # --- Coordination -----------------------------------------------------------------------

    def on_session(self, callback: OnSession) -> None:
        """As ``Coordination.on_session``."""
        self.callbacks.append(callback)

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """As ``Coordination.create``."""
        check_size(path, len(value))

        def work(tree: NodeTree) -> str:
            # The session at the moment of arrival: a held request may be sent in a later one.
            owner = self.session_id if ephemeral else 0
            return tree.create(path, value, owner, is_sequential=sequential)

        for _ in range(MAKE_PARENTS_ATTEMPTS_MAX):
            try:
                # First without parents: mostly they are there.
                return await self.ask(path, work, verb="create")
            except NodeMissing:
                if not make_parents:
                    raise
            # Another client may delete parents between these steps: then it begins anew.
            names = path.split("/")[1:-1]
            # From the top down; the real adapter sends them one behind the other without waiting.
            for depth in range(1, len(names) + 1):
                with suppress(NodeExists, NodeMissing):
                    await self.create("/" + "/".join(names[:depth]))
        raise NodeMissing(path)

    async def get(self, path: str, *, on_change: OnChange | None = None) -> tuple[bytes, NodeStat]:
        """As ``Coordination.get``."""
        return await self.ask(path, lambda tree: tree.get(path), on_change)

    async def exists(self, path: str, *, on_change: OnChange | None = None) -> NodeStat | None:
        """As ``Coordination.exists``."""
        # A watch is left on a missing node, too: it fires when the node is created.
        return await self.ask(path, lambda tree: tree.exists(path), on_change)

    async def children(self, path: str, *, on_change: OnChange | None = None) -> list[str]:
        """As ``Coordination.children``."""
        names = self.ask(path, lambda tree: tree.children(path), on_change, watches_children=True)
        return await names

    async def set(self, path: str, value: bytes, *, version: int = ANY_VERSION) -> NodeStat:
        """As ``Coordination.set``."""
        check_size(path, len(value))
        return await self.ask(path, lambda tree: tree.set(path, value, version), verb="set")

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        """As ``Coordination.delete``."""
        await self.ask(path, lambda tree: tree.delete(path, version), verb="delete")

    async def transaction(self, operations: Sequence[Operation]) -> None:
        """As ``Coordination.transaction``."""
        if not operations:
            return
        # A copy: the caller may change its list while the request is held or on its way.
        batch = tuple(operations)
        check_size(batch[0].path, sum(map(operation_bytes, batch)))
        await self.ask(
            batch[0].path,
            lambda tree: tree.transaction(batch, self.session_id),
            verb="transaction",
        )
