"""What all managed ledgers of a broker share, as one value that their factory makes."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.cache.read_ahead import ReadAheadBudget
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_ledger import Ledgers
from geminga_runtime.clock import Clock


class OpenLog(Protocol):
    """A managed ledger that is open, as far as its factory needs it."""

    def sweep(self) -> None:
        """Roll over and trim by time."""
        ...


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
    # The managed ledgers that are open, by name: each adds and removes itself.
    opened: MutableMapping[str, OpenLog] = field(default_factory=dict)
