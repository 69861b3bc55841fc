"""The JSON of a topic's internal stats, as upstream prints it (``PersistentTopicInternalStats``).

Field names and order are those of Apache Pulsar 4.0.6. Nothing is counted here; where a fact is
not known (copies that are missing) the field says that there is nothing.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass

from geminga_broker.managed_ledger.internal_stats import CursorStats, LedgerStats, LogStats
from geminga_cluster.persistent_topics import StoredCursor, StoredLog
from geminga_protocol.pulsar.timestamps import iso_time
from geminga_protocol.records.ledger_metadata import LedgerMetadata, LedgerState
from geminga_protocol.records.managed_ledger import LedgerRecord
from geminga_protocol.records.managed_ledgers_pb2 import OffloadContext
from geminga_runtime.coordination import NodeStat

Document = dict[str, object]

# How a topic that was never compacted shows its compacted ledger.
NO_LEDGER = LedgerStats(-1, -1, -1, is_offloaded=False)

# The version of the format in which every ledger's metadata is stored.
METADATA_FORMAT_VERSION = 3


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """A cursor, and what its subscription is doing: has it consumers, does it wait for entries to
    be published, is it reading entries from bookies."""

    cursor: CursorStats
    is_active: bool
    is_waiting: bool
    is_reading: bool


def volatile_document() -> Document:
    """Of a topic that keeps nothing."""
    return {
        "entriesAddedCounter": 0,
        "numberOfEntries": 0,
        "totalSize": 0,
        "currentLedgerEntries": 0,
        "currentLedgerSize": 0,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "cursors": {},
    }


def persistent_document(
    log: LogStats,
    subscriptions: Mapping[str, SubscriptionFacts],
    metadata: Mapping[int, LedgerMetadata],
    compacted: LedgerStats | None = None,
) -> Document:
    """Of a topic with a log; ``metadata`` by ledger is shown where it is given, and the ledger into
    which the topic is ``compacted``."""
    return {
        "entriesAddedCounter": log.entries_added,
        "numberOfEntries": log.entries,
        "totalSize": log.size_bytes,
        "currentLedgerEntries": log.current_ledger_entries,
        "currentLedgerSize": log.current_ledger_bytes,
        **time_member("lastLedgerCreatedTimestamp", log.last_ledger_created_ms),
        **time_member("lastLedgerCreationFailureTimestamp", log.last_ledger_failed_ms),
        "waitingCursorsCount": sum(each.is_waiting for each in subscriptions.values()),
        "pendingAddEntriesCount": log.pending_entries,
        "lastConfirmedEntry": str(log.last_confirmed),
        "state": log.state.value,
        "ledgers": [_ledger(each, metadata.get(each.ledger_id)) for each in log.ledgers],
        "cursors": {name: _cursor(each) for name, each in subscriptions.items()},
        "schemaLedgers": [],
        "compactedLedger": _ledger(
            compacted or NO_LEDGER, metadata.get((compacted or NO_LEDGER).ledger_id)
        ),
    }


def time_member(name: str, time_ms: int) -> Document:
    """Left out for what never happened."""
    return {name: iso_time(time_ms)} if time_ms else {}


def _ledger(ledger: LedgerStats, metadata: LedgerMetadata | None) -> Document:
    text = {} if metadata is None else {"metadata": metadata_text(metadata)}
    return {
        "ledgerId": ledger.ledger_id,
        "entries": ledger.entries,
        "size": ledger.size_bytes,
        "offloaded": ledger.is_offloaded,
        **text,
        "underReplicated": False,
    }


def _cursor(facts: SubscriptionFacts) -> Document:
    cursor = facts.cursor
    return {
        "markDeletePosition": str(cursor.mark_delete),
        "readPosition": str(cursor.read_position),
        "waitingReadOp": facts.is_waiting,
        "pendingReadOps": int(facts.is_reading),
        "messagesConsumedCounter": cursor.messages_consumed,
        "cursorLedger": cursor.cursor_ledger_id,
        "cursorLedgerLastEntry": cursor.cursor_ledger_last_entry,
        "individuallyDeletedMessages": cursor.acknowledged_ranges,
        **time_member("lastLedgerSwitchTimestamp", cursor.ledger_switched_ms),
        "state": cursor.state,
        "active": facts.is_active,
        "numberOfEntriesSinceFirstNotAckedMessage": cursor.entries_since_first_unacknowledged,
        "totalNonContiguousDeletedMessagesRange": cursor.acknowledged_range_count,
        "subscriptionHavePendingRead": facts.is_waiting or facts.is_reading,
        "subscriptionHavePendingReplayRead": False,
        "properties": dict(cursor.properties),
    }


def metadata_text(metadata: LedgerMetadata) -> str:
    """A ledger's metadata in the words of BookKeeper's tools, its password left out."""
    parts: dict[str, object] = {
        "formatVersion": METADATA_FORMAT_VERSION,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "state": metadata.state.name,
    }
    if metadata.state is LedgerState.CLOSED:
        parts |= {"length": metadata.length, "lastEntryId": metadata.last_entry}
    if metadata.password is not None and metadata.digest_type is not None:
        parts |= {"digestType": metadata.digest_type.name, "password": "OMITTED"}
    ensembles = (f"{each.first_entry}=[{', '.join(each.ensemble)}]" for each in metadata.fragments)
    custom = (
        f"{name}=base64:{b64encode(value).decode()}" for name, value in metadata.custom.items()
    )
    parts["ensembles"] = f"{{{', '.join(ensembles)}}}"
    parts["customMetadata"] = f"{{{', '.join(custom)}}}"
    return f"LedgerMetadata{{{', '.join(f'{name}={value}' for name, value in parts.items())}}}"


def log_info(stored: StoredLog) -> Document:
    """A log's record with its cursors'. What a record does not say is left out."""
    record = stored.record
    return {
        **_node(stored.stat),
        "ledgers": [_stored_ledger(each) for each in record.ledgers],
        **_position("terminatedPosition", record.terminated_at),
        "cursors": {name: _stored_cursor(each) for name, each in stored.cursors.items()},
        **({"properties": dict(record.properties)} if record.properties else {}),
    }


def _node(stat: NodeStat) -> Document:
    return {
        "version": stat.version,
        **time_member("creationDate", stat.created_ms),
        **time_member("modificationDate", stat.modified_ms),
    }


def _stored_ledger(ledger: LedgerRecord) -> Document:
    known = {
        "ledgerId": ledger.ledger_id,
        "entries": ledger.entries,
        "size": ledger.size_bytes,
        "timestamp": ledger.closed_at_ms or None,
    }
    document: Document = {name: value for name, value in known.items() if value is not None}
    return document | {"isOffloaded": OffloadContext.FromString(ledger.offload or b"").complete}


def _stored_cursor(stored: StoredCursor) -> Document:
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
