"""Whether a bookie does what bookies do: writes a small ledger to it, reads it, deletes it.

As ``bookkeeper shell bookiesanity`` (``SanityTestCommand`` of Apache BookKeeper): ten entries with
one copy each, all on the bookie that is tested.
"""

from __future__ import annotations

import asyncio
import logging

from geminga_bookie.admin.access import AdminAccess
from geminga_ledger import LedgerError
from geminga_ledger.writing.listener import NoListener
from geminga_runtime.coordination import CoordinationError

log = logging.getLogger(__name__)

ENTRIES = 10
# For each of the three steps.
TIMEOUT_S = 5.0
# All entries together are smaller: one read gets them.
BYTES_MAX = 1024


async def is_sane(access: AdminAccess) -> bool:
    """Whether the test passed; our log says why not."""
    bookie_id = access.bookie.bookie_id
    try:
        async with asyncio.timeout(TIMEOUT_S):
            ledgers = await access.ledgers()
            writer = await ledgers.create(
                listener=_Listener(),
                ensemble_size=1,
                write_quorum=1,
                ack_quorum=1,
                # Whatever the placement would choose: it is this bookie that is tested.
                ensemble=(bookie_id,),
            )
    except (LedgerError, CoordinationError, TimeoutError) as error:
        log.warning("bookie failed its sanity test", extra={"error": repr(error)})
        return False
    try:
        async with asyncio.timeout(TIMEOUT_S):
            entries = [f"entry-{number}".encode() for number in range(ENTRIES)]
            writer.append_all(entries)
            await writer.close()
            reader = await ledgers.open(writer.ledger_id, recover=False)
            # A writer whose bookie fails goes on with another one, and the entries are there.
            fragments = reader.view.metadata.fragments
            if len(fragments) != 1 or fragments[0].ensemble != (bookie_id,):
                log.warning("bookie failed its sanity test: another one took its place")
                return False
            return entries == await reader.read(0, ENTRIES - 1, bytes_max=BYTES_MAX)
    except (LedgerError, CoordinationError, TimeoutError) as error:
        log.warning("bookie failed its sanity test", extra={"error": repr(error)})
        return False
    finally:
        # The writer may have failed before it was closed: it must do nothing more after the test.
        writer.detach()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await ledgers.delete(writer.ledger_id)
        except (CoordinationError, TimeoutError) as error:
            log.warning(
                "ledger of a sanity test stays",
                extra={"ledger": writer.ledger_id, "error": repr(error)},
            )


class _Listener(NoListener):
    """Ignores what is confirmed: closing the writer waits for its entries, which are then read."""

    def writer_failed(self, error: LedgerError) -> None:
        """Log it; the test then reads too few entries."""
        log.warning("writer of a sanity test failed", extra={"error": repr(error)})
