"""Which messages of a subscription are older than the time to live, and which are spared. Pure.

The age of an entry counts from when the broker received it, if that was stored, otherwise from when
it was published. The age of a delayed entry counts from its delivery time, so that no message
expires before it could be delivered. Otherwise the rules are upstream's
(``PersistentMessageExpiryMonitor``).
"""

from __future__ import annotations

from collections.abc import Iterable

from geminga_broker.delayed.schedule.deliver_at import deliver_at_ms, is_plain
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.reading.payloads import entry_time_ms

NEVER_MS = (1 << 63) - 1


def is_expired(span: LedgerSpan | None, limit_ms: int) -> bool:
    """Whether a whole ledger was written before ``limit_ms``, whatever its entries say."""
    # A ledger that is still open was closed at 0.
    return span is not None and 0 < span.closed_at_ms < limit_ms


def end_of_expired_ledgers(chain: LedgerChain, after: Position, limit_ms: int) -> Position:
    """The last entry of the ledgers behind ``after`` that were closed before ``limit_ms`` (Unix
    time), none of which need be read; ``after`` if there are none."""
    end = after
    # Ledgers are closed in order, so that the first one that is not expired ends the search.
    for span in chain.spans:
        if span.ledger_id < after[0]:
            continue
        if not is_expired(span, limit_ms):
            break
        # An empty ledger has no entry that a cursor could stand at.
        if span.entries:
            # ``after`` may lie beyond the entries that the ledger has: then it stays.
            end = max(end, span.last)
    return end


def runs_between(
    runs: Iterable[tuple[int, int, int]], after: Position, upto: Position
) -> list[tuple[int, int, int]]:
    """The parts of ``runs`` (ledger, first and last entry) behind ``after`` and not behind
    ``upto``."""
    found = []
    for ledger_id, first, last in runs:
        # Only in the ledgers of the two positions is a run cut; in those between it counts whole.
        low = first if ledger_id > after[0] else max(first, after[1] + 1)
        high = last if ledger_id < upto[0] else min(last, upto[1])
        if after[0] <= ledger_id <= upto[0] and low <= high:
            found.append((ledger_id, low, high))
    return found


def split_expired(
    run: Iterable[Entry], limit_ms: int, *, are_old: bool = False
) -> tuple[list[int], int]:
    """The ids of the entries in ``run`` whose age counts from before ``limit_ms``, and the earliest
    time from which that of another entry counts (``NEVER_MS`` if there is none).

    The others are delayed, or younger than their place in the log: publishers' clocks differ. With
    ``are_old``, their ledger says that all entries are old, and only delayed ones are spared.
    """
    expired: list[int] = []
    first_due_ms = NEVER_MS
    for entry_id, payload, _ in run:
        # Without a delivery time only the age decides.
        due_ms = 0 if is_plain(payload) else deliver_at_ms(payload)
        if not are_old:
            # Whichever is later: a delivery time in the past makes no message older than it is.
            due_ms = max(due_ms, entry_time_ms(payload))
        if due_ms < limit_ms:
            expired.append(entry_id)
        else:
            first_due_ms = min(first_due_ms, due_ms)
    return expired, first_due_ms
