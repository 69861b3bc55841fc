"""A node in ZooKeeper that only its owner writes, by compare-and-set, through lost connections.

An answer that never came leaves in doubt whether a write was made. The next write looks first: what
stands there is either what we tried to write, or untouched, or somebody else's, and then we own it
no longer.
"""

from __future__ import annotations

from geminga_runtime.coordination import Coordination, NodeMissing, VersionMismatch


class OwnRecord:
    """The node ``path``. ``load`` or ``create`` comes first; calls must not overlap."""

    __slots__ = ("_coordination", "_in_doubt", "_version", "path")

    def __init__(self, coordination: Coordination, path: str) -> None:
        self.path = path
        self._coordination = coordination
        self._version = -1
        self._in_doubt: tuple[bytes, ...] = ()

    async def load(self) -> bytes:
        """The value now. Raises ``NodeMissing``."""
        value, stat = await self._coordination.get(self.path)
        self._version = stat.version
        self._in_doubt = ()
        return value

    async def create(self, value: bytes, *, make_parents: bool = False) -> None:
        """Make the node. Raises ``NodeExists``."""
        await self._coordination.create(self.path, value, make_parents=make_parents)
        self._version = 0

    async def write(self, value: bytes) -> None:
        """Replace the value. Raises ``VersionMismatch`` where somebody changed or deleted it."""
        if self._in_doubt:
            await self._resolve()
        self._in_doubt = (*self._in_doubt, value)
        try:
            stat = await self._coordination.set(self.path, value, version=self._version)
        except (VersionMismatch, NodeMissing):
            self._in_doubt = ()
            raise VersionMismatch(self.path) from None
        self._in_doubt = ()
        self._version = stat.version

    async def _resolve(self) -> None:
        try:
            value, stat = await self._coordination.get(self.path)
        except NodeMissing:
            raise VersionMismatch(self.path) from None
        if stat.version != self._version:
            if value not in self._in_doubt:
                raise VersionMismatch(self.path)
            self._version = stat.version
        self._in_doubt = ()
