"""What the fake broker stored, opened as a consumer would."""

from __future__ import annotations

from tests.unit.geminga.fake_broker import LEDGER, FakeBroker

from geminga import Message
from geminga.entries import open_entry
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.payload import parse_metadata


def entries(broker: FakeBroker) -> list[list[Message]]:
    """The messages of each stored payload."""
    return [
        open_entry(
            "t",
            api.CommandMessage(
                consumer_id=0, message_id=api.MessageIdData(ledgerId=LEDGER, entryId=entry_id)
            ),
            payload,
            0,
            len(payload),
        ).messages
        for entry_id, payload in enumerate(broker.payloads)
    ]


def bodies(broker: FakeBroker) -> list[list[bytes]]:
    """The same, without what is said about them."""
    return [[message.payload for message in messages] for messages in entries(broker)]


def metadata_of(broker: FakeBroker) -> list[api.MessageMetadata]:
    """The metadata of each stored payload."""
    return [parse_metadata(payload) for payload in broker.payloads]
