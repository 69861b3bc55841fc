"""What is stored of a topic is shown as a real broker shows it, in its names and order."""

from __future__ import annotations

import json

from geminga_broker.admin.documents.internal_info import log_info
from geminga_cluster.persistent_topics import StoredCursor, StoredLog
from geminga_protocol.records.topics.cursor import CursorRecord
from geminga_protocol.records.topics.managed_ledger import LedgerRecord, ManagedLedgerRecord
from geminga_runtime.coordination import NodeStat

# Recorded: two ledgers, the second open, and a subscription with holes, after an unload.
RECORDED = (
    '{"version":2,"creationDate":"2026-11-21T07:44:51.757Z",'
    '"modificationDate":"2026-11-21T07:44:55.303Z","ledgers":[{"ledgerId":14,"entries":10,'
    '"size":10350,"timestamp":1795247095299,"isOffloaded":false},{"ledgerId":17,'
    '"isOffloaded":false}],"cursors":{"shared":{"version":2,'
    '"creationDate":"2026-11-21T07:44:51.766Z","modificationDate":"2026-11-21T07:44:55.255Z",'
    '"cursorsLedgerId":-1,"markDelete":{"ledgerId":14,"entryId":1},"individualDeletedMessages":'
    '[{"from":{"ledgerId":14,"entryId":3},"to":{"ledgerId":14,"entryId":5}},'
    '{"from":{"ledgerId":14,"entryId":7},"to":{"ledgerId":14,"entryId":8}}]}}}'
)


def stat(version: int, created_ms: int, modified_ms: int) -> NodeStat:
    return NodeStat(version, 1, 1, 0, created_ms=created_ms, modified_ms=modified_ms)


def test_a_topics_records_are_shown_as_recorded() -> None:
    record = ManagedLedgerRecord(
        ledgers=(LedgerRecord(14, 10, 10350, 1795247095299), LedgerRecord(17))
    )
    cursor = CursorRecord(
        mark_delete=(14, 1), acknowledged=(((14, 3), (14, 5)), ((14, 7), (14, 8)))
    )
    stored = StoredLog(
        record,
        stat(2, 1795247091757, 1795247095303),
        {"shared": StoredCursor(cursor, stat(2, 1795247091766, 1795247095255))},
    )
    assert json.dumps(log_info(stored), separators=(",", ":")) == RECORDED


def test_what_only_some_topics_have_is_shown_too() -> None:
    record = ManagedLedgerRecord(
        ledgers=(LedgerRecord(1),), terminated_at=(1, 7), properties={"a": "b"}
    )
    document = log_info(StoredLog(record, stat(0, 0, 0), {}))
    assert document["terminatedPosition"] == {"ledgerId": 1, "entryId": 7}
    assert document["properties"] == {"a": "b"}
    assert "creationDate" not in document
