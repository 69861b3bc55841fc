"""What goes wrong with single writes to ZooKeeper, chosen so that rare writes meet with it as well.

A change of a cluster takes several writes: a ledger's id, its record, the record of the log that
names it. With one rate over all of them, nearly all troubles would befall the kinds of write that
are made most often. Here a trouble waits for its write instead: the more often a kind of write was
made, the less likely its next one is chosen. So each step of a change meets with trouble, even of a
change that is made once. In a hundred seeds of the cluster's story a transaction on a bookie's
ledger was made 514 times and met with trouble 96 times, the deletion of a broker's node 61 and 26
times, and one of the 17,540 transactions on ledgers' ids in 65.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from random import Random

# Troubles that find no write for long must not befall all writes of a burst at once: older ones go.
WAITING_MAX = 2


class Trouble(Enum):
    """What may happen to a write, and what its client learns."""

    REFUSED = "is not made, for the connection breaks before it"
    UNANSWERED = "is made, and the connection breaks before the answer"
    LATE = "is made late"
    ANSWERED_LATE = "is made at once and answered late"
    EXPIRED = "is not made, for the session expires before it"
    EXPIRED_BEHIND = "is made, and the session expires before the answer"


class WriteTroubles:
    """The troubles that wait for their writes."""

    def __init__(self, random: Random) -> None:
        # How many writes of each kind met with a trouble, and how many were made while one waited.
        self.met = Counter[str]()
        self._written = Counter[str]()
        self._random = random
        # The next writes meet with these, the oldest first. Each has a function that is told which
        # write it was. The fault injector adds them, and clears what has not happened yet.
        self.waiting: deque[tuple[Trouble, Callable[[str], None]]] = deque(maxlen=WAITING_MAX)

    def meet(self, verb: str, path: str) -> Trouble | None:
        """The trouble of the write that is sent now; None most times."""
        if not self.waiting:
            return None
        # What the write does, and the topmost name and the depth of its path.
        kind = f"{verb} /{path.split('/', 2)[1]} {path.count('/')}"
        # Only while a trouble waits, so that the first write of a kind after that is met for sure.
        self._written[kind] += 1
        # The first write of a kind always, the n-th with a chance of one in n.
        if self._random.random() * self._written[kind] >= 1:
            return None
        # The oldest one: those behind it wait for other writes.
        trouble, note = self.waiting.popleft()
        self.met[kind] += 1
        note(f"{verb} of {path} {trouble.value}")
        return trouble
