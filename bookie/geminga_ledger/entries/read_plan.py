"""Which entries of a ledger a reader asks its bookies for next, so that it gets about as many bytes
as it gives out. Pure.

An entry has a byte or five million, and only its answer tells. But every entry says how many bytes
its ledger has up to it (``length``), so two entries tell how many lie between them. Together with
the entries of one window the reader therefore asks for one that is further on, where the window
after it is to end. When it reads that window, it knows how large it is before it asks::

    asked for now                      and the end of the next window
    +----------------------------------+                            |
    0 . . . . . . . . . . . . . . . . 99 100 . . . . . . . . . . . 199 200 . . .
                                         +---------------------------+
                                         length(199) - length(99) bytes

Where nothing tells sizes (a reader's first question, a jump), a few entries are asked for blindly.
What comes before it is needed is kept by the reader, so that no entry is read twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

# Entries that have no more than this together may all be asked for at once: the largest entry there
# can be (5 MiB) and the small ones of its window.
SURE_BYTES_MAX = 8 * 1024 * 1024
# So many entries are asked for though nothing tells their sizes: 40 MiB, if all are the largest.
BLIND_ENTRIES_MAX = 8
# What an entry is taken for where nothing is known of its ledger.
UNKNOWN_ENTRY_BYTES = 64 * 1024
# Entries whose lengths are remembered, the newest: three a window, at some places of the ledger.
LENGTHS_MAX = 64


class ReadPlan:
    """What is known of the sizes of one ledger's entries, and what to ask for.

    At most ``in_flight_max`` neighbours are asked for at once.
    """

    __slots__ = ("_entry_bytes", "_in_flight_max", "_lengths")

    def __init__(self, in_flight_max: int) -> None:
        self._in_flight_max = in_flight_max
        # By entry: the payload bytes of all up to and with it.
        self._lengths: dict[int, int] = {}
        # What an entry has on the average where entries were read last; 0 before that.
        self._entry_bytes = 0

    def note_end(self, last_entry: int, length_bytes: int) -> None:
        """The ledger has ``length_bytes`` up to ``last_entry``; 0: nobody knows how many."""
        if length_bytes and last_entry >= 0:
            self.note_length(last_entry, length_bytes)
            self._entry_bytes = self._entry_bytes or max(length_bytes // (last_entry + 1), 1)

    def note_length(self, entry_id: int, length: int) -> None:
        """The ledger has ``length`` bytes up to and with the entry."""
        lengths = self._lengths
        lengths.pop(entry_id, None)
        lengths[entry_id] = length
        if len(lengths) > LENGTHS_MAX:
            del lengths[next(iter(lengths))]

    def note_sizes(self, entries: int, size_bytes: int) -> None:
        """So many entries had so many bytes: the next ones may be like them."""
        self._entry_bytes = max(size_bytes // entries, 1)

    def next_ids(self, wanted: Sequence[int], room_bytes: int, window_bytes: int) -> list[int]:
        """What to ask for of ``wanted``, which are the entries to give out next, in growing order.

        ``room_bytes`` are to be given out still, ``window_bytes`` the next time. The first wanted
        is always asked for, with some that follow it; and the end of the next window.
        """
        sure, fitting, reach = self._known(wanted, room_bytes)
        if sure:
            count = min(max(fitting, min(sure, self._seeming(room_bytes))), self._in_flight_max)
            # A little less than a window, which mixed sizes would pass every other time.
            window = self._seeming(window_bytes - window_bytes // 8)
            end = min(count + window, max(reach, count)) if window > BLIND_ENTRIES_MAX else count
        else:
            end = min(self._seeming(room_bytes), reach)
            count = min(end, BLIND_ENTRIES_MAX)
        end = min(end, len(wanted))
        return [*wanted[:count], wanted[end - 1]] if end > count else [*wanted[:count]]

    def _seeming(self, size_bytes: int) -> int:
        """How many entries seem to have that many bytes."""
        entry_bytes = self._entry_bytes or UNKNOWN_ENTRY_BYTES
        return min(max(size_bytes // entry_bytes, 1), self._in_flight_max)

    def _known(self, wanted: Sequence[int], room_bytes: int) -> tuple[int, int, int]:
        """How many of ``wanted`` have surely no more than ``SURE_BYTES_MAX`` together, how many
        no more than ``room_bytes``; and beyond how many the bytes would probably be too many.

        Of entries with gaps between them the bytes in the gaps count too: as bounds they hold.
        """
        first = wanted[0]
        below, before = max(
            ((at, upto) for at, upto in self._lengths.items() if at < first), default=(-1, 0)
        )
        sure_id = fitting_id = -1
        beyond: tuple[int, int] | None = None
        for at, upto in self._lengths.items():
            if at >= first:
                if upto - before <= room_bytes:
                    fitting_id = max(fitting_id, at)
                if upto - before <= SURE_BYTES_MAX:
                    sure_id = max(sure_id, at)
                elif beyond is None or at < beyond[0]:
                    beyond = at, upto
        reach = len(wanted)
        if beyond is not None:
            share = (beyond[0] - below) * SURE_BYTES_MAX // (beyond[1] - before)
            reach = max(bisect_right(wanted, first - 1 + share), 1)
        return bisect_right(wanted, sure_id), bisect_right(wanted, fitting_id), reach
