"""Whether a log that clients append to and read did what a log must: in time near to linear.

A log is append-only and each entry has a position. Positions make the search easy that is hard in
general (``linearizability``): appends took effect in the order of their positions, and who was told
that a position is the last one asked between that append and the next. So there is one order to be
looked at, and it explains everything if each operation can have taken effect behind those before it
and before it returned.

Pure: it takes facts and raises ``InvariantViolated``.
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
    infinite. Where ``position`` is not known, readers may tell where it is."""

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
    """Somebody read a position, or was told that it is the last (None: that there is none)."""

    client: str
    called_s: float
    returned_s: float
    position: PositionT | None
    value: Hashable = None

    def __str__(self) -> str:
        return f"{self.client} [{self.called_s:.6f}, {self.returned_s:.6f}]"


@dataclass(slots=True)
class LogHistory(Generic[PositionT]):
    """What clients of one log did and were told, and whether a log can have told it.

    ``may_repeat``: who appends and hears nothing does so again, so that a value may be stored more
    than once. What comes after the first answer is then in doubt. ``is_read_in_part``: not
    everything is read that was appended without an answer, so that a position may be told as the
    last one, and nobody knows what is there.
    """

    may_repeat: bool = False
    is_read_in_part: bool = False
    _appends: list[Append[PositionT]] = field(default_factory=list["Append[PositionT]"])
    _reads: list[_Look[PositionT]] = field(default_factory=list["_Look[PositionT]"])
    _lasts: list[_Look[PositionT]] = field(default_factory=list["_Look[PositionT]"])

    def append(self, client: str, value: Hashable, called_s: float) -> Append[PositionT]:
        """``client`` asks for ``value`` to be appended; set what it is told on the result."""
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
        """``client`` was told that ``position`` is the last one."""
        self._lasts.append(_Look(client, called_s, returned_s, position))

    def check(self) -> None:
        """Raise ``InvariantViolated`` where no log can have told all this, and say why."""
        stored = self._stored()
        self._check_order(stored)

    def _stored(self) -> dict[PositionT, Append[PositionT]]:
        """Which append is at which position, by those who were told and by those who read."""
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
                raise InvariantViolated(f"{look} read {look.value!r}, which nobody sent")
            there = stored.get(look.position)
            if there is not None:
                if there.value != look.value:
                    why = f"{look} read at {look.position}: {found}; there is {there}"
                    raise InvariantViolated(why)
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
        """Who was told that a position is the last; what is there must be stored."""
        lasts: dict[PositionT | None, list[_Look[PositionT]]] = {}
        for look in self._lasts:
            lasts.setdefault(look.position, []).append(look)
        for position, looks in lasts.items():
            if position is not None and position not in stored:
                if not self.is_read_in_part:
                    raise InvariantViolated(f"{looks[0]} was told of {position}: not stored")
                stored[position] = Append("somebody", None, -inf, position)
        return lasts

    def _check_order(self, stored: dict[PositionT, Append[PositionT]]) -> None:
        """Let each take effect as early as it can, in the order of the positions."""
        lasts = self._lasts_by_position(stored)
        effect_s: dict[PositionT, float] = {}
        now_s, latest = -inf, "the beginning"
        for position in (None, *sorted(stored)):
            step: list[Append[PositionT] | _Look[PositionT]] = []
            if position is not None:
                step.append(stored[position])
            step += sorted(lasts.get(position, ()), key=lambda each: each.called_s)
            for each in step:
                if each.called_s > now_s:
                    now_s, latest = each.called_s, str(each)
                if each.returned_s < now_s:
                    what = "" if isinstance(each, Append) else f" was told that {position} is last"
                    raise InvariantViolated(f"{each}{what}, which comes behind: {latest}")
                if isinstance(each, Append) and position is not None:
                    effect_s[position] = now_s
        for look in self._reads:
            assert look.position is not None
            if look.returned_s < effect_s[look.position]:
                early = f"{look} read {look.position}, which cannot have been there yet"
                raise InvariantViolated(f"{early}: {stored[look.position]}")
