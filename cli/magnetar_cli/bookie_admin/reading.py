"""``read-ledger`` and ``verify-ledger``: entries, and the copies of entries."""

from __future__ import annotations

import argparse
import json
from base64 import b64encode
from collections.abc import Iterator

from magnetar_autorecovery.findings import Flaw
from magnetar_autorecovery.fragments import quorum_of
from magnetar_cli.bookie_admin.cluster import Cluster
from magnetar_cli.bookie_admin.text import count_words, hex_lines, plain_text
from magnetar_cli.bookie_admin.verdict import LedgerVerdict, wanted_copies
from magnetar_ledger import UnsupportedLedger
from magnetar_ledger.digests import payload_decoder
from magnetar_ledger.store import StoredMetadata
from magnetar_protocol.records.ledger_metadata import LedgerState

# Entries asked for at once: of the largest, 5 MiB each, no more than a hundred MiB come.
ENTRIES_AT_ONCE_MAX = 20
READ_BYTES_MAX = 1024 * 1024


async def read_ledger(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print entries; 1 where one of them could not be had from the bookie that was named."""
    stored = await cluster.store.read(options.ledger)
    if options.bookie:
        await cluster.require_bookie(options.bookie)
        return await _read_from_one(cluster, stored, options)
    async with cluster.ledgers() as ledgers:
        reader = await ledgers.open(options.ledger, recover=False)
        last = reader.last_confirmed if options.last is None else options.last
        last = min(last, reader.last_confirmed)
        entry_id = options.first
        if entry_id > last:
            print(_nothing(options, reader.last_confirmed))
            return 0
        while entry_id <= last:
            for payload in await reader.read(entry_id, last, bytes_max=READ_BYTES_MAX):
                _print_entry(entry_id, payload, options)
                entry_id += 1
    return 0


async def _read_from_one(
    cluster: Cluster, stored: StoredMetadata, options: argparse.Namespace
) -> int:
    metadata = stored.metadata
    if metadata.digest_type is None:
        raise UnsupportedLedger(stored.ledger_id, "does not say which digest it has")
    decode = payload_decoder(metadata.digest_type, metadata.password or b"")
    confirmed = await _last_entry(cluster, stored)
    last = confirmed if options.last is None else min(options.last, confirmed)
    wanted = [
        entry_id
        for bookie_id, entry_id in wanted_copies(
            metadata, quorum_of(stored.ledger_id, metadata), options.first, last
        )
        if bookie_id == options.bookie
    ]
    if not wanted:
        print(f"{_nothing(options, confirmed)} that belong on {options.bookie}")
    is_wrong = False
    for some in _portions(wanted):
        pairs = [(options.bookie, entry_id) for entry_id in some]
        copies = await cluster.copies().read(stored.ledger_id, metadata, pairs, decode=decode)
        for entry_id, copy in zip(some, copies, strict=True):
            if copy.flaw is None:
                _print_entry(entry_id, copy.content, options)
            else:
                is_wrong = True
                _print_fault(entry_id, copy.flaw, copy.why, options)
    return int(is_wrong)


async def verify_ledger(cluster: Cluster, options: argparse.Namespace) -> int:
    """Read every copy of every entry; 1 where one is not as it should be."""
    stored = await cluster.store.read(options.ledger)
    metadata = stored.metadata
    quorum = quorum_of(stored.ledger_id, metadata)
    last = await _last_entry(cluster, stored)
    verdict = LedgerVerdict(stored.ledger_id, metadata, last)
    step = max(ENTRIES_AT_ONCE_MAX // quorum.write_quorum, 1)
    for first in range(0, last + 1, step):
        wanted = wanted_copies(metadata, quorum, first, min(first + step - 1, last))
        copies = await cluster.copies().read(stored.ledger_id, metadata, wanted)
        verdict.add(wanted, copies)
    if options.json:
        print(json.dumps(verdict.record(), indent=2))
    else:
        for line in verdict.lines():
            print(line)
    return int(not verdict.is_sound)


async def _last_entry(cluster: Cluster, stored: StoredMetadata) -> int:
    """The last entry of a closed ledger; of another, how far it is confirmed."""
    if stored.metadata.state is LedgerState.CLOSED:
        return stored.metadata.last_entry
    async with cluster.ledgers() as ledgers:
        return (await ledgers.open(stored.ledger_id, recover=False)).last_confirmed


def _portions(entry_ids: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(entry_ids), ENTRIES_AT_ONCE_MAX):
        yield entry_ids[start : start + ENTRIES_AT_ONCE_MAX]


def _nothing(options: argparse.Namespace, last: int) -> str:
    if last < 0:
        return f"ledger {options.ledger} has no entries"
    wanted = "" if options.last is None else f" to {options.last}"
    return (
        f"ledger {options.ledger} ends with entry {last}: no entries from {options.first}{wanted}"
    )


def _print_entry(entry_id: int, payload: bytes, options: argparse.Namespace) -> None:
    if options.json:
        content = b64encode(payload).decode()
        print(json.dumps({"entry": entry_id, "length": len(payload), "payload": content}))
        return
    print(f"entry {entry_id}  {count_words(len(payload), 'byte')}")
    if options.format == "hex":
        for line in hex_lines(payload):
            print(line)
    elif options.format == "text":
        print(plain_text(payload))


def _print_fault(entry_id: int, flaw: Flaw, why: str, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps({"entry": entry_id, "error": flaw.value, "reason": why}))
    else:
        print(f"entry {entry_id}  {flaw.value}: {why}")
