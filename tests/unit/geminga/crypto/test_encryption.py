"""Proves that payloads are encrypted for each reader, and never sent as they are instead."""

from __future__ import annotations

import sys

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.unit.geminga.fake_broker import MAX_MESSAGE_BYTES, FakeBroker, Session

from geminga import Client, Encryption, EncryptionFailed, MissingExtra, PublicKey, PublicKeys
from geminga.crypto.encryption import DATA_KEY_LIFETIME_S, RENEWAL_RETRY_S, Encryptor
from geminga_protocol.pulsar.api_pb2 import BaseCommand, MessageMetadata
from geminga_protocol.pulsar.messages.payload import open_payload, split_batch
from geminga_protocol.pulsar.send import encode_receipt

PRIVATE = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)


def pem(private: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


KEYS = PublicKeys({"mine": pem(PRIVATE), "theirs": pem(OTHER)})


def decrypt(metadata: MessageMetadata, body: bytes, name: str, private: rsa.RSAPrivateKey) -> bytes:
    """What the owner of a private key reads."""
    (wrapped,) = [each.value for each in metadata.encryption_keys if each.key == name]
    sha1 = hashes.SHA1()  # what the format has
    data_key = private.decrypt(wrapped, padding.OAEP(padding.MGF1(sha1), sha1, None))
    return AESGCM(data_key).decrypt(metadata.encryption_param, body, None)


async def test_batches_messages_alone_and_chunks_are_read_by_each_owner_of_a_key(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SEND, confirm)
    producer = await client.producer(
        "orders", encryption=Encryption(["mine", "theirs"], KEYS), compression="zlib", chunking=True
    )
    producer.send_nowait(b"0")
    producer.send_nowait(b"1", key="k")
    await producer.flush()
    await producer.send(b"alone")
    large = bytes(range(256)) * (MAX_MESSAGE_BYTES // 128)
    incompressible = AESGCM(bytes(32)).encrypt(bytes(12), large, None)
    await producer.send(incompressible)
    assert broker.of_type(BaseCommand.PRODUCER)[0].producer.encrypted
    opened: list[tuple[MessageMetadata, bytes]] = []
    for payload in broker.payloads:
        metadata, start = open_payload(payload, 0, len(payload))
        body = decrypt(metadata, payload[start:], "mine", PRIVATE)
        assert decrypt(metadata, payload[start:], "theirs", OTHER) == body
        opened.append((metadata, body))
    assert [body for _, body in split_batch(opened[0][1], 2)] == [b"0", b"1"]
    assert opened[1][1] == b"alone"
    assert b"".join(body for _, body in opened[2:]) == incompressible
    assert len(opened) > 4
    assert max(map(len, broker.payloads)) <= MAX_MESSAGE_BYTES
    assert len({metadata.encryption_param for metadata, _ in opened}) == len(opened)


def confirm(session: Session, command: BaseCommand, payload: bytes) -> None:
    """Store what cannot be looked into."""
    session.broker.payloads.append(payload)
    send = command.send
    session.write(encode_receipt(send.producer_id, send.sequence_id, 0, 1, 1))


async def test_keys_that_cannot_be_used_fail_the_producer(client: Client) -> None:
    other = ed25519.Ed25519PrivateKey.generate()
    keys = PublicKeys({"mine": pem(other), "broken": b"no PEM"})
    reasons = {"mine": "neither an RSA key", "broken": "cannot be used", "none": "KeyErr"}
    for name, reason in reasons.items():
        with pytest.raises(EncryptionFailed, match=reason) as caught:
            await client.producer("orders", encryption=Encryption([name], keys))
        assert caught.value.key_name == name
    nothing: list[str] = []
    for names in (nothing, "mine"):
        with pytest.raises(ValueError, match="at least one name"):
            Encryption(names, KEYS)


async def test_a_missing_package_names_what_to_install(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(MissingExtra, match=r"pip install 'geminga\[encryption\]'"):
        await client.producer("orders", encryption=Encryption(["mine"], KEYS))


class Changing:
    """A reader of keys that fails when it is told to."""

    fails = False

    def public_key(self, name: str, /) -> PublicKey:
        if self.fails:
            raise OSError
        return PublicKey(KEYS.public_key(name).pem, {"version": "7"})


def test_data_keys_are_renewed_and_an_old_one_serves_where_that_fails() -> None:
    now_s = 0.0
    keys = Changing()
    encryptor = Encryptor(Encryption(["mine"], keys), lambda: now_s)

    def wrapped() -> bytes:
        metadata = MessageMetadata()
        encryptor.describe(metadata)
        (key,) = metadata.encryption_keys
        assert [(pair.key, pair.value) for pair in key.metadata] == [("version", "7")]
        return key.value

    first = wrapped()
    now_s = DATA_KEY_LIFETIME_S - 1
    assert wrapped() == first
    keys.fails = True
    now_s = DATA_KEY_LIFETIME_S
    assert wrapped() == first
    keys.fails = False
    assert wrapped() == first, "not asked at every payload"
    now_s += RENEWAL_RETRY_S
    assert wrapped() != first
