"""Proves that a stored entry is shown with upstream's headers, and without its compression."""

from __future__ import annotations

import json
import zlib

from geminga_broker.admin.documents.message import message_body, message_headers
from geminga_broker.managed_ledger.positions import Position
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_broker_entry, encode_payload

AT = Position(3, 10)


def metadata_of(**fields: object) -> api.MessageMetadata:
    return api.MessageMetadata(
        producer_name="standalone-0-0",
        sequence_id=1,
        publish_time=1795272918741,
        **fields,  # type: ignore[arg-type]  # whatever a test sets
    )


def test_a_single_message_has_the_headers_of_a_real_broker() -> None:
    metadata = metadata_of(partition_key="kk", properties=[api.KeyValue(key="k", value="v")])
    assert message_headers(AT, encode_payload(metadata, b"m1")) == {
        "X-Pulsar-Message-ID": "3:10",
        "X-Pulsar-PROPERTY": '{"k":"v"}',
        "X-Pulsar-publish-time": "2026-11-21T14:55:18.741Z",
        "X-Pulsar-Is-Encrypted": "false",
        "X-Pulsar-producer-name": "standalone-0-0",
        "X-Pulsar-sequence-id": "1",
        "X-Pulsar-partition-key": "kk",
        "X-Pulsar-txn-uncommitted": "false",
    }


def test_a_batch_says_how_many_and_how_large() -> None:
    headers = message_headers(AT, encode_payload(metadata_of(num_messages_in_batch=5), bytes(60)))
    assert headers["X-Pulsar-num-batch-message"] == "5"
    assert headers["X-Pulsar-batch-size"] == "70"  # the ten bytes before the metadata count too


def test_a_header_never_holds_what_http_cannot_send() -> None:
    metadata = metadata_of(
        partition_key="schlüssel\r\nX: y", properties=[api.KeyValue(key="ü", value="\n")]
    )
    for value in message_headers(AT, encode_payload(metadata, b"m")).values():
        assert value.isascii()
        assert value.isprintable()
    headers = message_headers(AT, encode_payload(metadata, b"m"))
    assert json.loads(headers["X-Pulsar-PROPERTY"]) == {"ü": "\n"}


def test_the_brokers_own_metadata_is_shown_beside() -> None:
    noted = encode_broker_entry(api.BrokerEntryMetadata(broker_timestamp=1795272918741, index=7))
    payload = noted + encode_payload(metadata_of(event_time=1795272918000), b"m")
    headers = message_headers(AT, payload)
    assert headers["X-Pulsar-Broker-Entry-METADATA-index"] == "7"
    assert headers["X-Pulsar-Broker-Entry-METADATA-timestamp"] == "2026-11-21T14:55:18.741Z"
    assert headers["X-Pulsar-event-time"] == "2026-11-21T14:55:18Z"
    assert message_body(payload) == b"m"


def test_a_compressed_message_is_shown_as_it_was() -> None:
    metadata = metadata_of(compression=api.CompressionType.ZLIB, uncompressed_size=400)
    payload = encode_payload(metadata, zlib.compress(b"four" * 100))
    assert message_body(payload) == b"four" * 100
    assert message_headers(AT, payload)["X-Pulsar-compression"] == "ZLIB"


def test_an_encrypted_message_is_shown_as_it_is_stored() -> None:
    metadata = metadata_of(compression=api.CompressionType.LZ4, uncompressed_size=400)
    metadata.encryption_keys.add(key="k", value=b"v")
    assert message_body(encode_payload(metadata, b"secret")) == b"secret"


def test_a_message_that_claims_to_be_huge_is_shown_as_it_is_stored() -> None:
    metadata = metadata_of(compression=api.CompressionType.ZLIB, uncompressed_size=2**32 - 1)
    assert message_body(encode_payload(metadata, b"small")) == b"small"
