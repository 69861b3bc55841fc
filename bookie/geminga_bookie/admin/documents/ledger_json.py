"""A ledger's metadata as BookKeeper's tools and HTTP admin show it in JSON. Pure.

Facts: how Jackson writes ``LedgerMetadataImpl`` of Apache BookKeeper 4.17, the names and their
order included.
"""

from __future__ import annotations

from base64 import b64encode

from geminga_protocol.records.ledgers.ledger_metadata import DigestType, LedgerMetadata, LedgerState

FORMAT_VERSION = 3
# What upstream says where the metadata does not have a value.
_NO_CREATION_TIME = -1
_NO_TOKEN = 0
# The API has another word for HMAC than the record.
_DIGEST_NAMES = {each: each.name for each in DigestType} | {DigestType.HMAC: "MAC"}


def metadata_json(
    ledger_id: int, metadata: LedgerMetadata, *, created_ms: int = 0
) -> dict[str, object]:
    """Show the whole record; bytes in base64.

    ``created_ms`` is the time at which the record's node was made, 0 where that is not known. It
    stands in for a creation time in the record itself, which most records lack.
    """
    digest = metadata.digest_type
    ctime_ms = metadata.creation_time_ms
    if ctime_ms is None:
        ctime_ms = created_ms or _NO_CREATION_TIME
    return {
        "ledgerId": ledger_id,
        "metadataFormatVersion": FORMAT_VERSION,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "state": metadata.state.name,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry,
        "ctime": ctime_ms,
        "digestType": None if digest is None else _DIGEST_NAMES[digest],
        # As upstream shows it. So the endpoint is for administrators (``routes``).
        "password": b64encode(metadata.password or b"").decode(),
        "customMetadata": {key: b64encode(each).decode() for key, each in metadata.custom.items()},
        "closed": metadata.state is LedgerState.CLOSED,
        "allEnsembles": {
            str(fragment.first_entry): [{"id": bookie_id} for bookie_id in fragment.ensemble]
            for fragment in metadata.fragments
        },
        "ctoken": _NO_TOKEN if metadata.creation_token is None else metadata.creation_token,
    }
