"""When a log rolls over to its next ledger. Pure.

The rule is upstream's (``currentLedgerIsFull`` of ``ManagedLedgerImpl``): a ledger that is full, or
has reached its greatest age, is replaced, but never before its least age: a busy topic makes one
ledger in ten minutes, however many entries that is. Every ledger is several nodes in ZooKeeper.
"""

from __future__ import annotations

from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan

# Ledgers opened together (a broker loads its topics at once) must not all roll over together: each
# has its own greatest age, at most so much longer (upstream: 5 %).
AGE_SPREAD = 0.05


def is_due(config: ManagedLedgerConfig, span: LedgerSpan, age_s: float, age_max_s: float) -> bool:
    """Whether a ledger that was opened ``age_s`` ago should be followed by another now.

    A ledger without entries never is: closing it would leave a useless node in ZooKeeper.
    """
    # Confirmed entries only: those under way go to this ledger in any case.
    entries, size_bytes = span.entries, span.size_bytes
    if not entries or age_s < config.ledger_age_min_s:
        return False
    # So a ledger may exceed both by what is under way, and by what comes before its least age.
    is_full = entries >= config.ledger_entries_max or size_bytes >= config.ledger_bytes_max
    return is_full or age_s >= age_max_s
