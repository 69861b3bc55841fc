"""Invariants, judged from outside: from the answers that clients got and from what they read.

The checkers take facts and raise ``InvariantViolated``; they know nothing of how the system under
test works. Items are anything hashable: payloads, message ids, numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from geminga_simulation.errors import InvariantViolated

ItemT = TypeVar("ItemT", bound=Hashable)

# Items named in an error; more of them tell no more.
ITEMS_NAMED_MAX = 10


def check_nothing_lost(acknowledged: Iterable[Hashable], found: Collection[Hashable]) -> None:
    """Everything whose storing was confirmed must be found."""
    # More may be found than was acknowledged: what was stored and not confirmed.
    present = frozenset(found)
    lost = [item for item in acknowledged if item not in present]
    if lost:
        raise InvariantViolated(f"{len(lost)} acknowledged and lost: {_some(lost)}")


def check_nothing_invented(sent: Collection[Hashable], found: Iterable[Hashable]) -> None:
    """Nothing may be found that was not sent."""
    known = frozenset(sent)
    invented = [item for item in found if item not in known]
    if invented:
        raise InvariantViolated(f"{len(invented)} found that were never sent: {_some(invented)}")


def check_prefix(sent: Sequence[object], found: Sequence[object]) -> None:
    """What is found must be the beginning of what was sent: no gap, no repeat, no other order."""
    # ``found`` may be shorter: what was sent last need not have been stored.
    for position, item in enumerate(found):
        if position >= len(sent):
            raise InvariantViolated(f"{len(found)} found where {len(sent)} were sent")
        if item != sent[position]:
            raise InvariantViolated(
                f"position {position} holds {item!r}, sent was {sent[position]!r}"
            )


def check_order(sent: Sequence[ItemT], received: Iterable[ItemT]) -> int:
    """First receipts must come in the order of sending; repeats may come at any later time.

    Gaps are allowed. Items of ``sent`` are distinct. Returns how many repeats there were. An item
    that was never sent is an error, too.
    """
    positions = {item: position for position, item in enumerate(sent)}
    seen: set[ItemT] = set()
    last = -1
    repeats = 0
    for item in received:
        # Only the first receipt of an item has a place in the order.
        if item in seen:
            repeats += 1
            continue
        seen.add(item)
        position = positions.get(item)
        if position is None:
            raise InvariantViolated(f"received {item!r}, which was never sent")
        if position < last:
            raise InvariantViolated(f"received {item!r} after {sent[last]!r}, sent before it")
        last = position
    return repeats


def check_acknowledgements(
    stored: Collection[Hashable],
    acknowledged: Collection[Hashable],
    delivered: Collection[Hashable],
    *,
    in_doubt: Collection[Hashable] = (),
) -> None:
    """After a restart exactly what was not acknowledged is delivered again, holes included.

    ``in_doubt``: acknowledgements that were on their way at the restart; both outcomes are right. A
    confirmed acknowledgement stays valid even if a second one of the same item is in doubt.
    ``NoLostAcknowledgement`` watches the time before the restart.
    """
    settled = frozenset(acknowledged)
    # An item in doubt may be delivered or not; only items of neither set must be.
    doubtful = frozenset(in_doubt)
    present = frozenset(delivered)
    again = [item for item in delivered if item in settled]
    if again:
        raise InvariantViolated(f"{len(again)} acknowledged and delivered again: {_some(again)}")
    missing = [
        item
        for item in stored
        if item not in settled and item not in doubtful and item not in present
    ]
    if missing:
        raise InvariantViolated(
            f"{len(missing)} never acknowledged, not delivered: {_some(missing)}"
        )


@dataclass(slots=True, eq=False)
class NoLostAcknowledgement:
    """Watches that no message comes again after its acknowledgement was confirmed.

    A client that gets a message again acknowledges it again, so a lost acknowledgement leaves no
    trace in the end: it must be noticed when the message comes. Both methods are called in the
    order in which the consumer's connection brought the messages and the answers. A copy that was
    on its way when the acknowledgement arrived comes before the confirmation, and is no mistake. A
    subscription that was moved back (``seek``, a reset) begins with a new watch.
    """

    # It only grows: an acknowledgement that was confirmed holds for good.
    _confirmed: set[Hashable] = field(default_factory=set[Hashable])

    def confirmed(self, items: Iterable[Hashable]) -> None:
        """The acknowledgements of these items were confirmed to the client."""
        self._confirmed.update(items)

    def delivered(self, item: Hashable) -> None:
        """A consumer of the subscription got ``item``."""
        if item in self._confirmed:
            raise InvariantViolated(f"{item!r} came again, its acknowledgement was confirmed")


@dataclass(slots=True, eq=False)
class NeverBackwards:
    """Watches numbers that may only grow: the last add confirmed, as each reader sees it."""

    _highest: dict[Hashable, int] = field(default_factory=dict[Hashable, int])

    def observe(self, what: Hashable, value: int) -> None:
        """``what`` (a ledger, a reader) stands at ``value`` now."""
        highest = self._highest.get(what)
        if highest is not None and value < highest:
            raise InvariantViolated(f"{what} went back from {highest} to {value}")
        self._highest[what] = value


@dataclass(slots=True, eq=False)
class OneTruth:
    """Watches that all readers of a place read the same there, whenever they read it."""

    # What the first reader of each place found.
    _contents: dict[Hashable, object] = field(default_factory=dict[Hashable, object])

    def observe(self, place: Hashable, content: object) -> None:
        """A reader found ``content`` at ``place`` (an entry of a ledger)."""
        if place not in self._contents:
            self._contents[place] = content
        elif self._contents[place] != content:
            raise InvariantViolated(
                f"{place} held {self._contents[place]!r} for one and {content!r} for another"
            )


def _some(items: Iterable[object]) -> str:
    # One more than is named shows whether there are others.
    named = list(islice(items, ITEMS_NAMED_MAX + 1))
    text = ", ".join(repr(item) for item in named[:ITEMS_NAMED_MAX])
    return f"{text}, ..." if len(named) > ITEMS_NAMED_MAX else text
