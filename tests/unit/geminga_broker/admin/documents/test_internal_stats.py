"""A ledger's metadata reads as a real broker shows it."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.project_files import GOLDEN

from geminga_broker.admin.documents.internal_stats import log_info, metadata_text
from geminga_cluster.persistent_topics import StoredCursor, StoredLog
from geminga_protocol.records.ledgers.ledger_metadata import Fragment, LedgerMetadata
from geminga_protocol.records.topics.cursor import CursorRecord
from geminga_protocol.records.topics.managed_ledger import LedgerRecord, ManagedLedgerRecord
from geminga_runtime.coordination import NodeStat

WRITTEN = GOLDEN / "admin" / "internal-stats.json"
METADATA = LedgerMetadata(
    ensemble_size=1,
    write_quorum=1,
    ack_quorum=1,
    fragments=(Fragment(0, ("127.0.0.1:44281",)),),
    custom={
        "pulsar/managed-ledger": b"public/p2/persistent/x",
        "component": b"managed-ledger",
        "application": b"pulsar",
    },
)


def test_an_open_ledgers_metadata_is_said_as_upstream_says_it() -> None:
    recorded = json.loads(WRITTEN.read_text())["live"]["ledgers"][0]["metadata"]
    assert metadata_text(METADATA) == recorded


def test_a_closed_ledger_has_a_length() -> None:
    # As BookKeeper's tools print it: the end comes after the state.
    assert "state=CLOSED, length=70, lastEntryId=6, digestType=CRC32C" in metadata_text(
        METADATA.closed(6, 70)
    )


def test_a_ledger_without_a_password_shows_no_digest() -> None:
    text = metadata_text(replace(METADATA, password=None))
    assert "state=OPEN, ensembles={0=[127.0.0.1:44281]}" in text


def test_every_ensemble_is_shown() -> None:
    text = metadata_text(
        replace(METADATA, fragments=(Fragment(0, ("a", "b")), Fragment(7, ("a", "c"))), custom={})
    )
    assert text.endswith("ensembles={0=[a, b], 7=[a, c]}, customMetadata={}}")


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
