"""The record of a topic's log (its managed ledger): the chain of its ledgers.

Facts: ``MetaStoreImpl`` of Apache Pulsar; the message is ``ManagedLedgerInfo`` of
MLDataFormats.proto. Compressed records are read (``encodings.compression``), plain ones written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from geminga_protocol.records.encodings.compression import uncompressed
from geminga_protocol.records.encodings.protobuf_records import parse_message, text_of
from geminga_protocol.records.managed_ledgers_pb2 import (
    ManagedLedgerInfo,
    NestedPositionInfo,
    OffloadContext,
)

MANAGED_LEDGERS_PATH = "/managed-ledgers"

_RECORD = "managed ledger"

# (ledger_id, entry_id) of an entry in the log.
Position = tuple[int, int]


#     ledgers      5: 1000 entries    8: 1000 entries    9: open
#     positions    (5, 0) ... (5, 999)  (8, 0) ... (8, 999)  (9, 0) ...
#
# Ledger ids rise along the chain, with gaps: other topics and cursors take ids from the same
# counter. Ledgers leave the chain at its beginning, and new ones join it at its end.
@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One ledger of the chain."""

    ledger_id: int
    # Both are None for the last ledger, which is still written to.
    entries: int | None = None
    size_bytes: int | None = None
    # Unix time, 0 while the ledger is open.
    closed_at_ms: int | None = 0
    # The serialized ``OffloadContext``, kept unread: Geminga does not read offloaded ledgers.
    offload: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLedgerRecord:
    """A topic's log: its ledgers in order, where it was terminated, and its properties."""

    # Only the last one may be open.
    ledgers: tuple[LedgerRecord, ...] = ()
    terminated_at: Position | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The bytes of the topic's node."""
        message = ManagedLedgerInfo()
        for ledger in self.ledgers:
            added = message.ledgerInfo.add(
                ledgerId=ledger.ledger_id,
                entries=ledger.entries,
                size=ledger.size_bytes,
                timestamp=ledger.closed_at_ms,
            )
            # Parsed once more only to be copied: a message takes no bytes for a field of a message.
            if ledger.offload is not None:
                added.offloadContext.CopyFrom(OffloadContext.FromString(ledger.offload))
        if self.terminated_at is not None:
            ledger_id, entry_id = self.terminated_at
            message.terminatedPosition.CopyFrom(
                NestedPositionInfo(ledgerId=ledger_id, entryId=entry_id)
            )
        for key, value in self.properties.items():
            message.properties.add(key=key, value=value)
        return message.SerializeToString()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a topic's node; an empty one is a log that was just created, without ledgers.

        Raises ``MalformedRecord``, and ``UnsupportedRecord`` where it is compressed in a way that
        needs a package that is missing.
        """
        message = parse_message(ManagedLedgerInfo, uncompressed(value, _RECORD), _RECORD)
        return cls(
            ledgers=tuple(
                LedgerRecord(
                    ledger_id=ledger.ledgerId,
                    entries=ledger.entries if ledger.HasField("entries") else None,
                    size_bytes=ledger.size if ledger.HasField("size") else None,
                    closed_at_ms=ledger.timestamp if ledger.HasField("timestamp") else None,
                    offload=(
                        ledger.offloadContext.SerializeToString()
                        if ledger.HasField("offloadContext")
                        else None
                    ),
                )
                for ledger in message.ledgerInfo
            ),
            terminated_at=(
                position_of(message.terminatedPosition)
                if message.HasField("terminatedPosition")
                else None
            ),
            properties={
                text_of(pair.key, _RECORD): text_of(pair.value, _RECORD)
                for pair in message.properties
            },
        )


def managed_ledger_path(name: str) -> str:
    """The node of a log; ``name`` is ``tenant/namespace/persistent/encoded-topic``."""
    return f"{MANAGED_LEDGERS_PATH}/{name}"


def position_of(message: NestedPositionInfo) -> Position:
    """The position in a message."""
    return message.ledgerId, message.entryId
