"""Up to where a ledger is confirmed, as far as this bookie can tell: its last-add-confirmed (LAC).

Every entry says what its writer knew to be confirmed when it sent it, and a writer may say it
without an entry (explicit LAC). So the newest entry knows most. It is looked up when a reader asks,
so that adding costs nothing; what had to be read from the disk is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from struct import Struct

from geminga_bookie.config import BookieConfig
from geminga_bookie.storage.ledgers import Ledger
from geminga_bookie.storage.storage import Storage
from geminga_protocol.bookkeeper.errors import NoSuchEntry, NoSuchLedger
from geminga_protocol.bookkeeper.v2 import LAST_ENTRY

# The place of the last-add-confirmed in an entry, and in the body of an explicit one
# (``geminga_protocol.bookkeeper.digest`` and ``v3`` draw them).
_LAC = Struct(">q")
_ENTRY_LAC_OFFSET = 16
_EXPLICIT_LAC_OFFSET = 8
NOTHING_CONFIRMED = -1


@dataclass(slots=True, eq=False)
class LastConfirmed:
    """Answers for the ledgers of one bookie; no answer is less than an earlier one."""

    storage: Storage
    remembered_max: int = BookieConfig().confirmed_remembered_max
    # By ledger: which flushed entry was read, and the highest answer given so far. The ledger asked
    # for longest ago comes first.
    _answered: OrderedDict[int, tuple[int, int]] = field(init=False, default_factory=OrderedDict)

    def find(self, ledger_id: int) -> int | None:
        """Answer from memory; None where the disk must be read (``fetch``).

        Raises ``NoSuchLedger``, ``BookieFailed``, and ``NoSuchEntry`` where the bookie has neither
        an entry nor an explicit LAC.
        """
        storage = self.storage
        ledger = storage.ledgers.find(ledger_id)
        if ledger is None:
            raise NoSuchLedger(ledger_id)
        # LAST_ENTRY is -1, as is ``last_flushed`` of a ledger of which no entry log has anything:
        # then nothing has to be read, and ``looked_at`` fits from the beginning.
        looked_at, answered = self._answered.get(ledger_id, (LAST_ENTRY, NOTHING_CONFIRMED))
        lac = max(answered, _explicit(ledger))
        newest = storage.write_cache.newest(ledger_id)
        if newest is not None:
            lac = max(lac, _of_entry(newest))
        # A checkpoint has carried entries away since, whose newest one was not looked at yet.
        elif ledger.last_flushed != looked_at:
            return None
        elif not ledger.explicit_lac and looked_at == LAST_ENTRY:
            raise NoSuchEntry(ledger_id)
        return self._remember(ledger_id, looked_at, lac)

    async def fetch(self, ledger_id: int) -> int:
        """Answer from memory or the disk.

        Raises like ``find``, and ``CorruptFile``, ``UnknownFormat`` and ``OSError``. A damaged
        entry is not believed: a flipped bit in it might confirm entries that never were.
        """
        # After each read of the disk, look once more for what came meanwhile. A reader that finds
        # nothing new in the answer registers for the next add, and would not be notified of adds
        # that came before that.
        while (found := self.find(ledger_id)) is None:
            ledger = self.storage.ledgers.find(ledger_id)
            assert ledger is not None
            last_entry = ledger.last_flushed
            # The entry may be in the read cache. Then its block was sound: ``load`` caches no
            # damaged one.
            entry = self.storage.find(ledger_id, last_entry)
            if entry is None:
                entry = await self.storage.load(ledger_id, last_entry, is_checked=True)
            # Asked again: another reader may have had a higher answer during the read of the disk.
            _, answered = self._answered.get(ledger_id, (LAST_ENTRY, NOTHING_CONFIRMED))
            self._remember(
                ledger_id, last_entry, max(answered, _explicit(ledger), _of_entry(entry))
            )
        return found

    def _remember(self, ledger_id: int, looked_at: int, lac: int) -> int:
        self._answered[ledger_id] = looked_at, lac
        self._answered.move_to_end(ledger_id)
        if len(self._answered) > self.remembered_max:
            self._answered.popitem(last=False)
        return lac


def _of_entry(entry: bytes) -> int:
    """What an entry confirms; nothing where it is too short to be from a BookKeeper writer."""
    if len(entry) < _ENTRY_LAC_OFFSET + _LAC.size:
        return NOTHING_CONFIRMED
    return int(_LAC.unpack_from(entry, _ENTRY_LAC_OFFSET)[0])


def _explicit(ledger: Ledger) -> int:
    """What the writer confirmed without an entry."""
    if not ledger.explicit_lac:
        return NOTHING_CONFIRMED
    return int(_LAC.unpack_from(ledger.explicit_lac, _EXPLICIT_LAC_OFFSET)[0])
