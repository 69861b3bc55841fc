"""The JSON of a topic's ledgers and cursors, of a loaded topic and as they are stored.

``internalStats`` answers the first (``PersistentTopicInternalStats``), ``internal-info`` the second
(``ManagedLedgerInfo``). Field names and order are those of Apache Pulsar 4.0.6. A fact that is not
known here (replicas that are missing) is shown as if there were none.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass

from geminga_broker.managed_ledger.internal_stats import CursorStats, LedgerStats, LogStats
from geminga_cluster.persistent_topics import StoredCursor, StoredLog
from geminga_protocol.pulsar.messages.timestamps import iso_time
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from geminga_protocol.records.managed_ledgers_pb2 import OffloadContext
from geminga_protocol.records.topics.managed_ledger import LedgerRecord
from geminga_runtime.coordination import NodeStat

Document = dict[str, object]

# The compacted ledger of a topic that was never compacted.
NO_LEDGER = LedgerStats(-1, -1, -1, is_offloaded=False)

# The version of the format in which the metadata of ledgers is stored.
METADATA_FORMAT_VERSION = 3


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """A cursor, and what its subscription is doing."""

    cursor: CursorStats
    # It has consumers.
    is_active: bool
    # It has read everything, and waits for the next entry to be published.
    is_waiting: bool
    # It is reading entries, from bookies or the cache.
    is_reading: bool


def volatile_document() -> Document:
    """The internal stats of a non-persistent topic."""
    # The same fields as below, as upstream's clients expect all of them.
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
    """The internal stats of a topic with a log, with the ``metadata`` of ledgers that is given, and
    the ledger with the ``compacted`` entries."""
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
        # Upstream shows the ledgers of the topic's schemas here.
        "schemaLedgers": [],
        "compactedLedger": _ledger(
            compacted or NO_LEDGER, metadata.get((compacted or NO_LEDGER).ledger_id)
        ),
    }


def time_member(name: str, time_ms: int) -> Document:
    """A member with a time, left out for what never happened."""
    # 0 stands for "never" in all times of this document.
    return {name: iso_time(time_ms)} if time_ms else {}


def _ledger(ledger: LedgerStats, metadata: LedgerMetadata | None) -> Document:
    # Only on request: it takes a read from ZooKeeper for each ledger.
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
    """The members of ``CursorStats``."""
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
    """A ledger's metadata as BookKeeper's tools print it, without its password."""
    parts: dict[str, object] = {
        "formatVersion": METADATA_FORMAT_VERSION,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "state": metadata.state.name,
    }
    # An open ledger has no end yet. Length and last entry are decided when a ledger is closed, by
    # recovery if need be.
    if metadata.state is LedgerState.CLOSED:
        parts |= {"length": metadata.length, "lastEntryId": metadata.last_entry}
    # A password is a secret even where all ledgers have the same; tools print it like this.
    if metadata.password is not None and metadata.digest_type is not None:
        parts |= {"digestType": metadata.digest_type.name, "password": "OMITTED"}
    # By the first entry that each ensemble stores.
    ensembles = (f"{each.first_entry}=[{', '.join(each.ensemble)}]" for each in metadata.fragments)
    custom = (
        f"{name}=base64:{b64encode(value).decode()}" for name, value in metadata.custom.items()
    )
    parts["ensembles"] = f"{{{', '.join(ensembles)}}}"
    parts["customMetadata"] = f"{{{', '.join(custom)}}}"
    return f"LedgerMetadata{{{', '.join(f'{name}={value}' for name, value in parts.items())}}}"


def log_info(stored: StoredLog) -> Document:
    """The stored record of a log and of its cursors; fields that are not set are left out."""
    record = stored.record
    return {
        **_node(stored.stat),
        "ledgers": [_stored_ledger(each) for each in record.ledgers],
        **_position("terminatedPosition", record.terminated_at),
        "cursors": {name: _stored_cursor(each) for name, each in stored.cursors.items()},
        # An empty object would read as "has properties".
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
    # Open ledgers have no sizes yet. None: not set in the record, which Java leaves out as well.
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
