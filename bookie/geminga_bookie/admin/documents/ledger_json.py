"""A ledger's metadata as BookKeeper's tools and HTTP admin show it in JSON. Pure.

Facts: how Jackson writes ``LedgerMetadataImpl`` of Apache BookKeeper 4.17, the names and their
order included.
"""

from __future__ import annotations

from base64 import b64encode

from geminga_protocol.records.ledger_metadata import DigestType, LedgerMetadata, LedgerState

FORMAT_VERSION = 3
# What upstream says where the metadata does not have a value.
_NO_CREATION_TIME = -1
_NO_TOKEN = 0
# The API has another word for HMAC than the record.
_DIGEST_NAMES = {each: each.name for each in DigestType} | {DigestType.HMAC: "MAC"}


def metadata_json(
    ledger_id: int, metadata: LedgerMetadata, *, created_ms: int = 0
) -> dict[str, object]:
    """The whole record; bytes in base64.

    ``created_ms`` is the time at which the record's node was made, 0 where that is not known. It
    goes in where the record says no time of its own, as most do.
    """
    digest = metadata.digest_type
    return {
        "ledgerId": ledger_id,
        "metadataFormatVersion": FORMAT_VERSION,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "state": metadata.state.name,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry,
        "ctime": _creation_time_ms(metadata, created_ms),
        "digestType": None if digest is None else _DIGEST_NAMES[digest],
        "password": b64encode(metadata.password or b"").decode(),
        "customMetadata": {key: b64encode(each).decode() for key, each in metadata.custom.items()},
        "closed": metadata.state is LedgerState.CLOSED,
        "allEnsembles": {
            str(fragment.first_entry): [{"id": bookie_id} for bookie_id in fragment.ensemble]
            for fragment in metadata.fragments
        },
        "ctoken": _NO_TOKEN if metadata.creation_token is None else metadata.creation_token,
    }


def _creation_time_ms(metadata: LedgerMetadata, created_ms: int) -> int:
    if metadata.creation_time_ms is not None:
        return metadata.creation_time_ms
    return created_ms or _NO_CREATION_TIME
