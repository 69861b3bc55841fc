"""Whether a bookie does what bookies do: writes a small ledger to it, reads it, deletes it.

As ``bookkeeper shell bookiesanity`` (``SanityTestCommand`` of Apache BookKeeper): ten entries with
one copy each, all on the bookie in question.
"""

from __future__ import annotations

import asyncio
import logging

from geminga_bookie.admin.access import AdminAccess
from geminga_ledger import LedgerError, Ledgers, LedgerWriter
from geminga_runtime.coordination import CoordinationError

log = logging.getLogger(__name__)

ENTRIES = 10
TIMEOUT_S = 5.0
# The ledger is small; whatever is more is not it.
BYTES_MAX = 1024


async def is_sane(access: AdminAccess) -> bool:
    """Whether the test passed; why not stands in the log."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            ledgers = await access.ledgers()
            listener = _Listener()
            writer = await ledgers.create(
                listener=listener,
                ensemble_size=1,
                write_quorum=1,
                ack_quorum=1,
                ensemble=(access.bookie.bookie_id,),
            )
    except (LedgerError, CoordinationError, TimeoutError) as error:
        log.warning("bookie failed its sanity test", extra={"error": repr(error)})
        return False
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await _write_and_read(ledgers, writer, access.bookie.bookie_id)
    except (LedgerError, CoordinationError, TimeoutError) as error:
        log.warning("bookie failed its sanity test", extra={"error": repr(error)})
        return False
    finally:
        await _delete(ledgers, writer)


async def _write_and_read(ledgers: Ledgers, writer: LedgerWriter, bookie_id: str) -> bool:
    entries = [f"entry-{number}".encode() for number in range(ENTRIES)]
    writer.append_all(entries)
    await writer.close()
    reader = await ledgers.open(writer.ledger_id, recover=False)
    fragments = reader.metadata.fragments
    if len(fragments) != 1 or fragments[0].ensemble != (bookie_id,):
        log.warning("bookie failed its sanity test: another one took its place")
        return False
    return entries == await reader.read(0, ENTRIES - 1, bytes_max=BYTES_MAX)


async def _delete(ledgers: Ledgers, writer: LedgerWriter) -> None:
    writer.detach()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await ledgers.delete(writer.ledger_id)
    except (CoordinationError, TimeoutError) as error:
        log.warning(
            "ledger of a sanity test stays",
            extra={"ledger": writer.ledger_id, "error": repr(error)},
        )


class _Listener:
    """Nobody needs to be told: closing the writer waits for its entries."""

    def entries_confirmed(self, last_confirmed: int) -> None:
        """They are on the bookie."""

    def writer_failed(self, error: LedgerError) -> None:
        """What is read then is too little."""
        log.warning("writer of a sanity test failed", extra={"error": repr(error)})
