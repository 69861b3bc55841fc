"""Claims: ephemeral nodes that say who owns something, taken over from an earlier life of ours.

A part that was killed leaves its ephemeral nodes behind until its old session times out. They have
its own id, and the living part holds the lock of its data directory, so no other process can own
them: they are replaced at once. A node with any other id is left alone.
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

# Each round means that the node was changed between two of our steps. More of them in a row mean
# that two processes fight over the node, which more attempts do not settle.
ROUNDS_MAX = 8


@dataclass(frozen=True, slots=True)
class Claim:
    """The outcome of a claim: the node as it is, and whether it is this session's."""

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
    """Create ``path`` as this session's ephemeral node, or return the node that is there.

    ``is_stale(value)`` recognises a node of an earlier life. ``on_change`` is called at least once
    after the node changed or vanished, and sometimes without need: read again, then decide. Raises
    ``RecordContended`` after ``ROUNDS_MAX`` interrupted rounds, and ``CoordinationError``.
    """
    # Create, look, decide: what is there after the attempt to create it counts, not its answer.
    for _ in range(ROUNDS_MAX):
        # The node that exists may be our own: an earlier creation of it may have got no answer.
        with suppress(NodeExists):
            await coordination.create(path, value, ephemeral=True, make_parents=True)
        # Read also what was just created, for its watch. It may be gone again.
        try:
            # The watch of a round that goes on stays behind, and calls once more than needed.
            found, stat = await coordination.get(path, on_change=on_change)
        except NodeMissing:
            continue
        # The session decides, not the value: a node of an earlier life of ours names us too, and
        # vanishes when that session times out.
        if stat.ephemeral_owner == coordination.session_id:
            return Claim(found, stat, is_ours=True)
        if not is_stale(found):
            return Claim(found, stat, is_ours=False)
        # In one transaction, so that no other process sees the node missing and claims it. If it
        # was changed meanwhile, this does nothing, and the next round sees the change.
        with suppress(NodeMissing, NodeExists, VersionMismatch):
            await coordination.transaction(
                [Delete(path, stat.version), Create(path, value, is_ephemeral=True)]
            )
    raise RecordContended(f"node {path} keeps changing while it is being claimed")
