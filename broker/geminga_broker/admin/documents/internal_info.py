"""The JSON of what is stored of a topic, as upstream prints it (``ManagedLedgerInfo``)."""

from __future__ import annotations

from geminga_broker.admin.documents.internal_stats import Document, time_member
from geminga_cluster.persistent_topics import StoredCursor, StoredLog
from geminga_protocol.records.managed_ledgers_pb2 import OffloadContext
from geminga_protocol.records.topics.managed_ledger import LedgerRecord
from geminga_runtime.coordination import NodeStat


def log_info(stored: StoredLog) -> Document:
    """A log's record with its cursors'. What a record does not say is left out."""
    record = stored.record
    return {
        **_node(stored.stat),
        "ledgers": [_ledger(each) for each in record.ledgers],
        **_position("terminatedPosition", record.terminated_at),
        "cursors": {name: _cursor(each) for name, each in stored.cursors.items()},
        **({"properties": dict(record.properties)} if record.properties else {}),
    }


def _node(stat: NodeStat) -> Document:
    return {
        "version": stat.version,
        **time_member("creationDate", stat.created_ms),
        **time_member("modificationDate", stat.modified_ms),
    }


def _ledger(ledger: LedgerRecord) -> Document:
    known = {
        "ledgerId": ledger.ledger_id,
        "entries": ledger.entries,
        "size": ledger.size_bytes,
        "timestamp": ledger.closed_at_ms or None,
    }
    document: Document = {name: value for name, value in known.items() if value is not None}
    return document | {"isOffloaded": OffloadContext.FromString(ledger.offload or b"").complete}


def _cursor(stored: StoredCursor) -> Document:
    record = stored.record
    ranges = [
        {**_position("from", low), **_position("to", high)} for low, high in record.acknowledged
    ]
    return {
        **_node(stored.stat),
        "cursorsLedgerId": record.cursor_ledger_id,
        **_position("markDelete", record.mark_delete),
        **({"individualDeletedMessages": ranges} if ranges else {}),
    }


def _position(name: str, position: tuple[int, int] | None) -> Document:
    if position is None:
        return {}
    return {name: {"ledgerId": position[0], "entryId": position[1]}}
