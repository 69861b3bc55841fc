"""What was told to those who write and read ledgers: the only thing the checks go by."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.checkers import NeverBackwards, OneTruth, check_prefix


@dataclass(slots=True)
class History:
    """What writers pushed and were told, what readers saw, where ledgers ended."""

    ledgers: list[int] = field(default_factory=list[int])
    pushed: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    confirmed: dict[int, int] = field(default_factory=dict[int, int])
    seen: dict[int, int] = field(default_factory=dict[int, int])
    ended: dict[int, int] = field(default_factory=dict[int, int])
    # Called when a ledger has been closed: a good moment for mischief.
    on_end: Callable[[], None] = lambda: None
    growth: NeverBackwards = field(default_factory=NeverBackwards)
    truth: OneTruth = field(default_factory=OneTruth)
    # How often a ledger's ensemble changed.
    changes: int = 0

    def begin(self, ledger_id: int) -> None:
        """A ledger was created."""
        self.ledgers.append(ledger_id)
        self.pushed[ledger_id] = []
        self.confirmed[ledger_id] = self.seen[ledger_id] = -1

    def confirm(self, ledger_id: int, last_confirmed: int) -> None:
        """The writer was told that everything up to here is stored for good."""
        self.growth.observe(f"confirmed in ledger {ledger_id}", last_confirmed)
        self.confirmed[ledger_id] = last_confirmed
        self._check_end(ledger_id)

    def see(self, reader: Hashable, ledger_id: int, last_confirmed: int) -> None:
        """A reader was told that it may read up to here."""
        self.growth.observe(reader, last_confirmed)
        self.seen[ledger_id] = max(self.seen[ledger_id], last_confirmed)
        self._check_end(ledger_id)

    def end(self, ledger_id: int, last_entry: int) -> None:
        """The ledger is closed and ends here, for all clients and for ever."""
        self.truth.observe(f"the end of ledger {ledger_id}", last_entry)
        self.ended[ledger_id] = last_entry
        self._check_end(ledger_id)
        self.on_end()

    def read(self, ledger_id: int, first: int, payloads: list[bytes]) -> None:
        """Entries were read."""
        check_prefix(self.pushed[ledger_id][first:], payloads)

    def check_metadata(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """A closed ledger's record fits what is in it."""
        length = sum(map(len, self.pushed[ledger_id][: metadata.last_entry + 1]))
        firsts = [each.first_entry for each in metadata.fragments]
        if (
            metadata.length != length
            or firsts != sorted(set(firsts))
            or firsts[0] != 0
            or any(len(set(each.ensemble)) != metadata.ensemble_size for each in metadata.fragments)
        ):
            raise InvariantViolated(f"ledger {ledger_id} of {length} bytes has {metadata}")

    def _check_end(self, ledger_id: int) -> None:
        last_entry = self.ended.get(ledger_id)
        if last_entry is None:
            return
        for who, entry in (("writer", self.confirmed), ("reader", self.seen)):
            if entry[ledger_id] > last_entry:
                raise InvariantViolated(
                    f"ledger {ledger_id} ends at {last_entry}; "
                    f"a {who} was told of {entry[ledger_id]}"
                )
