"""``read-ledger``: prints entries, from all bookies or from one.

In a ledger that is not closed, entries that are known to be confirmed are read by BookKeeper's
rules. After them come entries that bookies have stored beyond, from any bookie that has them, and
marked as such: other readers do not get them yet, and recovery may find that they were never
confirmed.
"""

from __future__ import annotations

import argparse
import json
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator
from itertools import islice

from geminga_autorecovery.decisions.findings import Flaw
from geminga_autorecovery.decisions.fragments import quorum_of
from geminga_autorecovery.replication.copies import Copy
from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.errors import CrossedRange
from geminga_cli.bookie_admin.extent import Extent, extent_of
from geminga_cli.bookie_admin.verdicts.ledger_verdict import wanted_copies
from geminga_cli.display.text import count_words, hex_lines, plain_text
from geminga_ledger import UnsupportedLedger
from geminga_ledger.entries.digests import payload_decoder
from geminga_ledger.metadata.store import StoredMetadata

# Entries that are requested at the same time: of the largest, 5 MiB each, they take 100 MiB.
ENTRIES_AT_ONCE_MAX = 20
READ_BYTES_MAX = 1024 * 1024


async def read_ledger(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print entries; returns 1 if a bookie did not return one that it should have.

    Raises ``CrossedRange``.
    """
    if options.last is not None and options.first > options.last:
        raise CrossedRange(options.first, options.last)
    stored = await cluster.store.read(options.ledger)
    if options.bookie:
        await cluster.require_bookie(options.bookie)
    # Before anything is printed: it says where the certain part ends.
    extent = await extent_of(cluster, stored)
    for bookie_id, why in extent.unheard.items():
        print(f"bookie {bookie_id} does not say what it has: {why}", file=sys.stderr)
    reader = _LedgerReader(cluster, stored, extent, options)
    if options.bookie:
        await reader.print_copies_of(options.bookie)
    else:
        await reader.print_all()
    return int(reader.is_wrong)


class _LedgerReader:
    """Reads and prints entries of one ledger."""

    def __init__(
        self, cluster: Cluster, stored: StoredMetadata, extent: Extent, options: argparse.Namespace
    ) -> None:
        # Whether an entry is missing, or damaged, that a bookie should have.
        self.is_wrong = False
        self._cluster = cluster
        self._stored = stored
        self._extent = extent
        self._options = options
        # Both are included.
        self._first: int = options.first
        self._last = extent.last if options.last is None else min(options.last, extent.last)
        # Whether it was said that what follows is not known to be confirmed.
        self._is_beyond_said = False

    async def print_all(self) -> None:
        """Print each entry once."""
        first, last = self._first, self._last
        # Said in words: no output at all would look like a ledger whose entries are empty.
        if next(self._extent.entry_ids(first, last), None) is None:
            self._say_empty()
            return
        # Stage 1: what is known to be confirmed, by BookKeeper's rules: one good copy is enough,
        # and the reader asks another bookie where one fails.
        confirmed = min(last, self._extent.confirmed)
        if first <= confirmed:
            async with self._cluster.ledgers() as ledgers:
                # Without recovery, which would close the ledger under its writer.
                reader = await ledgers.open(self._stored.ledger_id, recover=False)
                entry_id = first
                while entry_id <= confirmed:
                    # As many as fit into the bytes, at least one.
                    for payload in await reader.read(entry_id, confirmed, bytes_max=READ_BYTES_MAX):
                        self._print_entry(entry_id, payload)
                        entry_id += 1

        # Stage 2: what bookies have beyond it. Here the copies themselves are read, because a
        # reader by the rules would refuse these entries.
        beyond = self._extent.entry_ids(max(first, self._extent.confirmed + 1), last)
        metadata = self._stored.metadata
        # A copy of each entry from every bookie of its write set is in memory at once: so many
        # entries that this stays within ENTRIES_AT_ONCE_MAX copies.
        for some in portions(beyond, max(ENTRIES_AT_ONCE_MAX // metadata.write_quorum, 1)):
            # A good copy of each entry, from any bookie; if there is none, the first bad one.
            quorum = quorum_of(self._stored.ledger_id, metadata)
            # Every copy, because beyond the confirmed part any bookie may be the only one that has
            # an entry.
            wanted = list(wanted_copies(metadata, quorum, some))
            best: dict[int, Copy] = {}
            for (_, entry_id), copy in zip(wanted, await self._copies(wanted), strict=True):
                if entry_id not in best or (copy.flaw is None and best[entry_id].flaw is not None):
                    best[entry_id] = copy
            for entry_id, copy in best.items():
                self._print_copy(entry_id, copy)

    async def print_copies_of(self, bookie_id: str) -> None:
        """Print the copies that this bookie has, or should have."""
        metadata = self._stored.metadata
        quorum = quorum_of(self._stored.ledger_id, metadata)
        entry_ids = self._extent.entry_ids(self._first, self._last)
        wanted = (
            entry_id
            for name, entry_id in wanted_copies(metadata, quorum, entry_ids)
            if name == bookie_id
        )
        # Only entries whose write set has the bookie, whether it said that it has them or not: a
        # copy that it should have and lacks is what the command is to show.
        has_some = False
        for some in portions(wanted, ENTRIES_AT_ONCE_MAX):
            has_some = True
            pairs = [(bookie_id, entry_id) for entry_id in some]
            for entry_id, copy in zip(some, await self._copies(pairs), strict=True):
                self._print_copy(entry_id, copy)
        if not has_some:
            self._say_empty(f" that belong on {bookie_id}")

    async def _copies(self, wanted: list[tuple[str, int]]) -> list[Copy]:
        stored, metadata = self._stored, self._stored.metadata
        if metadata.digest_type is None:
            raise UnsupportedLedger(stored.ledger_id, "does not say which digest it has")
        # Old metadata have no password: BookKeeper's default is empty.
        decode = payload_decoder(metadata.digest_type, metadata.password or b"")
        return await self._cluster.copies().read(stored.ledger_id, metadata, wanted, decode=decode)

    def _print_copy(self, entry_id: int, copy: Copy) -> None:
        if copy.flaw is None:
            self._print_entry(entry_id, copy.content)
            return
        is_beyond = self._say_if_beyond(entry_id)
        # Beyond what is confirmed, a bookie need not have an entry.
        self.is_wrong |= not (is_beyond and copy.flaw is Flaw.ABSENT)
        if self._options.json:
            fault = {"entry": entry_id, "error": copy.flaw.value, "reason": copy.why}
            print(json.dumps(fault | ({"confirmed": False} if is_beyond else {})))
        else:
            print(f"entry {entry_id}  {copy.flaw.value}: {copy.why}")

    def _print_entry(self, entry_id: int, payload: bytes) -> None:
        is_beyond = self._say_if_beyond(entry_id)
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

    def _say_if_beyond(self, entry_id: int) -> bool:
        """Whether the entry is beyond what is confirmed; says so before the first that is."""
        is_beyond = entry_id > self._extent.confirmed
        if is_beyond and not self._is_beyond_said:
            self._is_beyond_said = True
            words = f"from entry {entry_id} on it is not known whether entries are confirmed"
            # A program that reads JSON gets only JSON on standard output.
            print(words, file=sys.stderr if self._options.json else sys.stdout)
        return is_beyond

    def _say_empty(self, which: str = "") -> None:
        options, last = self._options, self._extent.last
        words = f"ledger {options.ledger} has no entries{which}"
        if last >= 0:
            end = "" if options.last is None else f" to {options.last}"
            begin = f"ledger {options.ledger} ends with entry {last}"
            words = f"{begin}: no entries from {options.first}{end}{which}"
        print(words, file=sys.stderr if options.json else sys.stdout)


def portions(entry_ids: Iterable[int], size: int) -> Iterator[list[int]]:
    """Yield lists of ``size`` entry ids, the last one shorter."""
    ids = iter(entry_ids)
    while some := list(islice(ids, size)):
        yield some
