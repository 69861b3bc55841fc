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
    """A managed ledger that is open, as far as its factory looks after it."""

    def sweep(self) -> None:
        """Turn over and trim by time."""
        ...


@dataclass(frozen=True, slots=True)
class ManagedLedgerServices:
    """``cache`` holds the newest entries of all, ``read_ahead_budget`` bounds what dispatchers keep
    of those read from bookies; ``opened`` are the managed ledgers that are open, by name."""

    ledgers: Ledgers
    cache: EntryCache
    read_ahead_budget: ReadAheadBudget
    clock: Clock
    random: Random
    config: ManagedLedgerConfig
    opened: MutableMapping[str, OpenLog] = field(default_factory=dict)
