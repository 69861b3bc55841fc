"""Which messages of a subscription are too old (TTL), and which of these are spared. Pure.

An entry's age counts from when the broker took it, where that was noted, else from when it was
published; that of a delayed one from its delivery time, so that nothing expires while it is held
back. The rules are otherwise upstream's (``PersistentMessageExpiryMonitor``).
"""

from __future__ import annotations

from collections.abc import Iterable

from geminga_broker.delayed.deliver_at import deliver_at_ms, is_plain
from geminga_broker.managed_ledger.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.payloads import entry_time_ms
from geminga_broker.managed_ledger.positions import Entry, Position

NEVER_MS = (1 << 63) - 1


def end_of_expired_ledgers(chain: LedgerChain, after: Position, limit_ms: int) -> Position:
    """The last entry of the ledgers that were closed before ``limit_ms`` (Unix time), ``after`` if
    that is later: no entry of theirs need be looked at."""
    end = after
    for span in chain.spans:
        if span.ledger_id < after[0]:
            continue
        if not is_expired(span, limit_ms):
            break
        if span.entries:
            end = max(end, span.last)
    return end


def runs_between(
    runs: Iterable[tuple[int, int, int]], after: Position, upto: Position
) -> list[tuple[int, int, int]]:
    """Of ``runs`` (ledger, first and last entry) what is greater than ``after`` and not greater
    than ``upto``."""
    found = []
    for ledger_id, first, last in runs:
        low = first if ledger_id > after[0] else max(first, after[1] + 1)
        high = last if ledger_id < upto[0] else min(last, upto[1])
        if after[0] <= ledger_id <= upto[0] and low <= high:
            found.append((ledger_id, low, high))
    return found


def is_expired(span: LedgerSpan | None, limit_ms: int) -> bool:
    """Whether all of a ledger was written before ``limit_ms``, whatever its entries say."""
    return span is not None and 0 < span.closed_at_ms < limit_ms


def sort_out(
    run: Iterable[Entry], limit_ms: int, *, are_old: bool = False
) -> tuple[list[int], int]:
    """Of ``run`` the entries whose time began before ``limit_ms``, and when that of the first of
    the others does (``NEVER_MS`` where there are none): those are delayed, or younger than they
    stand, which publishers' clocks may bring about (but ``are_old`` says that all are old)."""
    expired: list[int] = []
    first_due_ms = NEVER_MS
    for entry_id, payload, _ in run:
        due_ms = 0 if is_plain(payload) else deliver_at_ms(payload)
        if not are_old:
            due_ms = max(due_ms, entry_time_ms(payload))
        if due_ms < limit_ms:
            expired.append(entry_id)
        else:
            first_due_ms = min(first_due_ms, due_ms)
    return expired, first_due_ms
