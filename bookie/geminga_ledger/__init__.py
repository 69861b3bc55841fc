"""BookKeeper's client: writes, reads and recovers ledgers on an ensemble of bookies.

``Ledgers`` is the door. A ledger is a numbered sequence of entries with one writer; an entry is
confirmed when enough bookies have it on disk and every earlier one is confirmed. Knows nothing of
Pulsar.

Configs and errors are here at once; the client itself is loaded by its first use, so that reading a
config, for ``--help`` say, takes a tenth of a second less.
"""

from importlib import import_module
from typing import TYPE_CHECKING

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
from geminga_ledger.listener import LedgerListener

if TYPE_CHECKING:
    from geminga_ledger.ledgers import Ledgers
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

_LOADED_BY_USE = {"Ledgers": "ledgers", "LedgerReader": "reader", "LedgerWriter": "writer"}


def __getattr__(name: str) -> object:
    """What is loaded by its first use (PEP 562)."""
    module = _LOADED_BY_USE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
