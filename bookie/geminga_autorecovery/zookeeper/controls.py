"""The controls of auto-recovery in ZooKeeper: the switch, a lost bookie's grace, the last checks.

``bookkeeper shell autorecovery`` and ``lostbookierecoverydelay`` change them too. All functions
raise ``CoordinationError``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.ledgers.underreplication import (
    DISABLED_PATH,
    LAST_CHECK_PATH,
    LAST_PLACEMENT_CHECK_PATH,
    LAST_REPLICAS_CHECK_PATH,
    LOST_BOOKIE_DELAY_PATH,
    decode_last_check,
    decode_last_placement_check,
    decode_last_replicas_check,
    decode_lost_bookie_delay,
    encode_last_check,
    encode_last_placement_check,
    encode_last_replicas_check,
    encode_lost_bookie_delay,
)
from geminga_runtime.coordination import Coordination, NodeExists, NodeMissing, OnChange

log = logging.getLogger(__name__)


async def is_enabled(coordination: Coordination, *, on_change: OnChange | None = None) -> bool:
    """Whether auditors and workers may do anything; ``on_change`` is called when that changes."""
    return await coordination.exists(DISABLED_PATH, on_change=on_change) is None


async def enable(coordination: Coordination) -> bool:
    """Switch auto-recovery on; False where it was on."""
    try:
        # The node is the switch, and its absence means on: a new cluster recovers by itself.
        await coordination.delete(DISABLED_PATH)
    except NodeMissing:
        return False
    return True


async def disable(coordination: Coordination) -> bool:
    """Switch auto-recovery off until it is enabled again; False where it was off."""
    try:
        # The node is persistent: it outlives the tool that made it, and every daemon.
        await coordination.create(DISABLED_PATH, make_parents=True)
    except NodeExists:
        return False
    return True


async def initialize_lost_bookie_delay(coordination: Coordination, seconds: int) -> None:
    """Write a lost bookie's grace, unless one is written already: by an operator, perhaps."""
    with suppress(NodeExists):
        await coordination.create(
            LOST_BOOKIE_DELAY_PATH, encode_lost_bookie_delay(seconds), make_parents=True
        )


async def set_lost_bookie_delay(coordination: Coordination, seconds: int) -> None:
    """Write a lost bookie's grace. Writing the same value again makes the auditor audit at once."""
    value = encode_lost_bookie_delay(seconds)
    try:
        # Any write raises the node's version, by which the auditor notices it.
        await coordination.set(LOST_BOOKIE_DELAY_PATH, value)
    except NodeMissing:
        await coordination.create(LOST_BOOKIE_DELAY_PATH, value, make_parents=True)


def lost_bookie_delay_of(value: bytes, default_s: int) -> int:
    """A lost bookie's grace in seconds, by its node; the default where that has no number."""
    try:
        return decode_lost_bookie_delay(value)
    except MalformedRecord as error:
        log.warning("lost bookie's grace not readable", extra={"error": str(error)})
        return default_s


@dataclass(frozen=True, slots=True)
class LastCheck:
    """The node with the time of the last check of one kind, and its format."""

    path: str
    encode: Callable[[int], bytes]
    decode: Callable[[bytes], int]


# The three kinds: reading some entries, comparing ensembles with the rules of placement, comparing
# the lists of entries that bookies have.
READING = LastCheck(LAST_CHECK_PATH, encode_last_check, decode_last_check)
PLACEMENT = LastCheck(
    LAST_PLACEMENT_CHECK_PATH, encode_last_placement_check, decode_last_placement_check
)
REPLICAS = LastCheck(
    LAST_REPLICAS_CHECK_PATH, encode_last_replicas_check, decode_last_replicas_check
)


async def last_check_ms(coordination: Coordination, kind: LastCheck = READING) -> int | None:
    """When all ledgers were last checked so (Unix milliseconds); None for never."""
    try:
        # A time that cannot be read counts as never: the check runs too early, not too late.
        value, _ = await coordination.get(kind.path)
        return kind.decode(value) or None  # 0: never
    except NodeMissing:
        return None
    except MalformedRecord as error:
        log.warning("time of the last check not readable", extra={"error": str(error)})
        return None


async def set_last_check(
    coordination: Coordination, checked_at_ms: int, kind: LastCheck = READING
) -> None:
    """All ledgers have just been checked so."""
    value = kind.encode(checked_at_ms)
    try:
        await coordination.set(kind.path, value)
    except NodeMissing:
        # Another auditor may have written it just now: its time is as good.
        with suppress(NodeExists):
            await coordination.create(kind.path, value, make_parents=True)
