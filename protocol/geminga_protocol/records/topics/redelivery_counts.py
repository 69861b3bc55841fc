"""Redelivery counts of entries, as Geminga stores them: in properties of the cursor's position.

Apache Pulsar does not store these counts. Its brokers copy the properties of a position, unread,
when a single entry is acknowledged, and drop them on a cumulative acknowledgement. A count that is
found after such a broker owned the topic may therefore be too low, but never too high.

A property is a run of consecutive entries with the same count::

    geminga.redelivered.LEDGER.FIRST.LAST = TIMES        ids in decimal, both ends included
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

PROPERTY_PREFIX = "geminga.redelivered."
# What CommandMessage.redelivery_count holds, a uint32.
COUNT_MAX = (1 << 32) - 1
# Ledger id, first and last entry id. Ids have 19 digits at most (63 bits), and Python converts no
# text of more than 4,300 digits.
_RUN = re.compile(
    re.escape(PROPERTY_PREFIX) + r"(\d{1,19})\.(\d{1,19})\.(\d{1,19})",
    re.ASCII,
)


class CountedRun(NamedTuple):
    """Entries ``first`` to ``last`` of a ledger, each of which was redelivered ``times`` times."""

    ledger_id: int
    first: int
    last: int
    times: int


def is_of_redelivery_counts(property_name: str) -> bool:
    """Whether a property of a position is a redelivery count."""
    return property_name.startswith(PROPERTY_PREFIX)


def properties_of_runs(runs: Iterable[CountedRun]) -> dict[str, int]:
    """The properties that store ``runs``."""
    # A run for each property keeps their number small: consumers mostly give back messages in a
    # row.
    return {
        f"{PROPERTY_PREFIX}{run.ledger_id}.{run.first}.{run.last}": min(run.times, COUNT_MAX)
        for run in runs
    }


def runs_of_properties(properties: Mapping[str, int]) -> list[CountedRun]:
    """The runs in ``properties``, in order; properties that are no valid run are left out."""
    # Counts only help clients to give up on a message, so a damaged one must not fail the cursor.
    runs: list[CountedRun] = []
    for name, times in properties.items():
        # "geminga.redelivered.7.3.5": entries 3 to 5 of ledger 7.
        match = _RUN.fullmatch(name)
        if match is not None and 0 < times <= COUNT_MAX:
            ledger_id, first, last = map(int, match.groups())
            if first <= last:
                runs.append(CountedRun(ledger_id, first, last, times))
    return sorted(runs)
