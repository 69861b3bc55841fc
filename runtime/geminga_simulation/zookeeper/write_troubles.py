"""What goes wrong with one write to ZooKeeper, chosen so that writes of all kinds meet with it.

A change of a cluster takes several writes: a ledger's id, its record, the record of the log that
names it. A rate over all of them hits those that come a hundred times as often a hundred times as
often. Here a trouble waits for its write instead: the oftener a kind of write has come, the less
likely is the next one of it to be the one. So each of the steps of a change meets with trouble,
also of a change that is made once. In a hundred seeds of the cluster's story a transaction on a
bookie's ledger was made 514 times and met with it 96 times, the deletion of a broker's node 61 and
26 times, and one of the 17,540 transactions on ledgers' ids in 65.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from random import Random

# Those that find no write for long must not come all at once where many writes do.
WAITING_MAX = 2


class Trouble(Enum):
    """What may happen to a write, and what its client learns."""

    REFUSED = "is not made, for the connection breaks before it"
    UNANSWERED = "is made, and the connection breaks before the answer"
    LATE = "is made late"
    ANSWERED_LATE = "is made at once and answered late"
    EXPIRED = "is not made, for the session expires before it"
    EXPIRED_BEHIND = "is made, and the session expires before the answer"


def kind_of(verb: str, path: str) -> str:
    """Which writes are alike: those that do the same to nodes of one depth of one tree."""
    return f"{verb} /{path.split('/', 2)[1]} {path.count('/')}"


class WriteTroubles:
    """The troubles that wait for their writes. ``met`` counts the writes that met with one."""

    def __init__(self, random: Random) -> None:
        self.met = Counter[str]()
        self._random = random
        self._written = Counter[str]()
        self._waiting: deque[tuple[Trouble, Callable[[str], None]]] = deque(maxlen=WAITING_MAX)

    def plan(self, trouble: Trouble, note: Callable[[str], None]) -> None:
        """Let one of the next writes meet with ``trouble``; ``note`` is told which one did."""
        self._waiting.append((trouble, note))

    def clear(self) -> None:
        """Let nothing happen that has not happened yet."""
        self._waiting.clear()

    def meet(self, verb: str, path: str) -> Trouble | None:
        """What the write that is sent now meets with: nothing, most times."""
        if not self._waiting:
            return None
        kind = kind_of(verb, path)
        self._written[kind] += 1
        if self._random.random() * self._written[kind] >= 1:
            return None
        trouble, note = self._waiting.popleft()
        self.met[kind] += 1
        note(f"{verb} of {path} {trouble.value}")
        return trouble
