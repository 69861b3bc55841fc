"""BookKeeper's client: writes, reads and recovers ledgers on an ensemble of bookies.

``Ledgers`` is the door. A ledger is a numbered sequence of entries with one writer; an entry is
confirmed when enough bookies have it on disk and every earlier one is confirmed. Knows nothing of
Pulsar.
"""

from geminga_ledger.config import LedgerConfig
from geminga_ledger.counters import LedgerCounters
from geminga_ledger.errors import (
    AppendRefused,
    AppendTimedOut,
    BookiesReadOnly,
    BookieUnavailable,
    EntryCorrupt,
    EntryTooLarge,
    LedgerClosed,
    LedgerClosedByOther,
    LedgerError,
    LedgerFenced,
    LedgerIdsExhausted,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    RecoveryUndecided,
    TooMuchPending,
    UnsupportedLedger,
    WrongPassword,
)
from geminga_ledger.ledgers import Ledgers
from geminga_ledger.listener import LedgerListener
from geminga_ledger.reader import LedgerReader
from geminga_ledger.writer import LedgerWriter

__all__ = [
    "AppendRefused",
    "AppendTimedOut",
    "BookieUnavailable",
    "BookiesReadOnly",
    "EntryCorrupt",
    "EntryTooLarge",
    "LedgerClosed",
    "LedgerClosedByOther",
    "LedgerConfig",
    "LedgerCounters",
    "LedgerError",
    "LedgerFenced",
    "LedgerIdsExhausted",
    "LedgerListener",
    "LedgerReader",
    "LedgerWriter",
    "Ledgers",
    "NoSuchEntry",
    "NoSuchLedger",
    "NotEnoughBookies",
    "RecoveryUndecided",
    "TooMuchPending",
    "UnsupportedLedger",
    "WrongPassword",
]
