"""A ledger's metadata reads as a real broker shows it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from geminga_broker.admin.documents.internal_stats import metadata_text
from geminga_protocol.records.ledgers.ledger_metadata import Fragment, LedgerMetadata

GOLDEN = Path(__file__).parents[4] / "golden" / "admin" / "internal-stats.json"
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
    recorded = json.loads(GOLDEN.read_text())["live"]["ledgers"][0]["metadata"]
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
