"""The fragments of a ledger: which entries belong on which bookie.

Pure. Facts: ``LedgerFragment``, ``LedgerChecker`` and ``RoundRobinDistributionSchedule`` of Apache
BookKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from geminga_ledger.errors import UnsupportedLedger
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata, LedgerState

PERCENT = 100


@dataclass(frozen=True, slots=True)
class LedgerFragment:
    """Entries ``first_entry`` … ``last_entry`` (none where that is less) on one ensemble.

    ``is_open``: the last fragment of a ledger that is not closed. Its end is not known, and only
    the ledger's writer, or a recovery, may change it.
    """

    first_entry: int
    last_entry: int
    ensemble: tuple[str, ...]
    is_open: bool = False


def quorum_of(ledger_id: int, metadata: LedgerMetadata) -> Quorum:
    """The ledger's sizes. Raises ``UnsupportedLedger`` for metadata that contradicts itself."""
    # Any client may have written it: metadata that contradicts itself is not repaired by a guess.
    try:
        quorum = Quorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    except ValueError as error:
        raise UnsupportedLedger(ledger_id, f"has sizes that make no sense: {error}") from error
    if not metadata.fragments or any(
        len(each.ensemble) != quorum.ensemble_size for each in metadata.fragments
    ):
        raise UnsupportedLedger(ledger_id, "has fragments that do not fit its ensemble size")
    return quorum


def fragments_of(metadata: LedgerMetadata) -> tuple[LedgerFragment, ...]:
    """All fragments, in order, each with its end.

    Every fragment but the last is confirmed to its end: a writer changes its ensemble at the first
    entry that is not confirmed.
    """
    is_closed = metadata.state is LedgerState.CLOSED
    starts = [each.first_entry for each in metadata.fragments]
    last = len(starts) - 1
    fragments: list[LedgerFragment] = []
    for number, fragment in enumerate(metadata.fragments):
        # A ledger whose ensemble changed at entries 100 and 250:
        #
        #     fragments     0 ............ 99 | 100 .......... 249 | 250 ..........
        #     ensemble      b1 b2 b3          | b1 b4 b3           | b1 b4 b5
        #     end           99                | 249                | last_entry; open: not known
        if number < last:
            end = starts[number + 1] - 1
        else:
            # An open end is not known: as if the fragment had no entries.
            end = metadata.last_entry if is_closed else fragment.first_entry - 1
        is_open = number == last and not is_closed
        fragments.append(LedgerFragment(fragment.first_entry, end, fragment.ensemble, is_open))
    return tuple(fragments)


def bookies_of(metadata: LedgerMetadata) -> frozenset[str]:
    """Every bookie in an ensemble of the ledger."""
    return frozenset(bookie for each in metadata.fragments for bookie in each.ensemble)


def belongs_on(quorum: Quorum, entry_id: int, index: int) -> bool:
    """Whether an entry should be on the bookie with this index in the ensemble."""
    # Round robin: entry n is on Qw slots from n mod E on, around the end.
    #     E = 3, Qw = 2      slot 0    slot 1    slot 2
    #     entry 0              x         x
    #     entry 1                        x         x
    #     entry 2              x                   x
    return (index - entry_id) % quorum.ensemble_size < quorum.write_quorum


def entries_to_verify(
    fragment: LedgerFragment,
    quorum: Quorum,
    index: int,
    *,
    percentage: int,
    draw: Callable[[int], int],
) -> list[int]:
    """The entries that a check reads from one bookie of a closed fragment, in order.

    The first and the last that the bookie should have; and the stretch between them is divided into
    so many equal parts that one entry drawn from each makes up ``percentage`` of it. All where that
    is 100. ``draw(n)`` gives a random number below n.
    """
    first, last = fragment.first_entry, fragment.last_entry
    width = quorum.ensemble_size
    # The bookie has an entry among any ``ensemble_size`` neighbours.
    ends = [
        next((each for each in some if belongs_on(quorum, each, index)), None)
        for some in (
            range(first, min(first + width, last + 1)),
            range(last, max(last - width, first - 1), -1),
        )
    ]
    # A fragment of few entries may have none for this bookie.
    if ends[0] is None or ends[1] is None:
        return []
    first, last = ends[0], ends[1]
    chosen: Iterable[int] = ()
    length = last - first + 1
    # Of all entries in the stretch, not only of those on this bookie: in each part, the draw hits
    # one of the bookie's with probability Qw / E, so that the share comes out right.
    count = length * percentage // PERCENT
    if percentage >= PERCENT:
        chosen = range(first, last + 1)
    elif count:
        # From each part one, so that every stretch of the fragment is looked at.
        starts = [first + length * number // count for number in range(count + 1)]
        chosen = (start + draw(end - start) for start, end in pairwise(starts))
    # A drawn entry may belong on other bookies: then it is read there, by their draws.
    return sorted({first, last, *(each for each in chosen if belongs_on(quorum, each, index))})
