"""Whether the owners that clients were told can be true: the broker of a topic, the leading broker.

A register in the sense of ``linearizability``. Nodes in ZooKeeper stand for what is owned, and each
has one owner at a time: an owner acquires a node that is free, releases it, or its session expires.
A claim is a read: between a question and its answer, an owner held one of the nodes. One history
has several nodes where a claim does not say on which of them it rests: a bundle and the pieces that
it is cut into.

A broker that answers may know only what ZooKeeper said a while ago: then the claim begins at the
moment until which it knew everything, and must have been true since.
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
    """A claim: ``by`` holds one of the nodes."""

    by: str

    def __str__(self) -> str:
        return f"was told that {self.by} owns it"


@dataclass(slots=True)
class OwnershipHistory:
    """The changes of the nodes of one thing, and the claims of who owns it.

    Each change happened between ``called_s`` and ``returned_s``. They are equal where an observer
    saw ZooKeeper change.
    """

    # The nodes that have an owner when the history begins. Replaced, never changed: the search
    # keeps the states that it has tried.
    held: Held = frozenset()
    _operations: list[Operation] = field(default_factory=list[Operation])

    def change(
        self, what: Change, node: Hashable, owner: str, *, called_s: float, returned_s: float
    ) -> None:
        """``owner`` acquired or lost ``node`` at some moment in that interval."""
        self._operations.append(Operation(owner, called_s, returned_s, _Changed(what, node, owner)))

    def claim(self, client: str, owner: str, *, called_s: float, returned_s: float) -> None:
        """``client`` was told that ``owner`` owns it."""
        self._operations.append(Operation(client, called_s, returned_s, _Owned(owner)))

    def check(self) -> None:
        """Raise ``InvariantViolated`` where no order of changes makes all claims true."""
        check_linearizable(self._operations, Model(self.held, _step))


def _step(held: Held, what: Hashable) -> Held | None:
    # A claim changes nothing; it fits where that owner holds one of the nodes.
    if isinstance(what, _Owned):
        return held if any(owner == what.by for _, owner in held) else None
    assert isinstance(what, _Changed)
    # A node that has another owner cannot be acquired, and only its owner loses it: such an order
    # of the operations is no explanation.
    stands = what.node, what.owner
    if what.change is Change.ACQUIRED:
        is_free = all(node != what.node for node, _ in held)
        return held | {stands} if is_free else None
    # Released and expired are alike here: the name only tells a reader of the error which it was.
    return held - {stands} if stands in held else None
