"""What all managed ledgers of a broker share, as one value that their factory makes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.cache.read_ahead import ReadAheadBudget
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_ledger import Ledgers
from geminga_runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class ManagedLedgerServices:
    """What a managed ledger needs of its broker."""

    ledgers: Ledgers
    # The newest entries of all logs.
    cache: EntryCache
    # The bound on what dispatchers keep of entries that they read from bookies.
    read_ahead_budget: ReadAheadBudget
    clock: Clock
    random: Random
    config: ManagedLedgerConfig
