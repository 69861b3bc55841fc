"""Where a ledger ends whose writer is gone: what recovery concludes from the bookies' answers.

BookKeeper's rules (``ReadLastConfirmedOp``, ``LedgerRecoveryOp``, ``PendingReadOp``), as pure
decisions; ``recovery`` sends the requests. First every bookie of the last ensemble is fenced and
asked for the newest entry it has, which carries how far its writer was confirmed when it was sent
(``LastEntryVotes``). From there on each next entry is looked for, one bookie of its write set after
the other (``quorum.EntrySearch``), until one is proven never to have been confirmed.

An entry that fewer than Qa bookies stored was never confirmed: keeping it and leaving it out are
both right. BookKeeper leaves it out where enough bookies that lack it are asked first. Here every
bookie that answers is asked, and a copy that any of them has is kept: a bookie that lacks it may
have confirmed it and lost it since, with the end of its journal or behind a disk that lies.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.records.ledgers.ledger_metadata import NO_ENTRY

# A writer has sent entries 0 … 5 to bookies a, b, c (Qw = 3, Qa = 2), and is gone:
#
#     a   0 1 2 3 4 5     its newest entry, 5, was sent when 2 was confirmed
#     b   0 1 2 3 4       its newest entry, 4, was sent when 2 was confirmed
#     c   0 1 2           its newest entry, 2, was sent when 0 was confirmed
#
# So 0, 1 and 2 are confirmed for sure, and recovery starts at 3. 3 and 4 may have been confirmed,
# by a and b: they are stored again on all three. 5 cannot have been, but a gives it, and it is
# kept. Where only b and c answer, 5 is absent on two bookies, which proves that it was not
# confirmed: the ledger ends at 4.

# A bookie that has other entries of the ledger answers ENOENTRY, one that has none ENOLEDGER.
_ABSENT = frozenset({int(ReturnCode.ENOENTRY), int(ReturnCode.ENOLEDGER)})


def is_absence(return_code: int) -> bool:
    """Whether a bookie that answers so does not have the entry, rather than failed."""
    return return_code in _ABSENT


@dataclass(eq=False, slots=True)
class LastEntryVotes:
    """Collects what the bookies of one ensemble answer about their newest entry."""

    quorum: Quorum
    # The bookies whose answers count, by slot. One that has no entry of the ledger, or only a
    # damaged one, is added by the caller; one that has, by ``found``.
    heard: set[int] = field(default_factory=set[int], init=False)
    # The highest last-add-confirmed that any of the entries carries; -1 for none.
    last_confirmed: int = field(default=NO_ENTRY, init=False)
    # The ledger's length in the entry that carries it: it may count entries that follow
    # ``last_confirmed``.
    length_bytes: int = field(default=0, init=False)

    def found(self, bookie: int, last_confirmed: int, length_bytes: int) -> None:
        """``bookie`` has an entry, which was sent when the ledger was confirmed up to there."""
        self.heard.add(bookie)
        # Of several entries with the same LAC, the length of any will do: it is a hint for where
        # entry ``last_confirmed`` itself cannot be read (``LedgerRecovery``).
        if last_confirmed > self.last_confirmed:
            self.last_confirmed = last_confirmed
            self.length_bytes = length_bytes

    @property
    def is_decided(self) -> bool:
        """Whether enough bookies have answered: no entry can be confirmed by the others alone.

        Where the requests fenced, no writer gets an entry confirmed any more from then on.
        """
        return self.quorum.is_covered(self.heard)


def recovery_start(votes_last_confirmed: int, first_entry_of_last_fragment: int) -> int:
    """The highest entry that needs no recovery.

    All before the last fragment was confirmed when that fragment began, whatever its bookies know.
    """
    return max(votes_last_confirmed, first_entry_of_last_fragment - 1)
