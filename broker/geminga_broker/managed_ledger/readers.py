"""The readers of one log's ledgers: opened when needed, kept while they are used, a few at most.

Opening a ledger costs requests to ZooKeeper and, while it is written, to its bookies; so a reader
is kept, and told how far its ledger has grown, which the log's owner knows without asking.
"""

from __future__ import annotations

from collections.abc import Sequence

from geminga_broker.errors import EntryDamaged, StorageUnavailable
from geminga_broker.managed_ledger.chain import LedgerSpan
from geminga_ledger import EntryCorrupt, LedgerError, LedgerReader, Ledgers
from geminga_runtime.coordination import CoordinationError

# Cursors of one log that catch up at different places need one each. A reader is some hundred
# bytes; one too few costs an open for every read.
READERS_MAX = 16


class Readers:
    """Readers by ledger; the one longest unused makes room."""

    __slots__ = ("_ledgers", "_readers")

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        # In the order of their last use.
        self._readers: dict[int, LedgerReader] = {}

    def __len__(self) -> int:
        return len(self._readers)

    async def read(
        self, span: LedgerSpan, entry_ids: Sequence[int], *, bytes_max: int
    ) -> list[bytes]:
        """Payloads of ``entry_ids``, which grow: at least one, about ``bytes_max`` bytes.

        What ``span`` says of the ledger's end is so by now. Raises ``EntryDamaged``,
        ``StorageUnavailable``.
        """
        ledger_id, last_confirmed, length_bytes = span.ledger_id, span.entries - 1, span.size_bytes
        try:
            reader = await self._reader(ledger_id)
            reader.advance(last_confirmed, length_bytes)
            return await reader.read_entries(entry_ids, bytes_max=bytes_max)
        except EntryCorrupt as error:
            raise EntryDamaged(str(error)) from error
        except (LedgerError, CoordinationError) as error:
            self.forget(ledger_id)
            raise StorageUnavailable(str(error)) from error

    async def _reader(self, ledger_id: int) -> LedgerReader:
        reader = self._readers.get(ledger_id)
        if reader is None:
            reader = await self._ledgers.open(ledger_id, recover=False)
        self.keep(reader)
        return reader

    def keep(self, reader: LedgerReader) -> None:
        """Take a reader that was opened elsewhere."""
        self._readers.pop(reader.ledger_id, None)
        self._readers[reader.ledger_id] = reader
        if len(self._readers) > READERS_MAX:
            del self._readers[next(iter(self._readers))]

    def forget(self, ledger_id: int) -> None:
        """The ledger is gone, or its reader failed: the next read opens it anew."""
        self._readers.pop(ledger_id, None)
