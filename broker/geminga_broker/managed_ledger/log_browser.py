"""Looking at single entries of a log, for operators' tools: nothing is acknowledged by it.

All functions raise ``StorageUnavailable`` where bookies do not answer, and where the entry is
trimmed while it is looked for.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from geminga_broker.errors import StorageUnavailable
from geminga_broker.managed_ledger.acknowledgement.unacknowledged import unacknowledged_runs
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.positions import EARLIEST, Position
from geminga_broker.managed_ledger.reading.log_reader import LogReader, nth_of
from geminga_broker.managed_ledger.reading.payloads import batch_size, message_count
from geminga_broker.managed_ledger.writing.broker_entry_metadata import index_of

Found = tuple[Position, bytes]
"""An entry: where it is, and its payload."""

# How many entries of a backlog are scanned at most, and how long that may take
# (subscriptionBacklogScanMaxEntries, subscriptionBacklogScanMaxTimeMs).
SCANNED_ENTRIES_MAX = 10_000
SCAN_S_MAX = 120.0
# Markers are few: after so many in a row the search for a message ends.
MARKERS_PASSED_MAX = 1000


async def entry_at(reader: LogReader, position: Position) -> bytes | None:
    """The payload of that entry; None where the log has none there."""
    if not 0 <= position[1] < reader.readable_end(position[0]):
        return None
    return await reader.read_one(position)


async def last_message(reader: LogReader) -> tuple[Position, int]:
    """The newest entry, and the index of the last message in it (-1 where it is no batch).

    -1:-1 where the log has no entry. Raises ``StorageUnavailable``.
    """
    while (last := reader.readable_upto).entry_id >= 0:
        try:
            size = batch_size(await reader.read_one(last))
        except StorageUnavailable:
            # The entry may have been trimmed while it was read: then the log has another last
            # entry, or none. In any other case the error stands.
            if reader.chain.span(last.ledger_id) is not None:
                raise
        else:
            return last, -1 if size is None else size - 1
    return EARLIEST, -1


async def nth_in_log(reader: LogReader, number: int, *, from_latest: bool) -> Found | None:
    """The ``number``-th entry (from 1) from one end; the last one at the other end where there are
    not so many, None in an empty log."""
    spans = reader.chain.spans
    total = reader.chain.total_entries
    if not total:
        return None
    # A number that the log does not have stands for the nearest one that it has.
    index = min(max(number, 1), total) - 1
    if from_latest:
        index = total - 1 - index
    position = nth_of(spans, index)
    return position, await reader.read_one(position)


async def message_with_index(reader: LogReader, index: int) -> Position | None:
    """The entry that has the message of that index, as ``broker_entry_metadata`` counts them
    (PIP-415).

    ``EARLIEST`` where it was deleted, None where the log does not have it yet. For the index of a
    marker, which is no message, it is the message behind that marker. Entries from before messages
    were counted have no index and are before all others.
    """
    if index < 0:
        return None
    chain = reader.chain
    # Indexes grow along the log (``BrokerEntryMetadata``), which the binary search needs; entries
    # without one count as -1, as if they lay in front.
    position = await reader.first_where(lambda payload: index_of(payload) >= index)
    for _ in range(MARKERS_PASSED_MAX):
        if position > reader.readable_upto:
            return None
        payload = await reader.read_one(position)
        messages = message_count(payload)
        if messages:
            # The first entry of the log ends at or behind the index: if it also begins behind it,
            # the message was in an entry that was deleted. An entry of ``n`` messages that ends at
            # index ``e`` begins at ``e - n + 1``.
            is_first = chain.previous_of(position) == chain.before_first
            return EARLIEST if is_first and index <= index_of(payload) - messages else position
        position = chain.next_after(position)
    return None


@dataclass(slots=True)
class BacklogScan:
    """What a scan of a backlog found."""

    entries: int = 0
    messages: int = 0
    first: Position | None = None
    last: Position | None = None
    # The backlog goes on beyond ``last``: the scan reached a limit.
    is_aborted: bool = False


async def scan_backlog(
    reader: LogReader, cursor: Cursor, *, entries_max: int = SCANNED_ENTRIES_MAX
) -> BacklogScan:
    """Read a subscription's backlog, and count the messages in it."""
    scan = BacklogScan()
    try:
        async with asyncio.timeout(SCAN_S_MAX):
            # The backlog of this moment: what is acknowledged while it is read is counted too.
            for ledger_id, first, last in list(
                unacknowledged_runs(cursor.acknowledged, reader.chain)
            ):
                at = first
                # One read may give less than was asked for: its bytes are limited, too.
                while at <= last and not scan.is_aborted:
                    # Never 0: the loop ends as soon as the limit is reached.
                    wanted = min(last - at + 1, entries_max - scan.entries)
                    run = await reader.read(Position(ledger_id, at), wanted)
                    at += len(run)
                    scan.entries += len(run)
                    scan.messages += sum(message_count(payload) for _, payload, _ in run)
                    scan.first = scan.first or Position(ledger_id, run[0][0])
                    scan.last = Position(ledger_id, run[-1][0])
                    scan.is_aborted = scan.entries >= entries_max
    except TimeoutError:
        scan.is_aborted = True
    return scan
