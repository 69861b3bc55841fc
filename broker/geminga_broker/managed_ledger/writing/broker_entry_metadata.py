"""What the broker writes in front of an entry before it is stored: the time, and a running index.

Both together are the *stamp* of an entry (``BrokerEntryMetadata``). The index of an entry is that
of its last message: it grows by the messages of each entry, over the whole life of the log. A new
owner finds it in the last entry, and in a property of the log, which is written with the log's
record and so is right where the last ledger has no entry yet. All this is upstream's (PIP-70,
``ManagedLedgerInterceptorImpl``), but for one thing: where the last entries were stored without an
index, because it was turned off meanwhile, the last entry that has one is searched for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from geminga_broker.errors import EntryDamaged, LedgerGone
from geminga_broker.managed_ledger.config import INDEX_INTERCEPTOR, TIME_INTERCEPTOR, Interceptor
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.reading.log_reader import LogReader
from geminga_broker.managed_ledger.records.recorded_chain import RecordedChain
from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.messages.integers import encode_varint
from geminga_protocol.pulsar.messages.payload import (
    BROKER_ENTRY_HEAD,
    BROKER_ENTRY_MAGIC,
    parse_broker_entry,
)
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

# The property of the log, upstream's name for it.
INDEX_PROPERTY = "index"
NO_INDEX = -1
# How many entries are read in search of the last index, where the last entry has none: one of each
# ledger, and those before a damaged one. Opening a topic must not read all of its log.
LOOKED_AT_MAX = 100

# BrokerEntryMetadata{broker_timestamp=1, index=2}, behind its magic and size:
# +--------+------+----------------+----------------+
# | 0x0e02 | size | 0x08, varint   | 0x10, varint   |
# |        | u32  | (time in ms)   | (index)        |
# +--------+------+----------------+----------------+
TIME_TAG = b"\x08"
INDEX_TAG = b"\x10"


@dataclass(frozen=True, slots=True)
class BrokerEntryFields:
    """Which fields the broker writes."""

    # When the broker took the entry (Unix time, ms).
    time: bool = False
    # The index of the entry's last message.
    index: bool = False

    @classmethod
    def of(cls, interceptors: Collection[Interceptor]) -> BrokerEntryFields:
        """The fields that upstream's classes of these names write."""
        return cls(TIME_INTERCEPTOR in interceptors, INDEX_INTERCEPTOR in interceptors)


NO_STAMPS = BrokerEntryFields()


class StampedLog(Protocol):
    """What recovering the index needs of a log."""

    name: str
    chain: LedgerChain
    reader: LogReader
    recorded: RecordedChain


@dataclass(slots=True, eq=False)
class BrokerEntryMetadata:
    """Writes the stamps of one log's entries."""

    kinds: BrokerEntryFields
    clock: Clock
    # The index of the last message that was taken, -1 before any.
    index: int = field(default=NO_INDEX, init=False)

    def append(
        self, items: Sequence[AppendRequest], take: Callable[[Sequence[AppendRequest]], None]
    ) -> None:
        """Call ``take`` with the items and their stamps. Raises what ``take`` raises."""
        # A copy, so that a run that is refused leaves no gap in the numbers.
        index = self.index
        # One time for the run: it was read from a client at once.
        noted_time = TIME_TAG + encode_varint(self.clock.wall_ms()) if self.kinds.time else b""
        stamped: list[AppendRequest] = []
        for payload, messages, publisher, sequence_id, highest_sequence_id in items:
            noted = noted_time
            if self.kinds.index:
                index += messages or 1  # a marker, or a chunk, has a place of its own
                noted += INDEX_TAG + encode_varint(index)
            head = BROKER_ENTRY_HEAD.pack(BROKER_ENTRY_MAGIC, len(noted))
            stored = b"".join((head, noted, payload))
            stamped.append((stored, messages, publisher, sequence_id, highest_sequence_id))
        take(stamped)
        # ``take`` is synchronous: no other run can be numbered in between.
        self.index = index  # only now: an index that was refused is given to the next entry

    def properties(self) -> Mapping[str, str]:
        """The properties to write with the log's record."""
        return {INDEX_PROPERTY: str(self.index)} if self.kinds.index else {}

    async def recover(self, stored: StampedLog) -> None:
        """Go on behind what is stored. Raises ``StorageUnavailable``."""
        if not self.kinds.index:
            return
        # A property that is no number counts as none: another program may have written it.
        noted: int | None = None
        with suppress(KeyError, ValueError):
            noted = int(stored.recorded.store.properties[INDEX_PROPERTY])
        # The property is as old as the record, the last entry may be newer, or without an index.
        self.index = max(
            NO_INDEX if noted is None else noted,
            # Every owner of ours writes the record before its first entry, for the new ledger. So
            # without the property none of ours has written an index.
            await _last_index(stored, is_sure=noted is None),
        )


async def _last_index(stored: StampedLog, *, is_sure: bool) -> int:
    """The index in the last entry that has one; -1 where there is none.

    ``is_sure`` says that where the last entry has none, no other has one either. Entries that are
    damaged, or were in a ledger that is gone, count as one message each, since their number of
    messages is not known. The log must open without them: it still takes and delivers others.
    """
    # Entries behind the one that is looked at, which cannot be read.
    lost = 0
    looked_at = 0
    for span in reversed(stored.chain.spans):
        # Mostly the first turn of both loops returns. Further ones pass damaged entries and ledgers
        # that were written while the index was turned off.
        for entry_id in range(span.entries - 1, -1, -1):
            if looked_at == LOOKED_AT_MAX:
                return NO_INDEX
            looked_at += 1
            position = Position(span.ledger_id, entry_id)
            try:
                payload = await stored.reader.read_one(position)
            except EntryDamaged as error:
                log.warning("no index", extra={"log": stored.name, "error": str(error)})
                lost += 1
                continue
            except LedgerGone as error:
                log.warning("no index", extra={"log": stored.name, "error": str(error)})
                lost += entry_id + 1
                break
            index = index_of(payload)
            if index != NO_INDEX:
                return index + lost
            if is_sure:
                return NO_INDEX
            # A ledger has one writer, which writes the index or does not: the others of this ledger
            # have none either.
            break
    return NO_INDEX


def index_of(payload: bytes) -> int:
    """The index in the stamp of a stored entry, that of its last message; -1 for none."""
    try:
        noted = parse_broker_entry(payload, 0, len(payload))
    except WireError:
        return NO_INDEX
    return noted.index if noted is not None and noted.HasField("index") else NO_INDEX
