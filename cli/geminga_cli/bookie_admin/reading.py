"""``read-ledger``: entries, from all bookies or from one.

Of a ledger that is not closed, what is known to be confirmed is read by BookKeeper's rules; what
bookies have beyond that comes after it, from whichever of them has it, and is told apart: another
reader would not be given it yet, and recovery may find that it never was confirmed.
"""

from __future__ import annotations

import argparse
import json
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator
from itertools import islice

from geminga_autorecovery.copies import Copy
from geminga_autorecovery.findings import Flaw
from geminga_autorecovery.fragments import quorum_of
from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.errors import CrossedRange
from geminga_cli.bookie_admin.extent import Extent, extent_of
from geminga_cli.bookie_admin.verdicts.ledger_verdict import wanted_copies
from geminga_cli.display.text import count_words, hex_lines, plain_text
from geminga_ledger import UnsupportedLedger
from geminga_ledger.digests import Decode, payload_decoder
from geminga_ledger.store import StoredMetadata

# Entries asked for at once: of the largest, 5 MiB each, no more than a hundred MiB come.
ENTRIES_AT_ONCE_MAX = 20
READ_BYTES_MAX = 1024 * 1024


async def read_ledger(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print entries; 1 where a bookie did not give one that it should have.

    Raises ``CrossedRange``.
    """
    if options.last is not None and options.first > options.last:
        raise CrossedRange(options.first, options.last)
    stored = await cluster.store.read(options.ledger)
    if options.bookie:
        await cluster.require_bookie(options.bookie)
    extent = await extent_of(cluster, stored)
    reading = _Reading(cluster, stored, extent, options)
    for bookie_id, why in extent.unheard.items():
        print(f"bookie {bookie_id} does not say what it has: {why}", file=sys.stderr)
    if options.bookie:
        await reading.from_one(options.bookie)
    else:
        await reading.from_all()
    return int(reading.is_wrong)


class _Reading:
    """One reading of one ledger; ``is_wrong`` where something that should be there was not."""

    def __init__(
        self, cluster: Cluster, stored: StoredMetadata, extent: Extent, options: argparse.Namespace
    ) -> None:
        self.is_wrong = False
        self._cluster = cluster
        self._stored = stored
        self._extent = extent
        self._options = options
        self._is_beyond_told = False

    async def from_all(self) -> None:
        """Each entry once."""
        first, last = self._options.first, self._end()
        if next(self._extent.entry_ids(first, last), None) is None:
            self._tell_nothing()
            return
        confirmed = min(last, self._extent.confirmed)
        if first <= confirmed:
            await self._confirmed(first, confirmed)
        beyond = self._extent.entry_ids(max(first, self._extent.confirmed + 1), last)
        for some in portions(beyond, self._portion):
            await self._any_copies(some)

    async def from_one(self, bookie_id: str) -> None:
        """The copies that this bookie has, or should have."""
        metadata = self._stored.metadata
        quorum = quorum_of(self._stored.ledger_id, metadata)
        entry_ids = self._extent.entry_ids(self._options.first, self._end())
        wanted = (
            entry_id
            for name, entry_id in wanted_copies(metadata, quorum, entry_ids)
            if name == bookie_id
        )
        has_some = False
        for some in portions(wanted, ENTRIES_AT_ONCE_MAX):
            has_some = True
            pairs = [(bookie_id, entry_id) for entry_id in some]
            for entry_id, copy in zip(some, await self._copies(pairs), strict=True):
                self._print_copy(entry_id, copy)
        if not has_some:
            self._tell_nothing(f" that belong on {bookie_id}")

    @property
    def _portion(self) -> int:
        """Entries whose copies are all asked for at once."""
        return max(ENTRIES_AT_ONCE_MAX // self._stored.metadata.write_quorum, 1)

    def _end(self) -> int:
        last = self._options.last
        return self._extent.last if last is None else min(last, self._extent.last)

    async def _confirmed(self, first: int, last: int) -> None:
        async with self._cluster.ledgers() as ledgers:
            reader = await ledgers.open(self._stored.ledger_id, recover=False)
            while first <= last:
                for payload in await reader.read(first, last, bytes_max=READ_BYTES_MAX):
                    self._print_entry(first, payload)
                    first += 1

    async def _any_copies(self, entry_ids: list[int]) -> None:
        """A good copy of each, from whoever has one; else why the first bookie has none."""
        metadata = self._stored.metadata
        quorum = quorum_of(self._stored.ledger_id, metadata)
        wanted = list(wanted_copies(metadata, quorum, entry_ids))
        best: dict[int, Copy] = {}
        for (_, entry_id), copy in zip(wanted, await self._copies(wanted), strict=True):
            if entry_id not in best or (copy.flaw is None and best[entry_id].flaw is not None):
                best[entry_id] = copy
        for entry_id, copy in best.items():
            self._print_copy(entry_id, copy)

    async def _copies(self, wanted: list[tuple[str, int]]) -> list[Copy]:
        stored = self._stored
        return await self._cluster.copies().read(
            stored.ledger_id, stored.metadata, wanted, decode=self._decode()
        )

    def _decode(self) -> Decode:
        metadata = self._stored.metadata
        if metadata.digest_type is None:
            raise UnsupportedLedger(self._stored.ledger_id, "does not say which digest it has")
        return payload_decoder(metadata.digest_type, metadata.password or b"")

    def _print_copy(self, entry_id: int, copy: Copy) -> None:
        if copy.flaw is None:
            self._print_entry(entry_id, copy.content)
            return
        is_beyond = self._tell_where(entry_id)
        self.is_wrong |= not (is_beyond and copy.flaw is Flaw.ABSENT)
        if self._options.json:
            fault = {"entry": entry_id, "error": copy.flaw.value, "reason": copy.why}
            print(json.dumps(fault | ({"confirmed": False} if is_beyond else {})))
        else:
            print(f"entry {entry_id}  {copy.flaw.value}: {copy.why}")

    def _print_entry(self, entry_id: int, payload: bytes) -> None:
        is_beyond = self._tell_where(entry_id)
        if self._options.json:
            content = b64encode(payload).decode()
            entry = {"entry": entry_id, "length": len(payload), "payload": content}
            print(json.dumps(entry | ({"confirmed": False} if is_beyond else {})))
            return
        print(f"entry {entry_id}  {count_words(len(payload), 'byte')}")
        if self._options.format == "hex":
            for line in hex_lines(payload):
                print(line)
        elif self._options.format == "text":
            print(plain_text(payload))

    def _tell_where(self, entry_id: int) -> bool:
        """Whether the entry lies beyond what is confirmed; said before the first that does."""
        is_beyond = entry_id > self._extent.confirmed
        if is_beyond and not self._is_beyond_told:
            self._is_beyond_told = True
            words = f"from entry {entry_id} on it is not known whether entries are confirmed"
            print(words, file=sys.stderr if self._options.json else sys.stdout)
        return is_beyond

    def _tell_nothing(self, which: str = "") -> None:
        options, last = self._options, self._extent.last
        words = f"ledger {options.ledger} has no entries{which}"
        if last >= 0:
            end = "" if options.last is None else f" to {options.last}"
            begin = f"ledger {options.ledger} ends with entry {last}"
            words = f"{begin}: no entries from {options.first}{end}{which}"
        print(words, file=sys.stderr if options.json else sys.stdout)


def portions(entry_ids: Iterable[int], size: int) -> Iterator[list[int]]:
    """``size`` of them at a time."""
    ids = iter(entry_ids)
    while some := list(islice(ids, size)):
        yield some
