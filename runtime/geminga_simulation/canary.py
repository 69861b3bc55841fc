"""Bugs planted on purpose, to see that the rig finds them.

A checker that never fails proves nothing. With a canary the simulated machinery itself breaks a
promise that the system under test is built upon; a run must then end in ``InvariantViolated``.
"""

from __future__ import annotations

from enum import Enum


class Canary(Enum):
    """The promise that is broken."""

    NONE = "none"
    LYING_DISK = "syncs return at once and make nothing safe"
    LEAKY_STREAM = "a stream silently loses a chunk now and then"
    DEAF_WATCH = "a change fires no watch now and then"


# The last two strike once in so many chances.
CHANCES_PER_STRIKE = 64
