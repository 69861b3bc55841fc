"""Ephemeral nodes that say "mine": claimed, recognised, and taken over from our own past.

A part that was killed leaves its ephemeral nodes behind until its old session times out. They carry
its own id, and its data directory is locked by the living part, so nobody else can be behind them:
they are replaced at once instead of waited for. A node with anybody else's id is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from geminga_cluster.errors import RecordContended
from geminga_runtime.coordination import (
    Coordination,
    Create,
    Delete,
    NodeExists,
    NodeMissing,
    NodeStat,
    OnChange,
    VersionMismatch,
)

# Each round means that somebody changed the node between two of our steps; more than this many in
# a row is a quarrel that waiting does not settle.
ROUNDS_MAX = 8


@dataclass(frozen=True, slots=True)
class Claim:
    """How a claim ended: the node as it stands, and whether it is this session's."""

    value: bytes
    stat: NodeStat
    is_ours: bool


async def claim(
    coordination: Coordination,
    path: str,
    value: bytes,
    *,
    is_stale: Callable[[bytes], bool],
    on_change: OnChange,
) -> Claim:
    """Create ``path`` as this session's ephemeral node, or say whose it is.

    ``is_stale(value)`` tells a node of our own past. ``on_change`` is called at least once after
    the node changed or vanished, and may be called without need: look again, then decide. Raises
    ``RecordContended`` after ``ROUNDS_MAX`` interrupted rounds, and ``CoordinationError``.
    """
    for _ in range(ROUNDS_MAX):
        with suppress(NodeExists):
            await coordination.create(path, value, ephemeral=True, make_parents=True)
        try:
            found, stat = await coordination.get(path, on_change=on_change)
        except NodeMissing:
            continue
        if stat.ephemeral_owner == coordination.session_id:
            return Claim(found, stat, is_ours=True)
        if not is_stale(found):
            return Claim(found, stat, is_ours=False)
        await _replace(coordination, path, value, stat)
    raise RecordContended(f"node {path} keeps changing while it is being claimed")


async def _replace(coordination: Coordination, path: str, value: bytes, stat: NodeStat) -> None:
    """Put our node where our past one stands; silently not, if it changed meanwhile."""
    with suppress(NodeMissing, NodeExists, VersionMismatch):
        await coordination.transaction(
            [Delete(path, stat.version), Create(path, value, is_ephemeral=True)]
        )
