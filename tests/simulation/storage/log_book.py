"""What the owners of one log were told, each believing that the log is its own; and what must be
there.

Truncations and deletions take a while, and the process that asked for one may never hear the end of
it: what was stored before may be gone then, what was published after it was over is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from geminga_broker.managed_ledger.positions import Position
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.event_loop.loop import running_loop
from geminga_simulation.histories.checkers import OneTruth, check_nothing_invented

PROPERTY = "number"
TRUNCATION, DELETION = "truncation", "deletion"


@dataclass(slots=True)
class Deed:
    """Something that was asked for: when, when that was over, and whether it is known to be done.

    ``value`` is what a property was to be, or what was to take messages out.
    """

    begin_s: float
    value: str = ""
    end_s: float = inf
    is_done: bool = False


@dataclass(slots=True)
class LogBook:
    """``found`` in ``check`` are all entries of the log, None for one that is damaged."""

    pushed_s: dict[bytes, float] = field(default_factory=dict[bytes, float])
    stored: dict[bytes, tuple[Position, float]] = field(
        default_factory=dict[bytes, "tuple[Position, float]"]
    )
    removals: list[Deed] = field(default_factory=list[Deed])
    settings: list[Deed] = field(default_factory=list[Deed])
    # Where the log ends for good, as those were told who ended it.
    end: Position | None = None
    # Ledgers that were deleted, and entries that were spoilt, unknown to all owners.
    deleted: set[int] = field(default_factory=set[int])
    damaged: set[Position] = field(default_factory=set[Position])
    # How often what was tried came to an end.
    deeds: Counter[str] = field(default_factory=Counter[str])
    truth: OneTruth = field(default_factory=OneTruth)

    def push(self, body: bytes) -> None:
        """A message is given to a log, which may take it."""
        self.pushed_s[body] = now_s()

    def store(self, position: Position, body: bytes) -> None:
        """Its publisher was told that it is stored."""
        if body in self.stored:
            raise InvariantViolated(f"{body!r} is stored at {self.stored[body][0]}, and {position}")
        self.stored[body] = position, now_s()
        self._check_end(position)

    def read(self, position: Position, body: bytes) -> None:
        """A client read it: all read the same there, and what was sent."""
        self.truth.observe(position, body)
        check_nothing_invented(self.pushed_s, [body])

    def terminated(self, last: Position) -> None:
        """A client was told that the log ends here."""
        self.truth.observe("the end of the log", last)
        self.end = last
        for position, _ in self.stored.values():
            self._check_end(position)

    def _check_end(self, position: Position) -> None:
        if self.end is not None and position > self.end:
            raise InvariantViolated(f"{position} is stored behind the end, {self.end}")

    def check(self, found: Mapping[Position, bytes | None], properties: Mapping[str, str]) -> None:
        """Check that the log has all that it must have, and nothing that is gone."""
        for position, body in found.items():
            if body is not None:
                self.read(position, body)
            elif position not in self.damaged:
                raise InvariantViolated(f"{position} cannot be read, and it was not spoilt")
        twice = [body for body, count in Counter(found.values()).items() if body and count > 1]
        if twice:
            raise InvariantViolated(f"stored twice: {twice}")
        for body, (position, stored_s) in self.stored.items():
            self._check_stored(found, position, body, stored_s)
        self._check_property(properties)

    def _check_stored(
        self, found: Mapping[Position, bytes | None], position: Position, body: bytes, at_s: float
    ) -> None:
        if position not in found:
            may_be_gone = position.ledger_id in self.deleted or any(
                each.end_s >= self.pushed_s[body] for each in self.removals
            )
            if not may_be_gone:
                raise InvariantViolated(f"{body!r} is gone from {position}: {sorted(found)}")
        else:
            if found[position] not in (body, None):
                raise InvariantViolated(f"{position} has {found[position]!r}, stored was {body!r}")
            was_removed = any(each.is_done and at_s < each.begin_s for each in self.removals)
            if was_removed and not self._is_kept(position.ledger_id, found):
                raise InvariantViolated(f"{body!r} at {position} is there, and was taken out")

    def _is_kept(self, ledger_id: int, found: Collection[Position]) -> bool:
        """A log that has ended keeps its last ledger, which says where the end is: the last that is
        left, where the one was deleted that it ended in."""
        if self.end is None:
            return False
        if self.end.ledger_id not in self.deleted:
            return ledger_id == self.end.ledger_id
        return ledger_id == max(each.ledger_id for each in found)

    def _check_property(self, properties: Mapping[str, str]) -> None:
        """It is what was set, and no other was set after that was over; a setting of which the end
        is not known may take effect at any time."""
        value = properties.get(PROPERTY)
        over_s = -inf
        if value is not None:
            (setting,) = (each for each in self.settings if each.value == value)
            over_s = setting.end_s if setting.is_done else inf
        for each in self.settings:
            if not each.is_done or each.begin_s <= over_s:
                continue
            may_be_gone = value is None and any(
                one.value == DELETION and one.end_s >= each.begin_s for one in self.removals
            )
            if not may_be_gone:
                raise InvariantViolated(f"the property is {value}, and {each} came after that")


def now_s() -> float:
    """The time of the world: the clock of a process may go faster or slower."""
    return running_loop().now_s
