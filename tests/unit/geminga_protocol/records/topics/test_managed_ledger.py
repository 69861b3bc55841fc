"""A topic's chain of ledgers comes back as Pulsar wrote it, whatever it holds."""

from __future__ import annotations

import pytest

from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.managed_ledgers_pb2 import ManagedLedgerInfo, OffloadContext
from geminga_protocol.records.topics.managed_ledger import (
    LedgerRecord,
    ManagedLedgerRecord,
    managed_ledger_path,
)

RECORDED = bytes.fromhex("0a0e0805101418b40b20f6b2eae09f340a0408122000")


def test_a_recorded_chain_says_which_ledgers_and_how_long_they_are() -> None:
    assert ManagedLedgerRecord.decode(RECORDED) == ManagedLedgerRecord(
        ledgers=(
            LedgerRecord(5, entries=20, size_bytes=1460, closed_at_ms=1795230964086),
            LedgerRecord(18),
        )
    )


def test_an_empty_node_is_a_log_without_ledgers() -> None:
    assert ManagedLedgerRecord.decode(b"") == ManagedLedgerRecord()
    assert ManagedLedgerRecord().encode() == b""


def test_termination_and_properties_come_back() -> None:
    record = ManagedLedgerRecord(
        ledgers=(LedgerRecord(5, 20, 1460, 7),),
        terminated_at=(5, 19),
        properties={"z": "1", "a": "ü"},
    )
    again = ManagedLedgerRecord.decode(record.encode())
    assert again == record
    assert list(again.properties) == ["z", "a"]


def test_what_is_said_of_offloading_is_kept_as_it_is() -> None:
    context = OffloadContext(uidMsb=1, uidLsb=2, complete=True)
    context.driverMetadata.name = "aws-s3"
    message = ManagedLedgerInfo()
    message.ledgerInfo.add(ledgerId=5, timestamp=0).offloadContext.CopyFrom(context)
    value = message.SerializeToString()
    record = ManagedLedgerRecord.decode(value)
    assert record.ledgers[0].offload == context.SerializeToString()
    assert record.encode() == value


def test_a_property_that_is_no_text_is_refused() -> None:
    with pytest.raises(MalformedRecord):
        ManagedLedgerRecord.decode(b"\x1a\x06\x0a\x01\xff\x12\x01a")


def test_a_log_stands_under_its_name() -> None:
    assert (
        managed_ledger_path("t/ns/persistent/orders") == "/managed-ledgers/t/ns/persistent/orders"
    )
