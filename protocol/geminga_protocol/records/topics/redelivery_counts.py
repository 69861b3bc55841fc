"""Where Geminga keeps how often entries were given back: in properties of the cursor's position.

Apache Pulsar forgets these counts. It writes a position's properties on with every single
acknowledgement, unread, and lets them go with a cumulative one: what is found afterwards is lower
than the truth, never higher.

A property is a run of neighbouring entries with the same count::

    geminga.redelivered.LEDGER.FIRST.LAST = TIMES        ids in decimal, both ends included
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

PROPERTY_PREFIX = "geminga.redelivered."
# What CommandMessage.redelivery_count holds, a uint32.
COUNT_MAX = (1 << 32) - 1
_PARTS = 3


class CountedRun(NamedTuple):
    """Entries ``first`` to ``last`` of a ledger were given back so many ``times`` each."""

    ledger_id: int
    first: int
    last: int
    times: int


def is_of_redelivery_counts(property_name: str) -> bool:
    """Whether a property of a position is one of these."""
    return property_name.startswith(PROPERTY_PREFIX)


def properties_of_runs(runs: Iterable[CountedRun]) -> dict[str, int]:
    """The properties that keep ``runs``."""
    return {
        f"{PROPERTY_PREFIX}{run.ledger_id}.{run.first}.{run.last}": min(run.times, COUNT_MAX)
        for run in runs
    }


def runs_of_properties(properties: Mapping[str, int]) -> list[CountedRun]:
    """What ``properties`` keep, in order; what is no such run is left out."""
    found = (_run(name, times) for name, times in properties.items())
    return sorted(run for run in found if run is not None)


def _run(name: str, times: int) -> CountedRun | None:
    if not is_of_redelivery_counts(name) or not 0 < times <= COUNT_MAX:
        return None
    parts = name.removeprefix(PROPERTY_PREFIX).split(".")
    if len(parts) != _PARTS or not all(each.isascii() and each.isdigit() for each in parts):
        return None
    ledger_id, first, last = map(int, parts)
    return CountedRun(ledger_id, first, last, times) if first <= last else None
