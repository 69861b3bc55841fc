"""Proves what results say of the message that they came of."""

from __future__ import annotations

import base64

import pytest

import geminga
from geminga.messages import BatchAcks, Delivery
from geminga_functions.instance.settling import id_text
from geminga_protocol.pulsar.api_pb2 import MessageMetadata

TOPIC = "persistent://public/default/t"


@pytest.mark.parametrize("partition", [-1, 0, 300])
@pytest.mark.parametrize("index", [-1, 0, 999])
@pytest.mark.parametrize("chunks", [(), ((3, 1), (3, 2))])
def test_the_id_of_an_input_is_that_which_every_client_reads(
    partition: int, index: int, chunks: tuple[tuple[int, int], ...]
) -> None:
    acks = None if index < 0 else BatchAcks(1000)
    delivery = Delivery(
        TOPIC, (1 << 33, 1 << 20), partition, MessageMetadata(), acks=acks, chunks=chunks
    )
    message: geminga.Message[bytes] = geminga.Message(b"", delivery, index)
    text = id_text(message)
    assert text == base64.urlsafe_b64encode(message.id.to_bytes()).decode()
    found = geminga.MessageId.from_bytes(base64.urlsafe_b64decode(text))
    assert (found, found.batch_size) == (message.id, message.id.batch_size)
