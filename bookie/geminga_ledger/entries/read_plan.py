"""Which entries of a ledger a reader requests next, so that it gets about as many bytes as it gives
out. Pure.

An entry may have one byte or five million, and only its answer shows it. But every entry carries
how many bytes its ledger has up to it (``length``), so two entries show how many bytes lie between
them. Together with the entries of one window the reader therefore requests one that is further on,
where the window after it is to end. When it reads that window, it knows how large it is before it
requests it::

    requested now                      and the end of the next window
    +----------------------------------+                            |
    0 . . . . . . . . . . . . . . . . 99 100 . . . . . . . . . . . 199 200 . . .
                                         +---------------------------+
                                         length(199) - length(99) bytes

Where no sizes are known (a reader's first request, a jump), a few entries are requested blindly.
The reader keeps what comes before it is needed, so that no entry is read twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

# Entries that have no more than this together may all be requested at once: the largest entry there
# can be (5 MiB) and the small ones of its window.
SURE_BYTES_MAX = 8 * 1024 * 1024
# So many entries are requested though their sizes are not known: 40 MiB, if all are the largest.
BLIND_ENTRIES_MAX = 8
# The assumed size of an entry where nothing is known of its ledger.
UNKNOWN_ENTRY_BYTES = 64 * 1024
# Entries whose lengths are remembered, the newest: three a window, at some places of the ledger.
LENGTHS_MAX = 64


@dataclass(eq=False, slots=True)
class ReadPlan:
    """What is known of the sizes of one ledger's entries, and what to request.

    At most ``in_flight_max`` neighbours are requested at once.
    """

    in_flight_max: int
    # By entry: the payload bytes of all up to and with it.
    _lengths: dict[int, int] = field(default_factory=dict[int, int], init=False)
    # The average size of an entry where entries were read last; 0 before that.
    _entry_bytes: int = field(default=0, init=False)

    def note_end(self, last_entry: int, length_bytes: int) -> None:
        """The ledger has ``length_bytes`` up to ``last_entry``; 0: not known."""
        if length_bytes and last_entry >= 0:
            self.note_length(last_entry, length_bytes)
            self._entry_bytes = self._entry_bytes or max(length_bytes // (last_entry + 1), 1)

    def note_length(self, entry_id: int, length: int) -> None:
        """The ledger has ``length`` bytes up to and with the entry."""
        # To the end, also where it was known already: the front is forgotten first.
        lengths = self._lengths
        lengths.pop(entry_id, None)
        lengths[entry_id] = length
        if len(lengths) > LENGTHS_MAX:
            del lengths[next(iter(lengths))]

    def note_sizes(self, entries: int, size_bytes: int) -> None:
        """So many entries had so many bytes: the next ones may be like them."""
        self._entry_bytes = max(size_bytes // entries, 1)

    def next_ids(self, wanted: Sequence[int], room_bytes: int, window_bytes: int) -> list[int]:
        """What to request of ``wanted``, which are the entries to give out next, in growing order.

        ``room_bytes`` are to be given out still, ``window_bytes`` the next time. The first wanted
        is always requested, with some that follow it; and the end of the next window.
        """
        sure, fitting, reach = self._known(wanted, room_bytes)
        # Known lengths bound the bytes of the first ``sure`` entries: so many may go out at once.
        if sure:
            # All that surely fit into the room, or so many as probably do.
            count = min(max(fitting, min(sure, self._seeming(room_bytes))), self.in_flight_max)
            # A little less than a window, which mixed sizes would pass every other time.
            window = self._seeming(window_bytes - window_bytes // 8)
            end = min(count + window, max(reach, count)) if window > BLIND_ENTRIES_MAX else count
        else:
            # Nothing is known from here on. A few entries go out blindly, together with the end of
            # this window: the next request knows the size of what lies between.
            end = min(self._seeming(room_bytes), reach)
            count = min(end, BLIND_ENTRIES_MAX)
        # ``end`` is one past the end of the next window.
        end = min(end, len(wanted))
        return [*wanted[:count], wanted[end - 1]] if end > count else [*wanted[:count]]

    def _seeming(self, size_bytes: int) -> int:
        """How many entries probably have that many bytes, by the average."""
        entry_bytes = self._entry_bytes or UNKNOWN_ENTRY_BYTES
        return min(max(size_bytes // entry_bytes, 1), self.in_flight_max)

    def _known(self, wanted: Sequence[int], room_bytes: int) -> tuple[int, int, int]:
        """How many of ``wanted`` have surely no more than ``SURE_BYTES_MAX`` together, how many
        no more than ``room_bytes``; and beyond how many the bytes would probably be too many.

        Of entries with gaps between them the bytes in the gaps count too: as bounds they hold.
        """
        first = wanted[0]
        # The nearest known entry before the first wanted, and the ledger's bytes up to it.
        below, before = max(
            ((at, upto) for at, upto in self._lengths.items() if at < first), default=(-1, 0)
        )
        sure_id = fitting_id = -1
        beyond: tuple[int, int] | None = None
        for at, upto in self._lengths.items():
            # Growing ids have growing lengths, so the largest id below a bound tells how far the
            # bound reaches.
            if at >= first:
                if upto - before <= room_bytes:
                    fitting_id = max(fitting_id, at)
                if upto - before <= SURE_BYTES_MAX:
                    sure_id = max(sure_id, at)
                elif beyond is None or at < beyond[0]:
                    beyond = at, upto
        # Up to ``beyond`` the bytes are too many: its share of the entries, taken as equally large.
        reach = len(wanted)
        if beyond is not None:
            share = (beyond[0] - below) * SURE_BYTES_MAX // (beyond[1] - before)
            reach = max(bisect_right(wanted, first - 1 + share), 1)
        return bisect_right(wanted, sure_id), bisect_right(wanted, fitting_id), reach
