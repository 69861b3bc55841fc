"""Proves that what was encrypted for a private key is read with it, and with no other."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.unit.geminga.fake_broker import FakeBroker, metadata, until

from geminga import (
    Client,
    ConsumerCryptoFailureAction,
    DecryptionFailed,
    Encryption,
    Message,
    PrivateKeys,
    PublicKeys,
    StringSchema,
)
from geminga.crypto.decryption import Decryptor
from geminga.crypto.encryption import Encryptor
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.messages.payload import encode_payload

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
    with pytest.raises(DecryptionFailed, match="mine: KeyError"):
        Decryptor(PrivateKeys({})).decrypt(described, body)
    with pytest.raises(DecryptionFailed, match="InvalidTag"):
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


def payloads_of_all_kinds() -> list[bytes]:
    """A message alone, a batch of three, and two chunks, which no key here decrypts."""
    compressed = zlib.compress(bytes(100))
    said = {"compression": api.ZLIB, "uncompressed_size": 100}
    kinds = [
        encrypted(compressed, **said, partition_key="k"),
        encrypted(compressed, **said, num_messages_in_batch=3),
        *(
            encrypted(b"part", uuid="a", chunk_id=index, num_chunks_from_msg=2)
            for index in range(2)
        ),
    ]
    return [encode_payload(*kind) for kind in kinds]


async def test_what_cannot_be_decrypted_is_discarded_where_the_consumer_says_so(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s", crypto_failure_action="discard")
    for entry_id, payload in enumerate(payloads_of_all_kinds()):
        broker.deliver(entry_id, payload=payload)
    broker.deliver(4, b"plain")
    assert (await consumer.receive()).data == b"plain"
    await until(lambda: broker.acked == [0, 1, 2, 3])


async def test_what_cannot_be_decrypted_is_received_as_it_is_where_the_consumer_says_so(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer(
        "orders", "s", crypto_failure_action="consume", schema=StringSchema()
    )
    for entry_id, payload in enumerate(payloads_of_all_kinds()):
        broker.deliver(entry_id, payload=payload)
    alone, batch, *chunks = [await consumer.receive() for _ in range(4)]
    assert (alone.key, alone.batch_index, batch.batch_index) == ("k", -1, -1)
    contexts = [each.encryption_context for each in (alone, batch, *chunks)]
    assert [each and (each.batch_size, each.chunk) for each in contexts] == [
        (None, None),
        (3, None),
        (None, (0, 2)),
        (None, (1, 2)),
    ]
    with pytest.raises(ValueError, match="still encrypted"):
        _ = alone.value
    assert (alone.schema, contexts[0] and contexts[0].is_decrypted) == (None, False)
    assert opened_by_hand(batch) == bytes(100)
    consumer.ack(batch)
    await until(lambda: broker.acked == [1])


def opened_by_hand(message: Message[Any]) -> bytes:
    """What the owner of the private key makes of a message as it is stored."""
    context = message.encryption_context
    assert context is not None
    assert (context.compression, context.uncompressed_bytes) == ("zlib", 100)
    sha1 = hashes.SHA1()  # what the format has
    oaep = padding.OAEP(padding.MGF1(sha1), sha1, None)
    data_key = PRIVATE.decrypt(context.keys["mine"].value, oaep)
    return zlib.decompress(AESGCM(data_key).decrypt(context.param, message.data, None))


async def test_a_message_that_was_decrypted_says_so(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer("orders", "s", decryption=PrivateKeys({"mine": PEM}))
    broker.deliver(0, payload=encode_payload(*encrypted(b"secret")))
    broker.deliver(1, b"plain")
    secret, plain = await consumer.receive(), await consumer.receive()
    assert secret.encryption_context is not None
    assert secret.encryption_context.is_decrypted
    assert plain.encryption_context is None


@pytest.mark.parametrize("action", ["fail", "discard", "consume"])
async def test_a_batch_that_cannot_be_decrypted_gives_all_its_permits_back(
    client: Client, broker: FakeBroker, action: ConsumerCryptoFailureAction
) -> None:
    consumer = await client.consumer(
        "orders", "s", receiver_queue_size=10, crypto_failure_action=action
    )
    described, body = encrypted(b"", num_messages_in_batch=10)
    broker.deliver(0, payload=encode_payload(described, body))
    if action == "consume":
        await consumer.receive()
    await until(lambda: broker.permits >= 19)  # the last one is granted with others


async def test_an_action_that_there_is_not_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="'ignore' is no crypto_failure_action"):
        client.consumer("orders", "s", crypto_failure_action=cast(Any, "ignore"))
