"""Which bookies there are now: the nodes below ``/ledgers/available``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from geminga_protocol.records.bookie_info import AVAILABLE_PATH, READ_ONLY_NODE, READ_ONLY_PATH
from geminga_runtime.coordination import NodeMissing

Children = Callable[[str], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class LiveBookies:
    """The ids of the registered bookies."""

    writable: frozenset[str]
    read_only: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """Those that can be read from."""
        return self.writable | self.read_only


async def read_live_bookies(children: Children) -> LiveBookies:
    """Ask ZooKeeper, with its ``children`` or one that watches. Raises ``CoordinationError``."""
    # In this order: a bookie that becomes read-only appears there before it goes here.
    writable = await _names(children, AVAILABLE_PATH)
    read_only = await _names(children, READ_ONLY_PATH)
    return LiveBookies(frozenset(writable) - {READ_ONLY_NODE}, frozenset(read_only))


async def _names(children: Children, path: str) -> list[str]:
    try:
        return await children(path)
    except NodeMissing:
        return []
