"""Asks bookies which entries of a ledger they have, without reading any."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from geminga_autorecovery.decisions.fragments import LedgerFragment
from geminga_autorecovery.decisions.replicas import Replicas, replicas_of
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.replication.quorum import Quorum
from geminga_ledger.replication.recovery_rules import is_absence
from geminga_protocol.bookkeeper.availability import Run, decode_availability
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.v3_requests import list_entries_request, return_code_of
from geminga_protocol.errors import WireError

log = logging.getLogger(__name__)

# Entries whose copies are counted before others get their turn: about a millisecond.
ENTRIES_PER_TURN = 2_000

EntryList = list[Run] | None
"""Rising runs of the entries that a bookie has, by its own account; None where it gave no list."""


@dataclass(frozen=True, slots=True)
class EntryLists:
    """Asks for lists over ``links``; a bookie has ``answer_timeout_s`` for each."""

    links: BookieLinks
    answer_timeout_s: float = field(kw_only=True)

    async def ask(self, ledger_id: int, bookies: Collection[str]) -> dict[str, EntryList]:
        """What each of the bookies has of the ledger."""
        names = sorted(bookies)
        # All at once: there are as many requests as bookies in the ledger. None of them raises: a
        # bookie that does not answer gives None, and the others' lists count.
        lists = await asyncio.gather(*(self._ask_one(ledger_id, name) for name in names))
        return dict(zip(names, lists, strict=True))

    async def _ask_one(self, ledger_id: int, bookie_id: str) -> EntryList:
        request = list_entries_request(ledger_id)
        try:
            response = await self.links.v3_link(bookie_id).ask(
                request, timeout_s=self.answer_timeout_s
            )
            code = return_code_of(response.status)
            if code == ReturnCode.EOK:
                answer = response.getListOfEntriesOfLedgerResponse
                return decode_availability(answer.availabilityOfEntriesOfLedger)
        except (BookieUnavailable, WireError) as error:
            facts = {"bookie": bookie_id, "ledger": ledger_id, "error": str(error)}
            log.info("bookie does not list its entries", extra=facts)
            return None
        # A bookie that does not know the ledger has none of its entries. After any other refusal,
        # such as that of an old bookie which knows no lists, nothing is known.
        return [] if is_absence(code) else None


async def count_replicas(
    fragment: LedgerFragment, quorum: Quorum, lists: Mapping[str, EntryList]
) -> Replicas:
    """Count, by the lists, the copies of all entries of a fragment that has an end."""
    found = Replicas(frozenset(), quorum.write_quorum)
    # A fragment without entries has a last entry below its first one: then nothing is lacking.
    for first in range(fragment.first_entry, fragment.last_entry + 1, ENTRIES_PER_TURN):
        last = min(first + ENTRIES_PER_TURN - 1, fragment.last_entry)
        found = found.joined(replicas_of(fragment, quorum, lists, first, last))
        # Other tasks of this process get their turn: often it is a bookie's.
        await asyncio.sleep(0)
    return found
