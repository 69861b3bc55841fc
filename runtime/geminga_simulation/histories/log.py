"""Whether a log that clients append to and read behaved as a log, checked in nearly linear time.

A log is append-only and each entry has a position. Positions make the search easy that is hard in
general (``linearizability``): appends took effect in the order of their positions, and a client
that learned that a position is the last one asked between that append and the next. So there is
only one order to check. It explains everything if each operation can have taken effect behind those
before it and before it returned.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Generic, Protocol, Self, TypeVar

from geminga_simulation.errors import InvariantViolated


class Ordered(Hashable, Protocol):
    """A position: later ones are larger."""

    def __lt__(self, other: Self, /) -> bool: ...


PositionT = TypeVar("PositionT", bound=Ordered)


@dataclass(slots=True, eq=False)
class Append(Generic[PositionT]):
    """``client`` appended ``value`` (each value once). Without an answer ``returned_s`` is
    infinite. Where ``position`` is not known, reads may show where the value is."""

    client: str
    value: Hashable
    called_s: float
    position: PositionT | None = None
    returned_s: float = inf

    def __str__(self) -> str:
        end = "no answer" if self.returned_s == inf else f"{self.returned_s:.6f}"
        where = "" if self.position is None else f" at {self.position}"
        return f"{self.client} [{self.called_s:.6f}, {end}] appended {self.value!r}{where}"


@dataclass(slots=True, eq=False)
class _Look(Generic[PositionT]):
    """A client read a position, or learned that it is the last (None: that the log is empty)."""

    client: str
    called_s: float
    returned_s: float
    position: PositionT | None
    value: Hashable = None

    def __str__(self) -> str:
        return f"{self.client} [{self.called_s:.6f}, {self.returned_s:.6f}]"


@dataclass(slots=True)
class LogHistory(Generic[PositionT]):
    """What clients of one log did and what they learned."""

    # A client that gets no answer appends again, so that a value may be stored more than once.
    # Copies after the first answer are then in doubt.
    may_repeat: bool = False
    # Not everything is read that was appended without an answer: a position may be the last one and
    # hold an unknown value.
    is_read_in_part: bool = False
    _appends: list[Append[PositionT]] = field(default_factory=list["Append[PositionT]"])
    _reads: list[_Look[PositionT]] = field(default_factory=list["_Look[PositionT]"])
    _lasts: list[_Look[PositionT]] = field(default_factory=list["_Look[PositionT]"])

    def append(self, client: str, value: Hashable, called_s: float) -> Append[PositionT]:
        """``client`` appends ``value``; the caller sets the answer on the result."""
        asked = Append[PositionT](client, value, called_s)
        self._appends.append(asked)
        return asked

    def read(
        self,
        client: str,
        position: PositionT,
        value: Hashable,
        *,
        called_s: float,
        returned_s: float,
    ) -> None:
        """``client`` found ``value`` at ``position``."""
        self._reads.append(_Look(client, called_s, returned_s, position, value))

    def last(
        self, client: str, position: PositionT | None, *, called_s: float, returned_s: float
    ) -> None:
        """``client`` learned that ``position`` is the last one."""
        self._lasts.append(_Look(client, called_s, returned_s, position))

    def check(self) -> None:
        """Raise ``InvariantViolated``, and say why, where no log can have given these answers."""
        # Before the lasts: reads may show where an append without an answer is.
        stored = self._stored()
        lasts = self._lasts_by_position(stored)
        # Let each operation take effect as early as it can, in the order of the positions:
        # ``now_s`` is the earliest moment for the next one, ``latest`` the operation that made it.
        # One pass suffices: an effect as early as possible leaves most room to those behind it.
        effect_s: dict[PositionT, float] = {}
        now_s, latest = -inf, "the beginning"
        # None first: a log may be empty only before its first append took effect.
        for position in (None, *sorted(stored)):
            step: list[Append[PositionT] | _Look[PositionT]] = []
            if position is not None:
                step.append(stored[position])
            step += sorted(lasts.get(position, ()), key=lambda each: each.called_s)
            for each in step:
                # It takes effect at its call at the earliest, and not before those in front of it.
                if each.called_s > now_s:
                    now_s, latest = each.called_s, str(each)
                # It had returned before an operation in front of it was even called.
                if each.returned_s < now_s:
                    what = "" if isinstance(each, Append) else f" was told that {position} is last"
                    raise InvariantViolated(f"{each}{what}, which comes behind: {latest}")
                if isinstance(each, Append) and position is not None:
                    effect_s[position] = now_s
        # A read takes effect at any time after its append: it must return after that.
        for look in self._reads:
            assert look.position is not None
            if look.returned_s < effect_s[look.position]:
                early = f"{look} read {look.position}, which cannot have been there yet"
                raise InvariantViolated(f"{early}: {stored[look.position]}")

    def _stored(self) -> dict[PositionT, Append[PositionT]]:
        """Which append is at which position, by the answers to appends and by reads."""
        # One append for each value (``Append``): with repeats, the copies share their first call.
        by_value = {each.value: each for each in self._appends}
        stored: dict[PositionT, Append[PositionT]] = {}
        for each in self._appends:
            if each.position is not None:
                other = stored.setdefault(each.position, each)
                if other is not each:
                    raise InvariantViolated(f"two are at one position: {each}; {other}")
        for look in self._reads:
            assert look.position is not None
            found = by_value.get(look.value)
            if found is None:
                raise InvariantViolated(f"{look} read {look.value!r}, which was never sent")
            there = stored.get(look.position)
            if there is not None:
                if there.value != look.value:
                    why = f"{look} read at {look.position}: {found}; there is {there}"
                    raise InvariantViolated(why)
            # An append without an answer was made after all: the read shows where.
            elif found.position is None:
                found.position = look.position
                stored[look.position] = found
            elif self.may_repeat:
                again = Append(found.client, found.value, found.called_s, look.position)
                stored[look.position] = again
            else:
                raise InvariantViolated(f"{look} read it at {look.position}: {found}")
        return stored

    def _lasts_by_position(
        self, stored: dict[PositionT, Append[PositionT]]
    ) -> dict[PositionT | None, list[_Look[PositionT]]]:
        """The clients that learned that a position is the last; something must be stored there."""
        lasts: dict[PositionT | None, list[_Look[PositionT]]] = {}
        # Several clients may have learned it of one position, at different times.
        for look in self._lasts:
            lasts.setdefault(look.position, []).append(look)
        for position, looks in lasts.items():
            if position is not None and position not in stored:
                if not self.is_read_in_part:
                    raise InvariantViolated(f"{looks[0]} was told of {position}: not stored")
                # Some append without an answer, whose value was not read: it may be any of them.
                stored[position] = Append("a client", None, -inf, position)
        return lasts
