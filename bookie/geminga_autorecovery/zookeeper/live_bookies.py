"""The registered bookies: the nodes below ``/ledgers/available``."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_autorecovery.zookeeper.children import Children, children_of
from geminga_protocol.records.bookies.bookie_info import (
    AVAILABLE_PATH,
    READ_ONLY_NODE,
    READ_ONLY_PATH,
)


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
    """Ask ZooKeeper which bookies are registered. Raises ``CoordinationError``."""
    # In this order: a bookie that becomes read-only appears there before it goes here.
    writable = await children_of(children, AVAILABLE_PATH)
    read_only = await children_of(children, READ_ONLY_PATH)
    # ``readonly`` is itself a child of ``available``, and no bookie.
    return LiveBookies(frozenset(writable) - {READ_ONLY_NODE}, frozenset(read_only))
