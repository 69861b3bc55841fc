"""Notices a bookie that owes answers and gives none, though nobody may be waiting for them.

Where an ack quorum is smaller than the write quorum, entries are confirmed without the slowest
bookie; one that hangs for good would leave every entry a copy short, and nothing would stop. So
each look compares the last answers of each bookie with those of the look before. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

Answers = Sequence[int]
"""Entry ids that one read brought from a bookie. Only its identity matters here."""


class StallDetector:
    """Remembers, for each bookie of an ensemble, since when it has said nothing new."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Answers, float]] = {}

    def silent_s(self, bookie: int, last: Answers, now_s: float, *, owes: bool) -> float:
        """For how long ``bookie`` owes answers without giving any, as far as looks can tell.

        ``last`` is what it answered last, another object each time it did.
        """
        seen = self._seen.get(bookie)
        if not owes or seen is None or seen[0] is not last:
            self._seen[bookie] = last, now_s
            return 0.0
        return now_s - seen[1]
