"""Which bookies hold an entry, and when enough of them do: BookKeeper's arithmetic, nothing else.

An ensemble of E bookies is numbered 0 … E-1. Entry ``e`` goes to the Qw bookies ``e % E``,
``(e + 1) % E``, …; it is confirmed when Qa of them have stored it and every earlier entry is
confirmed. Facts: ``RoundRobinDistributionSchedule`` and ``LedgerHandle`` of Apache BookKeeper.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

# An ensemble of E = 3 bookies with Qw = 2; x is a copy:
#
#               entry   0   1   2   3   4   5
#     bookie 0          x       x   x       x       write set of 0: 0, 1
#     bookie 1          x   x       x   x                        1: 1, 2
#     bookie 2              x   x       x   x                    2: 2, 0
#
# With Qa = 2 entry 1 is confirmed when bookies 1 and 2 have stored it, and entry 0 is confirmed.
# All rules follow from two numbers:
#
# - An entry that Qw - Qa + 1 bookies of its write set do not have was never confirmed: the others
#   are fewer than Qa.
# - A set of bookies is enough to speak for all entries when it leaves fewer than Qa of any write
#   set out: then no entry can have been confirmed without one of them. Fencing these stops the
#   writer; their newest entries show how far it got.


@dataclass(frozen=True, slots=True)
class Quorum:
    """E, Qw and Qa of a ledger, with 1 <= Qa <= Qw <= E; anything else raises ``ValueError``."""

    ensemble_size: int = 1
    write_quorum: int = 1
    ack_quorum: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.ack_quorum <= self.write_quorum <= self.ensemble_size:
            raise ValueError(
                f"ack quorum {self.ack_quorum}, write quorum {self.write_quorum}, ensemble size "
                f"{self.ensemble_size}: each must be at most the next, and the first at least 1"
            )

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """The bookies of an entry, in the order in which a reader asks them."""
        # Round robin: reads and writes are spread over the ensemble entry by entry ("striping").
        return tuple((entry_id + step) % self.ensemble_size for step in range(self.write_quorum))

    def newest_of(self, bookie: int, last_entry: int) -> int:
        """The newest entry up to ``last_entry`` that goes to ``bookie``; -1 for none."""
        # A bookie has an entry among any ``ensemble_size`` neighbours.
        for entry_id in range(last_entry, max(last_entry - self.ensemble_size, -1), -1):
            if bookie in self.write_set(entry_id):
                return entry_id
        return -1

    def telling(self, entry_id: int) -> list[int]:
        """All bookies, in the order in which they are likely to know that more than ``entry_id`` is
        confirmed.

        That entry ``entry_id + 1`` is confirmed reaches its own write set by an explicit LAC, and
        that of ``entry_id + 2`` with that entry: a bookie of both comes first.
        """
        near = self.write_set(entry_id + 1), self.write_set(entry_id + 2)
        # From the first bookie of the next entry on; the sort keeps this order among equals.
        bookies = [(entry_id + 1 + step) % self.ensemble_size for step in range(self.ensemble_size)]
        return sorted(bookies, key=lambda bookie: -sum(bookie in each for each in near))

    @property
    def write_sets(self) -> tuple[tuple[int, ...], ...]:
        """All write sets there are; that of an entry is number ``entry_id % ensemble_size``."""
        return tuple(map(self.write_set, range(self.ensemble_size)))

    @property
    def absences_proving(self) -> int:
        """So many bookies of a write set without an entry prove that it was never confirmed:
        fewer than Qa are left."""
        return self.write_quorum - self.ack_quorum + 1

    def is_covered(self, known: Collection[int]) -> bool:
        """Whether no entry can have been confirmed only by bookies outside ``known``.

        That holds when every write set has fewer than Qa bookies that are unknown: then a fence on
        the known ones stops the writer, and their answers together speak for all it confirmed.
        """
        # With E = Qw = 3 and Qa = 2 one bookie may be unknown. With E = 4 and Qw = Qa = 2 it may be
        # two that share no write set, such as 0 and 2.
        return all(
            sum(bookie not in known for bookie in write_set) < self.ack_quorum
            for write_set in self.write_sets
        )


class Acknowledgements:
    """Counts which bookies have stored which entry, and moves ``last_confirmed`` along in order.

    Bookies are numbered by slot. Bounded by the entries that are on their way: nothing is kept of
    an entry once it is confirmed.
    """

    __slots__ = (
        "_enough",
        "_ensemble_size",
        "_refused",
        "_stored",
        "_write_masks",
        "last_confirmed",
        "quorum",
    )

    def __init__(self, quorum: Quorum, last_confirmed: int = -1) -> None:
        self.quorum = quorum
        self.last_confirmed = last_confirmed
        self._ensemble_size = quorum.ensemble_size
        # How many copies confirm an entry; while held, more than there can be.
        self._enough = quorum.ack_quorum
        # The bookies of each write set as a bit set; an entry's is number ``entry_id % E``.
        self._write_masks = [sum(1 << each for each in bookies) for bookies in quorum.write_sets]
        # Bit sets of bookies by entry id, of entries that at least one bookie answered for. Both
        # have entries beyond ``last_confirmed`` only: ``record`` and ``refuse`` take no others, and
        # an entry leaves when it is confirmed. An entry of ``_refused`` whose bits were all
        # forgiven may stay longer; without a bit it counts for nothing.
        self._stored: dict[int, int] = {}
        self._refused: dict[int, int] = {}

    def record(self, bookie: int, entry_ids: list[int], last_pushed: int) -> int:
        """``bookie`` has stored these entries (in any order, repeats allowed); HOT.

        Returns the new ``last_confirmed``. Entries beyond ``last_pushed`` or outside the bookie's
        write sets were never sent to it: answers for them count for nothing.
        """
        confirmed = self.last_confirmed
        stored = self._stored
        # Not while held: then ``_enough`` is 2. Nor while ``stored`` has an entry that was answered
        # out of order: the loops below must count that.
        if self._enough == 1 and not stored and self._ensemble_size == 1:
            # The one bookie nearly always answers in order. Comparing with a range costs 20 ns an
            # entry, counting each one 220 ns.
            last = confirmed + len(entry_ids)
            if last <= last_pushed and entry_ids == list(range(confirmed + 1, last + 1)):
                self.last_confirmed = last
                return last
        ensemble_size = self._ensemble_size
        write_masks = self._write_masks
        mask = 1 << bookie
        for entry_id in entry_ids:
            # A bit set again changes nothing: a bookie answers an entry twice that was sent twice.
            if confirmed < entry_id <= last_pushed and write_masks[entry_id % ensemble_size] & mask:
                stored[entry_id] = stored.get(entry_id, 0) | mask
        # In order: an entry that has enough copies waits for the ones before it. Ends at the first
        # entry without an answer: it has 0 copies, and ``enough`` is at least 1. While held,
        # ``enough`` is more than E, and the loop does not begin.
        enough = self._enough
        entry_id = confirmed + 1
        while stored.get(entry_id, 0).bit_count() >= enough:
            del stored[entry_id]
            if self._refused:
                self._refused.pop(entry_id, None)
            entry_id += 1
        self.last_confirmed = entry_id - 1
        return entry_id - 1

    def hold(self) -> None:
        """Count on, but confirm nothing until ``release``: the ensemble is about to change."""
        self._enough = self._ensemble_size + 1

    def release(self) -> None:
        """Confirm again, from the next ``record`` on."""
        self._enough = self.quorum.ack_quorum

    def forget(self, bookie: int) -> None:
        """``bookie`` is replaced: the old one's copies of unconfirmed entries do not count.

        These entries belong to the new ensemble. One that was confirmed by the old bookie's copy
        would have one copy less than promised, and recovery might not find it.
        """
        keep = ~(1 << bookie)
        for entry_id, stored in self._stored.items():
            self._stored[entry_id] = stored & keep
        self.forgive(bookie)

    def refuse(self, bookie: int, entry_id: int) -> None:
        """``bookie`` will not store the entry."""
        # What the other bookies have confirmed meanwhile does not need this one.
        if entry_id > self.last_confirmed:
            self._refused[entry_id] = self._refused.get(entry_id, 0) | 1 << bookie

    def hopeless(self) -> int | None:
        """The first entry that so many bookies refused that these can never confirm it."""
        for entry_id in sorted(self._refused):
            # A bookie that refused may have stored it when it was sent again.
            refused = self._refused[entry_id] & ~self._stored.get(entry_id, 0)
            # Fewer than Qa bookies are left that may store it.
            if refused.bit_count() >= self.quorum.absences_proving:
                return entry_id
        return None

    def forgive(self, bookie: int) -> None:
        """``bookie`` is sent again all that it has not stored: its refusals no longer count."""
        for entry_id, refused in list(self._refused.items()):
            self._refused[entry_id] = refused & ~(1 << bookie)

    def unstored(self, bookie: int, last_pushed: int) -> Iterator[int]:
        """Unconfirmed entries that belong on ``bookie`` and that it has not stored, in order."""
        mask = 1 << bookie
        for entry_id in range(self.last_confirmed + 1, last_pushed + 1):
            if (
                self._write_masks[entry_id % self._ensemble_size] & mask
                and not self._stored.get(entry_id, 0) & mask
            ):
                yield entry_id

    def lagging(self, entry_id: int) -> list[int]:
        """The bookies that should store the entry and have not acknowledged it."""
        stored = self._stored.get(entry_id, 0)
        return [each for each in self.quorum.write_set(entry_id) if not stored & 1 << each]


class Verdict(Enum):
    """What is known of one entry."""

    ABSENT = "absent"  # so many bookies do not have it that it was never confirmed, or is lost
    UNDECIDED = "undecided"  # no copy found, but those that did not answer may have one


class EntrySearch:
    """Looks for one entry on its write set, from the first bookie of it to the last.

    Where no bookie has it, ``absences_proving`` bookies that say so are the proof that it was never
    confirmed: ``Quorum.absences_proving`` where only confirmed entries matter, the write quorum
    where every copy does. The other bookies are asked all the same: one that lost an entry which it
    had confirmed says that it has none, too, and must not outweigh a copy that another has. More
    than one bookie may be asked at a time.
    """

    __slots__ = ("_absences_left", "_tried", "_write_set", "awaited")

    def __init__(self, write_set: tuple[int, ...], absences_proving: int) -> None:
        self._write_set = write_set
        # How many bookies were asked, in the order of the write set.
        self._tried = 0
        # How many more absences would be the proof; negative beyond it.
        self._absences_left = absences_proving
        # Bookies that were asked and have not answered.
        self.awaited: tuple[int, ...] = ()

    def next_bookie(self) -> int | None:
        """The bookie to ask next; None when all were asked."""
        if self._tried == len(self._write_set):
            return None
        bookie = self._write_set[self._tried]
        self._tried += 1
        self.awaited = (*self.awaited, bookie)
        return bookie

    def absent(self, bookie: int) -> Verdict | None:
        """``bookie`` does not have it; a verdict where one is possible."""
        # The caller reports each asked bookie once, having looked for it in ``awaited``. A second
        # report would count the same absence twice, and prove what is not so.
        self._absences_left -= 1
        return self.unknown(bookie)

    @property
    def is_proven(self) -> bool:
        """Whether enough bookies do not have it, whatever the others say."""
        return self._absences_left <= 0

    def unknown(self, bookie: int) -> Verdict | None:
        """``bookie`` gives no answer that counts; a verdict where one is possible."""
        self.awaited = tuple(each for each in self.awaited if each != bookie)
        # Another answer may still bring a copy.
        if self.awaited or self._tried < len(self._write_set):
            return None
        return Verdict.ABSENT if self.is_proven else Verdict.UNDECIDED
