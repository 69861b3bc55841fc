"""Reads payloads that producers encrypted for the owner of a private key (PIP-4).

The other side of ``encryption``: data keys come with each payload, wrapped for each reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from geminga.crypto.key_wrapping import unwrap
from geminga.errors import DecryptionFailed, MissingExtra, UnreadableMessage
from geminga_protocol.pulsar.api_pb2 import MessageMetadata

# Unwrapped data keys are kept: unwrapping one takes a millisecond, and a producer uses the same for
# hours. More producers than this at the same time are unlikely.
DATA_KEYS_KEPT_MAX = 1000

# Called with nonce, body and associated data, which Pulsar's format has none of.
Decrypt = Callable[[bytes, bytes, None], bytes]


class PrivateKeyReader(Protocol):
    """Finds the private keys of a consumer or reader.

    ``PrivateKeys`` is one; a class of your own may ask a key store.
    """

    def private_key(self, name: str, metadata: Mapping[str, str], /) -> bytes:
        """Return the key of this name in PEM, without a password: RSA, or of an elliptic curve.

        ``metadata`` is what the producer's ``PublicKey`` had. Whatever it raises means that there
        is no such key. Must not block.
        """
        ...


class PrivateKeys:
    """Private keys in PEM, by their names: ``PrivateKeys({"billing": pem_bytes})``."""

    def __init__(self, pems: Mapping[str, bytes]) -> None:
        self._pems = dict(pems)

    def private_key(self, name: str, _metadata: Mapping[str, str], /) -> bytes:
        """The key of this name; raises ``KeyError``."""
        return self._pems[name]


@dataclass(slots=True, eq=False)
class Decryptor:
    """Decrypts the payloads of one topic, each by the first of its keys that can be unwrapped."""

    keys: PrivateKeyReader
    # By wrapped data keys, in the order in which they first came.
    _decrypts: dict[bytes, Decrypt] = field(default_factory=dict[bytes, Decrypt], init=False)

    def decrypt(self, metadata: MessageMetadata, body: bytes) -> bytes:
        """The body before it was encrypted, still compressed.

        Raises ``DecryptionFailed``, and ``UnreadableMessage`` without the package ``cryptography``.
        """
        # A payload has its data key once for each reader, of which this client is one.
        reasons: list[str] = []
        for wrapped in metadata.encryption_keys:
            try:
                decrypt = self._decrypts.get(wrapped.value)
                if decrypt is None:
                    told = {pair.key: pair.value for pair in wrapped.metadata}
                    data_key = unwrap(self.keys.private_key(wrapped.key, told), wrapped.value)
                    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

                    decrypt = AESGCM(data_key).decrypt
                    if len(self._decrypts) >= DATA_KEYS_KEPT_MAX:
                        del self._decrypts[next(iter(self._decrypts))]
                    # Kept for the next payload even if this one fails below: the key was unwrapped,
                    # only the body is damaged.
                    self._decrypts[wrapped.value] = decrypt
                # A body that was changed on its way raises ``InvalidTag`` here.
                return decrypt(metadata.encryption_param, body, None)
            except MissingExtra as error:
                raise UnreadableMessage(str(error)) from error
            except Exception as error:  # noqa: BLE001  # a user's code, and errors of many kinds
                reasons.append(f"{wrapped.key}: {error!r}")
        raise DecryptionFailed(f"none of its keys can be used ({', '.join(reasons)})")
