"""How far a ledger goes: what is confirmed, and what bookies have stored beyond that.

Of a ledger that nobody closed, readers are told only what a later entry or its writer said to be
confirmed, which may be much less than was: nothing at all, where the writer ended after one burst.
So the bookies are asked what they have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from geminga_autorecovery.fragments import bookies_of
from geminga_bookie.admin.bookie_requests import ask_entry_list
from geminga_cli.bookie_admin.cluster import Cluster
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.store import StoredMetadata
from geminga_protocol.bookkeeper.availability import Run, join_runs
from geminga_protocol.records.ledger_metadata import LedgerState


@dataclass(frozen=True, slots=True)
class Extent:
    """``confirmed``: the last entry that is known to be confirmed, -1 for none.

    ``beyond``: what bookies have after it, rising. ``unheard``: the bookies that did not tell what
    they have, and why.
    """

    confirmed: int
    beyond: tuple[Run, ...] = ()
    unheard: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def last(self) -> int:
        """The last entry that there is, confirmed or not; -1 for none."""
        return self.beyond[-1].last if self.beyond else self.confirmed

    def entry_ids(self, first: int = 0, last: int | None = None) -> Iterator[int]:
        """The entries that there are from ``first`` to ``last``, both among them."""
        end = self.last if last is None else last
        for run in (Run(0, self.confirmed), *self.beyond):
            yield from range(max(run.first, first), min(run.last, end) + 1)


async def extent_of(cluster: Cluster, stored: StoredMetadata) -> Extent:
    """Of a closed ledger as its metadata say. Raises ``LedgerError``, ``CoordinationError``."""
    if stored.metadata.state is LedgerState.CLOSED:
        return Extent(stored.metadata.last_entry)
    async with cluster.ledgers() as ledgers:
        confirmed = (await ledgers.open(stored.ledger_id, recover=False)).last_confirmed
    bookie_ids = sorted(bookies_of(stored.metadata))
    lists = await asyncio.gather(
        *(_entry_list(cluster, bookie_id, stored.ledger_id) for bookie_id in bookie_ids)
    )
    found: list[Run] = []
    unheard: dict[str, str] = {}
    for bookie_id, told in zip(bookie_ids, lists, strict=True):
        if isinstance(told, str):
            unheard[bookie_id] = told
        else:
            found += (
                Run(max(run.first, confirmed + 1), run.last) for run in told if run.last > confirmed
            )
    return Extent(confirmed, tuple(join_runs(found)), unheard)


async def _entry_list(cluster: Cluster, bookie_id: str, ledger_id: int) -> list[Run] | str:
    """What the bookie has; in words, why it did not tell."""
    try:
        address = await cluster.registry.resolve(bookie_id)
        return await ask_entry_list(cluster.network, bookie_id, address, ledger_id)
    except BookieUnavailable as error:
        return error.why
