"""What must hold, judged from outside: from what clients were told and what they read.

Pure: the checkers take facts and raise ``InvariantViolated``; they know nothing of how the system
under test works. Items are anything hashable: payloads, message ids, numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from geminga_simulation.errors import InvariantViolated

ItemT = TypeVar("ItemT", bound=Hashable)

# Items named in an error; more of them tell no more.
ITEMS_NAMED_MAX = 10


def check_nothing_lost(acknowledged: Iterable[Hashable], found: Collection[Hashable]) -> None:
    """Whatever somebody was told is stored must be found."""
    present = frozenset(found)
    lost = [item for item in acknowledged if item not in present]
    if lost:
        raise InvariantViolated(f"{len(lost)} acknowledged and lost: {_some(lost)}")


def check_nothing_invented(sent: Collection[Hashable], found: Iterable[Hashable]) -> None:
    """Nothing may be found that nobody sent."""
    known = frozenset(sent)
    invented = [item for item in found if item not in known]
    if invented:
        raise InvariantViolated(f"{len(invented)} found that nobody sent: {_some(invented)}")


def check_prefix(sent: Sequence[object], found: Sequence[object]) -> None:
    """What is found must be the beginning of what was sent: no gap, no repeat, no other order."""
    for position, item in enumerate(found):
        if position >= len(sent):
            raise InvariantViolated(f"{len(found)} found where {len(sent)} were sent")
        if item != sent[position]:
            raise InvariantViolated(
                f"position {position} holds {item!r}, sent was {sent[position]!r}"
            )


def check_order(sent: Sequence[ItemT], received: Iterable[ItemT]) -> int:
    """First receipts must come in the order of sending; repeats may come at any later time.

    Gaps are another checker's business. Items of ``sent`` are distinct. Returns how many repeats
    there were. Raises for an item that was never sent, too.
    """
    positions = {item: position for position, item in enumerate(sent)}
    seen: set[ItemT] = set()
    last = -1
    repeats = 0
    for item in received:
        if item in seen:
            repeats += 1
            continue
        seen.add(item)
        position = positions.get(item)
        if position is None:
            raise InvariantViolated(f"received {item!r}, which nobody sent")
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

    ``in_doubt``: acknowledgements on their way when the system fell; both outcomes are right. What
    was confirmed once stays acknowledged, though the same was acknowledged again and that is in
    doubt. ``NoLostAcknowledgement`` watches the time before the restart.
    """
    settled = frozenset(acknowledged)
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


class NoLostAcknowledgement:
    """Watches that no message comes again after its acknowledgement was confirmed.

    A lost acknowledgement is soon made again by a client that gets the message again, so that
    nothing is missing in the end: it must be noticed when the message comes. Both methods are
    called in the order in which the consumer's connection brought the messages and the answers. A
    copy that was on its way when the acknowledgement arrived comes before the confirmation, and is
    no mistake. A subscription that was moved back (``seek``, a reset) begins with a new watch.
    """

    def __init__(self) -> None:
        self._confirmed: set[Hashable] = set()

    def confirmed(self, items: Iterable[Hashable]) -> None:
        """The client was told that these are acknowledged."""
        self._confirmed.update(items)

    def delivered(self, item: Hashable) -> None:
        """A consumer of the subscription got ``item``."""
        if item in self._confirmed:
            raise InvariantViolated(f"{item!r} came again, its acknowledgement was confirmed")


class NeverBackwards:
    """Watches numbers that may only grow: the last add confirmed, as each reader sees it."""

    def __init__(self) -> None:
        self._highest: dict[Hashable, int] = {}

    def observe(self, what: Hashable, value: int) -> None:
        """``what`` (a ledger, a reader) stands at ``value`` now."""
        highest = self._highest.get(what)
        if highest is not None and value < highest:
            raise InvariantViolated(f"{what} went back from {highest} to {value}")
        self._highest[what] = value


class OneTruth:
    """Watches that all who read a place read the same there, whenever they read it."""

    def __init__(self) -> None:
        self._contents: dict[Hashable, object] = {}

    def observe(self, place: Hashable, content: object) -> None:
        """Somebody read ``content`` at ``place`` (an entry of a ledger)."""
        if place not in self._contents:
            self._contents[place] = content
        elif self._contents[place] != content:
            raise InvariantViolated(
                f"{place} held {self._contents[place]!r} for one and {content!r} for another"
            )


def _some(items: Iterable[object]) -> str:
    named = list(islice(items, ITEMS_NAMED_MAX + 1))
    text = ", ".join(repr(item) for item in named[:ITEMS_NAMED_MAX])
    return f"{text}, ..." if len(named) > ITEMS_NAMED_MAX else text
