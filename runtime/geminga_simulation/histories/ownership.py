"""Whether what was said of an owner can be true: a broker of a topic, the leader of all brokers.

A register in the sense of ``linearizability``. What is owned stands on nodes in ZooKeeper, of which
each has one owner at a time: an owner acquires a node that is free, releases it, or its session
expires. A claim is a read: somebody was told at some moment between a question and its answer that
an owner holds one of the nodes. Several nodes are told of together where a claim does not say on
which of them it rests: a bundle and the pieces that it is cut into.

Who answers may know only what ZooKeeper said a while ago: then the claim begins at the moment until
which it knew everything, and must have been true since.

Pure: it takes facts and raises ``InvariantViolated``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from geminga_simulation.histories.linearizability import Model, Operation, check_linearizable

# Nodes, each with its owner.
Held = frozenset[tuple[Hashable, str]]


class Change(Enum):
    """What happens to a node."""

    ACQUIRED = "acquired"
    RELEASED = "released"
    EXPIRED = "expired"


class _Changed(NamedTuple):
    change: Change
    node: Hashable
    owner: str

    def __str__(self) -> str:
        return f"{self.change.value} {self.node}"


class _Owned(NamedTuple):
    """What a claim says."""

    by: str

    def __str__(self) -> str:
        return f"was told that {self.by} owns it"


@dataclass(slots=True)
class OwnershipHistory:
    """What became of the nodes of one thing, and who was said to own it.

    Times are intervals, of which the ends are one where an observer sees ZooKeeper change.
    """

    held: Held = frozenset()
    _operations: list[Operation] = field(default_factory=list[Operation])

    def change(
        self, what: Change, node: Hashable, owner: str, *, called_s: float, returned_s: float
    ) -> None:
        """``owner`` has ``node``, or has it no longer, from some moment in that time on."""
        self._operations.append(Operation(owner, called_s, returned_s, _Changed(what, node, owner)))

    def claim(self, client: str, owner: str, *, called_s: float, returned_s: float) -> None:
        """``client`` was told that ``owner`` owns it."""
        self._operations.append(Operation(client, called_s, returned_s, _Owned(owner)))

    def check(self) -> None:
        """Raise ``InvariantViolated`` where no order of changes makes all claims true."""
        check_linearizable(self._operations, Model(self.held, _step))


def _step(held: Held, what: Hashable) -> Held | None:
    if isinstance(what, _Owned):
        return held if any(owner == what.by for _, owner in held) else None
    assert isinstance(what, _Changed)
    stands = what.node, what.owner
    if what.change is Change.ACQUIRED:
        is_free = all(node != what.node for node, _ in held)
        return held | {stands} if is_free else None
    return held - {stands} if stands in held else None
