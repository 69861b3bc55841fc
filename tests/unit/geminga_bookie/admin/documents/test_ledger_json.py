"""Metadata is shown as a real BookKeeper's HTTP service showed a ledger of that record."""

from __future__ import annotations

from dataclasses import replace

from geminga_bookie.admin.documents.ledger_json import metadata_json
from geminga_protocol.records.ledgers.ledger_metadata import DigestType, Fragment, LedgerMetadata

METADATA = LedgerMetadata(
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=2,
    fragments=(Fragment(0, ("127.0.0.1:38481", "127.0.0.1:13181")),),
    creation_time_ms=1795247298617,
    custom={"Bookie": b"simpletest"},
    creation_token=3063419958272034078,
)


def test_it_is_the_recorded_json() -> None:
    assert metadata_json(2, METADATA) == {
        "ledgerId": 2,
        "metadataFormatVersion": 3,
        "ensembleSize": 2,
        "writeQuorumSize": 2,
        "ackQuorumSize": 2,
        "state": "OPEN",
        "length": 0,
        "lastEntryId": -1,
        "ctime": 1795247298617,
        "digestType": "CRC32C",
        "password": "",
        "customMetadata": {"Bookie": "c2ltcGxldGVzdA=="},
        "closed": False,
        "allEnsembles": {"0": [{"id": "127.0.0.1:38481"}, {"id": "127.0.0.1:13181"}]},
        "ctoken": 3063419958272034078,
    }


def test_a_record_without_a_time_has_that_of_its_node() -> None:
    bare = replace(METADATA, creation_time_ms=None)
    assert metadata_json(2, bare, created_ms=77)["ctime"] == 77
    assert metadata_json(2, METADATA, created_ms=77)["ctime"] == METADATA.creation_time_ms


def test_what_a_record_does_not_say_has_upstreams_word_for_it() -> None:
    bare = replace(METADATA, creation_time_ms=None, creation_token=None, digest_type=None)
    shown = metadata_json(2, bare)
    assert (shown["ctime"], shown["ctoken"], shown["digestType"]) == (-1, 0, None)
    mac = metadata_json(2, replace(METADATA, digest_type=DigestType.HMAC, password=b"secret"))
    assert (mac["digestType"], mac["password"]) == ("MAC", "c2VjcmV0")
