"""What all managed ledgers of a broker share, as one value that their factory makes."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.entry_cache import EntryCache
from geminga_broker.managed_ledger.fetched_entries import FetchedBudget
from geminga_ledger import Ledgers
from geminga_runtime.clock import Clock


class OpenLog(Protocol):
    """A managed ledger that is open, as far as its factory looks after it."""

    def sweep(self) -> None:
        """Turn over and trim by time."""
        ...


@dataclass(frozen=True, slots=True)
class ManagedLedgerServices:
    """``cache`` holds the newest entries of all, ``fetched_budget`` bounds what dispatchers keep of
    those read from bookies; ``opened`` are the managed ledgers that are open, by name."""

    ledgers: Ledgers
    cache: EntryCache
    fetched_budget: FetchedBudget
    clock: Clock
    random: Random
    config: ManagedLedgerConfig
    opened: MutableMapping[str, OpenLog] = field(default_factory=dict)
