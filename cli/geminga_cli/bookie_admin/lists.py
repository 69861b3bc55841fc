"""``list-bookies``, ``list-ledgers``, ``ledger-metadata``, ``list-under-replicated`` and
``who-is-auditor``: show what ZooKeeper and the bookies know."""

from __future__ import annotations

import argparse
import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator

from geminga_autorecovery.decisions.fragments import bookies_of
from geminga_autorecovery.errors import BookieUnknown
from geminga_autorecovery.removal.known_bookies import named_bookies
from geminga_autorecovery.zookeeper.underreplication_marks import UnderreplicationMarks, read_mark
from geminga_bookie.admin.auditor import current_auditor
from geminga_bookie.admin.bookie_requests import BookieSpace, ask_space
from geminga_bookie.admin.documents.ledger_json import metadata_json
from geminga_bookie.admin.ledgers import all_ledgers
from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.report import print_report
from geminga_cli.display.text import plain_text, size_words, table
from geminga_ledger import LedgerError, NoSuchLedger
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.metadata.store import StoredMetadata
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata, LedgerState

# Requests to ZooKeeper, and to bookies, that are open at the same time.
METADATA_READS_MAX = 64
ASKED_AT_ONCE_MAX = 32


async def list_bookies(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print each registered bookie with its mode, addresses and free space.

    Returns 1 if one does not answer.
    """
    # Registered bookies only: one that is down has no address to ask.
    live = await cluster.live_bookies()
    limit = asyncio.Semaphore(ASKED_AT_ONCE_MAX)

    async def ask(bookie_id: str) -> dict[str, object]:
        async with limit:
            info = await cluster.bookie_info(bookie_id)
            # What is registered is shown even where the bookie does not answer: that is what the
            # list is for.
            space: BookieSpace | None = None
            error = None
            try:
                address = await cluster.registry.resolve(bookie_id)
                space = await ask_space(cluster.network, bookie_id, address)
            except BookieUnavailable as unavailable:
                error = str(unavailable)
        return {
            "bookie": bookie_id,
            "mode": "writable" if bookie_id in live.writable else "read-only",
            "address": _address(info.address if info else None),
            "http": _address(info.http_address if info else None),
            "free": space.free_bytes if space else None,
            "total": space.total_bytes if space else None,
            "error": error,
        }

    found = await asyncio.gather(*map(ask, sorted(live.all)))
    columns = ("bookie", "mode", "address", "http", "free", "total")
    return print_report(found, columns, _cell, as_json=options.json)


def _address(address: tuple[str, int] | None) -> str | None:
    return None if address is None else f"{address[0]}:{address[1]}"


def _cell(value: object) -> object:
    """The numbers here are bytes."""
    return size_words(value) if isinstance(value, int) else value


async def list_ledgers(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print every ledger, or those on one bookie, while ZooKeeper is still being read.

    Returns 1 if the record of one cannot be read. Raises ``BookieUnknown``.
    """
    # Stage 1: the short way, where only ids are wanted.
    if not options.bookie and not options.metadata:
        # The ids are names of nodes: no record need be read.
        async for ledger_id in all_ledgers(cluster.coordination):
            print(json.dumps({"ledger": ledger_id}) if options.json else ledger_id)
        return 0
    # A record that cannot be read is printed in its place and makes the exit code 1: the list stays
    # complete.
    is_wrong = has_some = False
    # Printed while it is read: a list of a million ledgers neither waits for its end nor is held in
    # memory.
    async for found in _all_metadata(cluster):
        if isinstance(found, LedgerError):
            print(json.dumps({"error": str(found)}) if options.json else found)
            is_wrong = True
        elif not options.bookie or options.bookie in bookies_of(found.metadata):
            has_some = True
            if options.json:
                shown = _record(found) if options.metadata else {}
                print(json.dumps({"ledger": found.ledger_id, **shown}))
            elif options.metadata:
                print(metadata_line(found.ledger_id, found.metadata))
            else:
                print(found.ledger_id)
    if options.bookie and not has_some:
        # An empty list for a name that was mistyped would be misleading.
        known = await named_bookies(cluster.coordination)
        if options.bookie not in known:
            raise BookieUnknown(options.bookie, known)
    return int(is_wrong)


def _record(stored: StoredMetadata) -> dict[str, object]:
    return metadata_json(stored.ledger_id, stored.metadata, created_ms=stored.created_ms)


def metadata_line(ledger_id: int, metadata: LedgerMetadata) -> str:
    """A ledger in one line: state, end, sizes, and the bookies of each fragment."""
    state = metadata.state.name.lower().replace("_", " ")
    end = ""
    if metadata.state is LedgerState.CLOSED:
        end = f"  last entry {metadata.last_entry}  {size_words(metadata.length)}"
    sizes = f"E={metadata.ensemble_size} Qw={metadata.write_quorum} Qa={metadata.ack_quorum}"
    ensembles = "  ".join(
        f"{fragment.first_entry}: {', '.join(fragment.ensemble)}" for fragment in metadata.fragments
    )
    return f"{ledger_id}  {state}{end}  {sizes}  {ensembles}"


async def _all_metadata(cluster: Cluster) -> AsyncIterator[StoredMetadata | LedgerError]:
    """The record of each ledger, or the error that it cannot be read with."""
    # Ids are collected up to METADATA_READS_MAX and then read together, so at most that many
    # requests wait at ZooKeeper.
    some: list[int] = []
    async for ledger_id in all_ledgers(cluster.coordination):
        some.append(ledger_id)
        if len(some) == METADATA_READS_MAX:
            for each in await _read_metadata(cluster, some):
                yield each
            some = []
    for each in await _read_metadata(cluster, some):
        yield each


async def _read_metadata(
    cluster: Cluster, ledger_ids: list[int]
) -> list[StoredMetadata | LedgerError]:
    """The records of these ledgers; a ledger that was deleted meanwhile is left out."""
    # Errors as values: one bad record must not end the list.
    found = await asyncio.gather(*map(cluster.store.read, ledger_ids), return_exceptions=True)
    kept: list[StoredMetadata | LedgerError] = []
    for each in found:
        # Any other exception is no fact about a ledger (the session with ZooKeeper is over, for
        # example): it ends the list.
        if isinstance(each, StoredMetadata | LedgerError):
            if not isinstance(each, NoSuchLedger):
                kept.append(each)
        else:
            raise each
    return kept


async def ledger_metadata(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print the whole record of a ledger. Raises ``NoSuchLedger``, ``UnsupportedLedger``."""
    stored = await cluster.store.read(options.ledger)
    shown = _record(stored)
    if options.json:
        print(json.dumps(shown, indent=2))
        return 0
    # These two are printed below, a line for each of their members.
    custom = shown.pop("customMetadata")
    shown.pop("allEnsembles")
    width = max(map(len, shown))
    for name, value in shown.items():
        print(f"{name:{width}}  {'' if value is None else value}".rstrip())
    for fragment in stored.metadata.fragments:
        print(f"from entry {fragment.first_entry}: {', '.join(fragment.ensemble)}")
    if isinstance(custom, dict):
        for name, value in custom.items():
            print(f"{name}: {plain_text(b64decode(value))}")
    return 0


async def list_under_replicated(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print the ledgers that are marked as under-replicated, and the bookies that lost them.

    Returns 1 if there are any.
    """
    marks = UnderreplicationMarks(cluster.coordination, cluster.clock)
    found: dict[int, list[str]] = {}
    for ledger_id in await marks.ledgers():
        # One after the other: there are few, or the cluster has other troubles.
        mark = await read_mark(marks.coordination, ledger_id)
        if mark is not None:  # else it was repaired meanwhile
            found[ledger_id] = list(mark.missing_bookies)
    if options.json:
        print(json.dumps({str(each): missing for each, missing in found.items()}, indent=2))
    elif not found:
        print("no ledger is marked as under-replicated")
    else:
        rows = ([each, ", ".join(missing)] for each, missing in found.items())
        for line in table(("ledger", "missing on"), rows):
            print(line)
    return int(bool(found))


async def who_is_auditor(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print the bookie id of the auditor; returns 1 if there is none."""
    auditor = await current_auditor(cluster.coordination)
    if options.json:
        print(json.dumps({"auditor": auditor}))
    else:
        print(auditor or "there is no auditor: no bookie runs auto-recovery")
    return int(auditor is None)
