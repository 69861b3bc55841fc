"""Where a ledger ends whose writer is gone: what recovery concludes from the bookies' answers.

BookKeeper's rules (``ReadLastConfirmedOp``, ``LedgerRecoveryOp``, ``PendingReadOp``), as pure
decisions; ``recovery`` asks the questions. First every bookie of the last ensemble is fenced and
asked for the newest entry it has: a confirmed entry carries in it how far its writer was confirmed
(``LastEntryVotes``). From there on each next entry is looked for, one bookie of its write set after
the other (``quorum.EntrySearch``), until one is proven never to have been confirmed.

An entry that only a minority stored was never confirmed to anybody: keeping it or leaving it out
are both right. BookKeeper leaves it out where enough bookies that lack it are asked first. Here
every bookie that answers is asked, and a copy that any of them has is kept: one of those that lack
it may have confirmed it and lost it since, with the end of its journal or behind a disk that lies.
"""

from __future__ import annotations

from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.records.ledger_metadata import NO_ENTRY

_ABSENT = frozenset({int(ReturnCode.ENOENTRY), int(ReturnCode.ENOLEDGER)})


def is_absence(return_code: int) -> bool:
    """Whether a bookie said that it does not have the entry (and not that it cannot tell)."""
    return return_code in _ABSENT


class LastEntryVotes:
    """Collects what the bookies of one ensemble say their newest entry is, fencing them or not.

    ``last_confirmed`` is the most that any of these entries tells, ``length_bytes`` the ledger's
    length in the entry that told it (-1 and 0 where none told anything). ``heard`` are the bookies
    whose answer counts.
    """

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self.heard: set[int] = set()
        self.last_confirmed = NO_ENTRY
        self.length_bytes = 0

    def found(self, bookie: int, last_confirmed: int, length_bytes: int) -> None:
        """The newest entry of ``bookie`` was written when ``last_confirmed`` was that."""
        self.heard.add(bookie)
        if last_confirmed > self.last_confirmed:
            self.last_confirmed = last_confirmed
            self.length_bytes = length_bytes

    def empty(self, bookie: int) -> None:
        """``bookie`` answered, and has no entry of the ledger, or none that can be believed."""
        self.heard.add(bookie)

    @property
    def is_decided(self) -> bool:
        """Whether those that answered speak for all entries that can have been confirmed.

        Where the answers fenced, no writer gets an entry confirmed any more.
        """
        return self._quorum.is_covered(self.heard)


def recovery_start(votes_last_confirmed: int, first_entry_of_last_fragment: int) -> int:
    """The highest entry that needs no recovery.

    All before the last fragment was confirmed when that fragment began, whatever its bookies know.
    """
    return max(votes_last_confirmed, first_entry_of_last_fragment - 1)
