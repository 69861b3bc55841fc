"""Ledgers on bookies in memory, for tests of those who look after them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from random import Random

from tests.unit.geminga_ledger.world import KEY, World, entry_of

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.replication.repair import LedgerRepair
from geminga_ledger import LedgerConfig
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.records.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
)

CONFIG = AutoRecoveryConfig()
LEDGER_OPTIONS = LedgerConfig()
ENTRY_BYTES = 46


def metadata_of(
    sizes: tuple[int, int, int],
    fragments: Sequence[tuple[int, Sequence[int]]],
    *,
    last_entry: int | None = None,
) -> LedgerMetadata:
    """A ledger on bookies by number; open unless its ``last_entry`` is given."""
    metadata = LedgerMetadata(
        ensemble_size=sizes[0],
        write_quorum=sizes[1],
        ack_quorum=sizes[2],
        fragments=tuple(
            Fragment(first, tuple(f"b{number}" for number in numbers))
            for first, numbers in fragments
        ),
        digest_type=DigestType.CRC32C,
    )
    if last_entry is None:
        return metadata
    return replace(
        metadata, state=LedgerState.CLOSED, last_entry=last_entry, length=10 * (last_entry + 1)
    )


class Cluster(World):
    """``World`` with ledgers on it."""

    def put_ledger(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        *,
        last_stored: int | None = None,
        without: Collection[tuple[int, int]] = (),
    ) -> None:
        """Store a ledger whole, but for the ``(bookie number, entry id)`` pairs in ``without``."""
        self.put_metadata(ledger_id, metadata)
        quorum = Quorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        last = metadata.last_entry if last_stored is None else last_stored
        for entry_id in range(last + 1):
            ensemble = metadata.ensemble_of(entry_id)
            for index in quorum.write_set(entry_id):
                number = int(ensemble[index][1:])
                if (number, entry_id) not in without:
                    entry = entry_of(ledger_id, entry_id, entry_id - 1)
                    self.bookies[number].store(ledger_id, entry_id, entry, KEY)

    def lose(self, number: int) -> None:
        """The bookie dies, and its node goes."""
        self.bookies[number].kill()
        self.unregister(number)

    def damage(self, number: int, ledger_id: int, entry_id: int) -> None:
        """Flip a bit of a copy."""
        entries = self.bookies[number].entries[ledger_id]
        entries[entry_id] = entries[entry_id][:-1] + bytes([entries[entry_id][-1] ^ 1])

    def links(self) -> tuple[BookieRegistry, BookieLinks]:
        """Ways to the bookies, both to be opened."""
        registry = BookieRegistry(self.coordination, random=Random(1), config=LEDGER_OPTIONS)
        return registry, BookieLinks(
            registry.resolve,
            network=self.network,
            clock=self.clock,
            random=Random(1),
            config=LEDGER_OPTIONS,
        )

    def repair(self, config: AutoRecoveryConfig = CONFIG) -> LedgerRepair:
        """To be opened."""
        return LedgerRepair(
            self.coordination, self.network, self.clock, Random(1), config, LEDGER_OPTIONS
        )
