"""Proves that what was encrypted for a private key is read with it, and with no other."""

from __future__ import annotations

import asyncio

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.unit.geminga.fake_broker import FakeBroker, metadata, until

from geminga import Client, Encryption, PrivateKeys, PublicKeys, UnreadableMessage
from geminga.decryption import Decryptor
from geminga.encryption import Encryptor
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.payload import encode_payload

PRIVATE = rsa.generate_private_key(65537, 2048)
PEM = PRIVATE.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
)
PUBLIC = PRIVATE.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def encrypted(body: bytes, **said: object) -> tuple[api.MessageMetadata, bytes]:
    """The metadata and body of a payload, encrypted for the owner of ``mine`` and another."""
    described = metadata()
    for name, value in said.items():
        setattr(described, name, value)
    keys = PublicKeys({"theirs": PUBLIC, "mine": PUBLIC})
    encryptor = Encryptor(Encryption(["theirs", "mine"], keys), lambda: 0.0)
    encryptor.describe(described)
    return described, encryptor.encrypt(described, body)


def test_the_owner_of_one_of_the_keys_reads_it() -> None:
    decryptor = Decryptor(PrivateKeys({"mine": PEM}))
    described, body = encrypted(b"secret")
    assert decryptor.decrypt(described, body) == b"secret"
    assert decryptor.decrypt(described, body) == b"secret"


def test_without_a_key_and_with_a_changed_body_it_is_unreadable() -> None:
    described, body = encrypted(b"secret")
    with pytest.raises(UnreadableMessage, match="mine: KeyError"):
        Decryptor(PrivateKeys({})).decrypt(described, body)
    with pytest.raises(UnreadableMessage, match="InvalidTag"):
        Decryptor(PrivateKeys({"mine": PEM})).decrypt(described, b"x" + body[1:])


async def test_a_consumer_reads_messages_and_chunks_with_its_private_key(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s", decryption=PrivateKeys({"mine": PEM}))
    broker.deliver(0, payload=encode_payload(*encrypted(b"secret")))
    for index in range(2):
        said = {"uuid": "a", "chunk_id": index, "num_chunks_from_msg": 2}
        described, body = encrypted(b"part%d" % index, **said)
        broker.deliver(1 + index, payload=encode_payload(described, body))
    assert [(await consumer.receive()).data for _ in range(2)] == [b"secret", b"part0part1"]


async def test_without_a_private_key_a_message_waits_for_a_consumer_that_has_it(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s", nack_delay_s=1)
    broker.deliver(0, payload=encode_payload(*encrypted(b"secret")))
    await until(lambda: bool(broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await consumer.receive()
