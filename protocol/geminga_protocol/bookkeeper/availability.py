"""The entries of a ledger that a bookie has, as V3's GET_LIST_OF_ENTRIES_OF_LEDGER returns them.

A run is a sequence of consecutive entry ids. Runs of equal length at equal distances form one
group, so that a ledger that is striped over several bookies takes as little room as one that the
bookie has as a whole. Facts: ``AvailabilityOfEntriesOfLedger`` of Apache BookKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from geminga_protocol.errors import WireError

# +---------+--------------+-----------+-------+-------
# | version | group count  | (unused)  | group | group ...
# |  u32    |  u32         |  56 bytes |
# +---------+--------------+-----------+-------+-------
#  version is 0
_HEADER = Struct(">II56x")
HEADER_BYTES = 64
_VERSION = 0
assert _HEADER.size == HEADER_BYTES

# A group:
# +--------------------+-------------------+--------------+---------------------+
# | first run's start  | last run's start  | length       | distance of starts  |
# |  i64               |  i64              |  i32         |  i32                |
# +--------------------+-------------------+--------------+---------------------+
#  distance is 0 where the group has one run
_GROUP = Struct(">qqii")
GROUP_BYTES = 24
_I32_MAX = 0x7FFF_FFFF
assert _GROUP.size == GROUP_BYTES


class Run(NamedTuple):
    """The entries ``first`` to ``last``, both included."""

    first: int
    last: int


class Group(NamedTuple):
    """Runs of ``length`` entries, starting at ``first``, then every ``distance`` up to ``last``."""

    first: int
    last: int
    length: int
    distance: int

    def runs(self) -> Iterator[Run]:
        """The runs, in order."""
        # A group of one run has distance 0, and ``range`` refuses a step of 0.
        for start in range(self.first, self.last + 1, self.distance or 1):
            yield Run(start, start + self.length - 1)


def runs_of(entry_ids: Iterable[int]) -> list[Run]:
    """Group ascending entry ids into runs."""
    runs: list[Run] = []
    for entry_id in entry_ids:
        if runs and runs[-1].last + 1 == entry_id:
            runs[-1] = Run(runs[-1].first, entry_id)
        else:
            runs.append(Run(entry_id, entry_id))
    return runs


def join_runs(runs: Iterable[Run]) -> list[Run]:
    """Merge runs, which may overlap, into ascending runs with gaps between them."""
    joined: list[Run] = []
    # In ascending order a run can only touch the last one that was joined. Its end may lie before
    # the end of that one, where it is contained in it.
    for run in sorted(runs):
        if joined and run.first <= joined[-1].last + 1:
            joined[-1] = Run(joined[-1].first, max(run.last, joined[-1].last))
        else:
            joined.append(run)
    return joined


def encode_availability(runs: Iterable[Run]) -> bytes:
    """The bytes of the answer, for ascending runs with gaps between them."""
    groups: list[Group] = []
    for run in runs:
        # A length has 31 bits; a longer run becomes several.
        for first in range(run.first, run.last + 1, _I32_MAX):
            piece = Run(first, min(run.last, first + _I32_MAX - 1))
            joined = _joined(groups[-1], piece) if groups else None
            if joined is None:
                groups.append(Group(piece.first, piece.first, piece.last - piece.first + 1, 0))
            else:
                groups[-1] = joined
    return _HEADER.pack(_VERSION, len(groups)) + b"".join(_GROUP.pack(*group) for group in groups)


def decode_availability(content: bytes) -> list[Run]:
    """The runs in an answer. Raises ``WireError`` for other bytes."""
    if len(content) < HEADER_BYTES:
        raise WireError(f"a list of entries of {len(content)} bytes has no header")
    version, count = _HEADER.unpack_from(content)
    # Upstream's reader accepts bytes behind the last group; this one does not, because a count that
    # does not fit the length means that one of the two is damaged. A list that is read short would
    # report entries as missing which the bookie has.
    if version != _VERSION or len(content) != HEADER_BYTES + count * GROUP_BYTES:
        raise WireError(f"a list of entries of version {version} with {count} groups is not known")
    groups = map(Group._make, _GROUP.iter_unpack(content[HEADER_BYTES:]))
    return [run for group in groups for run in group.runs()]


def _joined(group: Group, run: Run) -> Group | None:
    """``group`` with ``run`` added; None where the run does not continue it."""
    # Runs ascend, so the distance is positive. It is stored in 31 bits.
    distance = run.first - group.last
    if run.last - run.first + 1 != group.length or distance > _I32_MAX:
        return None
    # 0: the group has one run so far, and this one sets the distance for all that follow.
    if group.distance not in (0, distance):
        return None
    return group._replace(last=run.first, distance=distance)
