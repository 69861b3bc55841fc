"""Reads payloads that producers encrypted for the owner of a private key (PIP-4).

The other side of ``encryption``: data keys come with each payload, wrapped for each reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from geminga.errors import DecryptionFailed, MissingExtra, UnreadableMessage
from geminga_protocol.pulsar.api_pb2 import EncryptionKeys, MessageMetadata

# Unwrapping a data key takes a millisecond; a producer has a new one every few hours.
DATA_KEYS_KEPT_MAX = 1000

# Gets nonce, body and associated data.
Opens = Callable[[bytes, bytes, None], bytes]


class PrivateKeyReader(Protocol):
    """Knows the private keys of a consumer."""

    def private_key(self, name: str, metadata: Mapping[str, str], /) -> bytes:
        """The RSA key of this name in PEM; ``metadata`` is what its owner said with the public
        one. What it raises says that there is no such key. Must not block."""
        ...


class PrivateKeys:
    """Private keys in PEM, by their names."""

    def __init__(self, pems: Mapping[str, bytes]) -> None:
        self._pems = dict(pems)

    def private_key(self, name: str, _metadata: Mapping[str, str], /) -> bytes:
        """The key of this name; raises ``KeyError``."""
        return self._pems[name]


class Decryptor:
    """Decrypts the payloads of one topic, by whichever of its keys there is a private one for."""

    def __init__(self, keys: PrivateKeyReader) -> None:
        self._keys = keys
        self._opens: dict[bytes, Opens] = {}

    def decrypt(self, metadata: MessageMetadata, body: bytes) -> bytes:
        """The body before it was encrypted, still compressed.

        Raises ``DecryptionFailed``, and ``UnreadableMessage`` without the package ``cryptography``.
        """
        reasons: list[str] = []
        for wrapped in metadata.encryption_keys:
            try:
                opens = self._opens.get(wrapped.value) or self._unwrap(wrapped)
                return opens(metadata.encryption_param, body, None)
            except MissingExtra as error:
                raise UnreadableMessage(str(error)) from error
            except Exception as error:  # noqa: BLE001  # a user's code, and errors of many kinds
                reasons.append(f"{wrapped.key}: {error!r}")
        raise DecryptionFailed(f"none of its keys can be used ({', '.join(reasons)})")

    def _unwrap(self, wrapped: EncryptionKeys) -> Opens:
        try:
            from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
            from cryptography.hazmat.primitives.asymmetric import padding, rsa  # noqa: PLC0415
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtra("encryption", "encryption") from error
        told = {pair.key: pair.value for pair in wrapped.metadata}
        pem = self._keys.private_key(wrapped.key, told)
        private_key = serialization.load_pem_private_key(pem, None)
        if not isinstance(private_key, rsa.RSAPrivateKey):
            raise TypeError("it is no RSA key")
        sha1 = hashes.SHA1()  # noqa: S303  # in OAEP its weakness does not matter, and it is fixed
        oaep = padding.OAEP(padding.MGF1(sha1), sha1, None)
        opens: Opens = AESGCM(private_key.decrypt(wrapped.value, oaep)).decrypt
        if len(self._opens) >= DATA_KEYS_KEPT_MAX:
            del self._opens[next(iter(self._opens))]
        self._opens[wrapped.value] = opens
        return opens
