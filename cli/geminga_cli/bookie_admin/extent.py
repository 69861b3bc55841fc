"""How far a ledger reaches: the entries that are confirmed, and those that bookies have beyond.

In a ledger that is not closed, readers learn only what a later entry, or the writer, has said to be
confirmed. That may be much less than was confirmed: nothing at all, if the writer stopped after one
burst. So the bookies are asked which entries they have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from geminga_autorecovery.decisions.fragments import bookies_of
from geminga_bookie.admin.bookie_requests import ask_entry_list
from geminga_cli.bookie_admin.cluster import Cluster
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.metadata.store import StoredMetadata
from geminga_protocol.bookkeeper.availability import Run, join_runs
from geminga_protocol.records.ledgers.ledger_metadata import LedgerState


@dataclass(frozen=True, slots=True)
class Extent:
    """The entries of a ledger, as far as they are known."""

    # The last entry that is known to be confirmed, -1 for none. All before it are confirmed, too.
    confirmed: int
    # Runs of entries after it that at least one bookie has, in rising order.
    beyond: tuple[Run, ...] = ()
    # The bookies that did not tell which entries they have, and why.
    unheard: Mapping[str, str] = field(default_factory=dict[str, str])

    #     entries        0 1 2 3 4 5 6 7 8 9
    #     bookie a       x x x x . . x x . .
    #     bookie b       x x x x . . . x x .      confirmed = 3, beyond = (6 to 8,), last = 8
    #
    # Between 3 and 6 there may have been entries that no bookie has any more, or never had.
    @property
    def last(self) -> int:
        """The last entry, confirmed or not; -1 for none."""
        return self.beyond[-1].last if self.beyond else self.confirmed

    def entry_ids(self, first: int = 0, last: int | None = None) -> Iterator[int]:
        """The ids of the entries from ``first`` to ``last``, both included."""
        end = self.last if last is None else last
        # Run(0, -1) is empty, where nothing is confirmed.
        for run in (Run(0, self.confirmed), *self.beyond):
            yield from range(max(run.first, first), min(run.last, end) + 1)


async def extent_of(cluster: Cluster, stored: StoredMetadata) -> Extent:
    """The extent of a ledger; of a closed one, its metadata say it.

    Raises ``LedgerError``, ``CoordinationError``.
    """
    # Nothing is added to a closed ledger, so no bookie has to be asked.
    if stored.metadata.state is LedgerState.CLOSED:
        return Extent(stored.metadata.last_entry)
    async with cluster.ledgers() as ledgers:
        # Without recovery, which would fence the ledger's writer.
        confirmed = (await ledgers.open(stored.ledger_id, recover=False)).last_confirmed

    # A bookie that does not answer is a fact about the ledger and not an error: the extent may then
    # be larger than what is returned.
    async def entry_list(bookie_id: str) -> list[Run] | str:
        """The entries that the bookie has, or in words why it did not tell."""
        try:
            address = await cluster.registry.resolve(bookie_id)
            return await ask_entry_list(cluster.network, bookie_id, address, stored.ledger_id)
        except BookieUnavailable as error:
            return error.why

    # Of all fragments: after an ensemble change, entries before it stay where they were.
    bookie_ids = sorted(bookies_of(stored.metadata))
    answers = await asyncio.gather(*map(entry_list, bookie_ids))
    found: list[Run] = []
    unheard: dict[str, str] = {}
    for bookie_id, answer in zip(bookie_ids, answers, strict=True):
        if isinstance(answer, str):
            unheard[bookie_id] = answer
        else:
            found += (
                # Only what is beyond: everything before is confirmed and counted already.
                Run(max(run.first, confirmed + 1), run.last)
                for run in answer
                if run.last > confirmed
            )
    return Extent(confirmed, tuple(join_runs(found)), unheard)
