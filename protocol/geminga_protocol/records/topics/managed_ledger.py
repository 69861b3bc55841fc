"""What Pulsar keeps of a topic's log: the chain of its ledgers.

Facts: ``MetaStoreImpl`` of Apache Pulsar; the message is ``ManagedLedgerInfo`` of
MLDataFormats.proto. Compressed records (``managedLedgerInfoCompressionType``, not set by default)
are refused.
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

Position = tuple[int, int]
"""``(ledger_id, entry_id)``."""


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One ledger of the chain. The last one, still written to, has neither entries nor size.

    ``closed_at_ms`` is Unix time, 0 while the ledger is open. ``offload`` is the serialized
    ``OffloadContext``, kept as it is: ledgers in other storage are not ours to read.
    """

    ledger_id: int
    entries: int | None = None
    size_bytes: int | None = None
    closed_at_ms: int | None = 0
    offload: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLedgerRecord:
    """A topic's log: its ledgers in order, where it was terminated, and its properties."""

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
        """Read a topic's node; an empty one is a log without ledgers, just created.

        Raises ``MalformedRecord``, and ``UnsupportedRecord`` where it is compressed in a way that
        needs a package that is missing.
        """
        message = parse_message(ManagedLedgerInfo, uncompressed(value, _RECORD), _RECORD)
        return cls(
            ledgers=tuple(_ledger_of(ledger) for ledger in message.ledgerInfo),
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


def _ledger_of(message: ManagedLedgerInfo.LedgerInfo) -> LedgerRecord:
    return LedgerRecord(
        ledger_id=message.ledgerId,
        entries=message.entries if message.HasField("entries") else None,
        size_bytes=message.size if message.HasField("size") else None,
        closed_at_ms=message.timestamp if message.HasField("timestamp") else None,
        offload=(
            message.offloadContext.SerializeToString()
            if message.HasField("offloadContext")
            else None
        ),
    )
