"""BookKeeper's client: writes, reads and recovers ledgers on an ensemble of bookies.

A ledger is a numbered sequence of entries with one writer. Each entry is stored on Qw of the
ledger's E bookies (the ensemble); it is confirmed when Qa of them have it on disk and every earlier
entry is confirmed. What is confirmed survives the loss of any Qa - 1 bookies.

Read it in this order:

``ledgers``      the door: ``Ledgers`` creates, opens, recovers and deletes ledgers
``replication``  the rules (pure): quorums, placement, where a ledger ends
``writing``      the writer: a pipeline of entries, and bookies replaced when they fail
``reading``      the reader: which bookie to ask, how far an open ledger is confirmed
``recovery``     closes a ledger whose writer is gone: fences it, stores its tail again
``membership``   which bookies there are, and which of them to choose
``connections``  the V2 and V3 connections to each bookie
``metadata``     a ledger's record in ZooKeeper, changed by compare-and-set
``entries``      entries as values (pure): digests, read planning, the read-ahead cache

It speaks to Apache BookKeeper's bookies and beside its Java clients: formats, paths and rules are
BookKeeper's. It knows nothing of Pulsar, and keeps no files.

Configs and errors are imported here at once; the client itself is loaded by its first use, so that
reading a config, for ``--help`` say, takes a tenth of a second less.
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
from geminga_ledger.writing.listener import LedgerListener

if TYPE_CHECKING:
    from geminga_ledger.ledgers import Ledgers
    from geminga_ledger.reading.reader import LedgerReader
    from geminga_ledger.writing.writer import LedgerWriter

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

_LOADED_BY_USE = {
    "Ledgers": "ledgers",
    "LedgerReader": "reading.reader",
    "LedgerWriter": "writing.writer",
}


def __getattr__(name: str) -> object:
    """Load a class by its first use (PEP 562)."""
    module = _LOADED_BY_USE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
