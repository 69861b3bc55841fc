"""The record of a log in ZooKeeper: the chain of its ledgers, kept by compare-and-set.

Whoever finds the record changed by somebody else has lost the log to another broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from magnetar_broker.errors import TopicExists
from magnetar_broker.log.chain import LedgerSpan
from magnetar_broker.log.own_record import OwnRecord
from magnetar_protocol.records.managed_ledger import (
    LedgerRecord,
    ManagedLedgerRecord,
    managed_ledger_path,
)
from magnetar_protocol.records.managed_ledger import Position as StoredPosition
from magnetar_runtime.coordination import Coordination, NodeExists, delete_tree

# What upstream writes into the metadata of every ledger of a log.
LABELS = (("component", b"managed-ledger"), ("application", b"pulsar"))


class LogStore:
    """The node of log ``name``. ``load`` or ``create`` comes first."""

    def __init__(self, coordination: Coordination, name: str) -> None:
        self.name = name
        self.properties: Mapping[str, str] = {}
        self._coordination = coordination
        self._record = OwnRecord(coordination, managed_ledger_path(name))
        # What only upstream uses is kept as it came.
        self._offloads: dict[int, bytes] = {}
        self._terminated_at: StoredPosition | None = None

    @property
    def ledger_labels(self) -> dict[str, bytes]:
        """The custom metadata of this log's ledgers."""
        return {"pulsar/managed-ledger": self.name.encode(), **dict(LABELS)}

    async def load(self) -> list[LedgerSpan]:
        """The ledgers of the log. Raises ``NodeMissing`` where there is no such log."""
        record = ManagedLedgerRecord.decode(await self._record.load())
        self.properties = record.properties
        self._terminated_at = record.terminated_at
        self._offloads = {
            each.ledger_id: each.offload for each in record.ledgers if each.offload is not None
        }
        return [
            LedgerSpan(
                each.ledger_id, each.entries or 0, each.size_bytes or 0, each.closed_at_ms or 0
            )
            for each in record.ledgers
        ]

    async def create(self, spans: Iterable[LedgerSpan], properties: Mapping[str, str]) -> None:
        """Write the first record. Raises ``TopicExists`` where somebody did already."""
        self.properties = properties
        try:
            await self._record.create(self._encode(spans), make_parents=True)
        except NodeExists:
            raise TopicExists(self.name) from None

    async def save(self, spans: Iterable[LedgerSpan]) -> None:
        """Replace the record. Raises ``VersionMismatch`` where another broker changed it."""
        await self._record.write(self._encode(spans))

    def _encode(self, spans: Iterable[LedgerSpan]) -> bytes:
        ledgers = tuple(
            LedgerRecord(
                span.ledger_id,
                entries=span.entries if span.closed_at_ms else None,
                size_bytes=span.size_bytes if span.closed_at_ms else None,
                closed_at_ms=span.closed_at_ms,
                offload=self._offloads.get(span.ledger_id),
            )
            for span in spans
        )
        return ManagedLedgerRecord(
            ledgers=ledgers, terminated_at=self._terminated_at, properties=self.properties
        ).encode()

    async def delete(self) -> None:
        """Delete the record and those of the cursors below it."""
        await delete_tree(self._coordination, self._record.path)
