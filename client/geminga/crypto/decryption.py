"""Reads payloads that producers encrypted for the owner of a private key (PIP-4).

The other side of ``encryption``: data keys come with each payload, wrapped for each reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from geminga.crypto.key_wrapping import unwrap
from geminga.errors import DecryptionFailed, MissingExtra, UnreadableMessage
from geminga_protocol.pulsar.api_pb2 import EncryptionKeys, MessageMetadata

# Unwrapping a data key takes a millisecond; a producer has a new one every few hours.
DATA_KEYS_KEPT_MAX = 1000

# Gets nonce, body and associated data.
Opens = Callable[[bytes, bytes, None], bytes]


class PrivateKeyReader(Protocol):
    """Knows the private keys of a consumer."""

    def private_key(self, name: str, metadata: Mapping[str, str], /) -> bytes:
        """The key of this name in PEM, without a password: RSA, or of an elliptic curve.

        ``metadata`` is what its owner said with the public one. What it raises says that there is
        no such key. Must not block."""
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
        told = {pair.key: pair.value for pair in wrapped.metadata}
        data_key = unwrap(self._keys.private_key(wrapped.key, told), wrapped.value)
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        opens: Opens = AESGCM(data_key).decrypt
        if len(self._opens) >= DATA_KEYS_KEPT_MAX:
            del self._opens[next(iter(self._opens))]
        self._opens[wrapped.value] = opens
        return opens
