"""Encrypts payloads for the readers whose public keys a producer knows (PIP-4).

A producer makes a data key and sends it along with each payload, wrapped with the public key of
each reader (``key_wrapping``). Payloads are AES-GCM with 256 bits, as upstream's clients write and
read them.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from geminga.crypto.key_wrapping import wrap
from geminga.errors import EncryptionFailed, MissingExtra
from geminga_protocol.pulsar.api_pb2 import EncryptionKeys, MessageMetadata
from geminga_protocol.pulsar.commands import key_values

log = logging.getLogger(__name__)

DATA_KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
# As upstream's clients. Nonces are random: a key may encrypt 2^32 payloads before two alike are too
# likely (NIST SP 800-38D), which is 300,000 a second for so long.
DATA_KEY_LIFETIME_S = 4 * 3600.0
# A key reader that fails meanwhile is asked again after so long.
RENEWAL_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key in PEM (``pem``), RSA or of an elliptic curve.

    ``metadata`` (a version of the key, say) goes with each payload, so that readers find the
    private one. Of upstream's clients all read what is for RSA keys, and the Java client what is
    for curves.
    """

    pem: bytes
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])


class PublicKeyReader(Protocol):
    """Knows the public keys of those who may read what a producer sends."""

    def public_key(self, name: str, /) -> PublicKey:
        """The key of this name; what it raises fails the producer. Must not block."""
        ...


class PublicKeys:
    """Public keys in PEM, by their names."""

    def __init__(self, pems: Mapping[str, bytes]) -> None:
        self._pems = dict(pems)

    def public_key(self, name: str, /) -> PublicKey:
        """The key of this name; raises ``KeyError``."""
        return PublicKey(self._pems[name])


@dataclass(frozen=True, slots=True)
class Encryption:
    """How a producer encrypts: for the owners of the keys with the names ``key_names``, which
    ``keys`` knows. Raises ``ValueError`` without a name."""

    key_names: Sequence[str]
    keys: PublicKeyReader

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for what cannot be."""
        if isinstance(self.key_names, str) or not self.key_names:
            raise ValueError("key_names are a list of one name at least")


class Encryptor:
    """Encrypts the payloads of one producer, with a new data key from time to time.

    ``clock`` gives seconds that never go back. Raises ``EncryptionFailed`` for keys that cannot be
    used, ``MissingExtra`` without the package ``cryptography``.
    """

    def __init__(self, encryption: Encryption, clock: Callable[[], float]) -> None:
        self._encryption = encryption
        self._clock = clock
        self._ends_s = 0.0
        self._renew()

    def describe(self, metadata: MessageMetadata) -> None:
        """Say in a payload's metadata how it is encrypted; once, also for several chunks."""
        if self._clock() >= self._ends_s:
            try:
                self._renew()
            except EncryptionFailed as error:
                # What is to be sent was accepted: it goes with the key that there is.
                self._ends_s = self._clock() + RENEWAL_RETRY_S
                log.warning("data key not renewed", extra={"reason": str(error)})
        metadata.encryption_keys.extend(self._wrapped)
        metadata.encryption_param = bytes(NONCE_BYTES)

    def encrypt(self, metadata: MessageMetadata, body: bytes) -> bytes:
        """The encrypted body, ``TAG_BYTES`` longer; ``metadata`` was described, and gets its nonce.

        The body is what is left after compression, of a message in chunks one chunk.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        metadata.encryption_param = nonce
        return self._seal(nonce, body, None)

    def _renew(self) -> None:
        """Make a data key, and wrap it for each reader."""
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtra("encryption", "encryption") from error
        data_key = secrets.token_bytes(DATA_KEY_BYTES)
        self._wrapped = [self._wrap(name, data_key) for name in self._encryption.key_names]
        self._seal = AESGCM(data_key).encrypt
        self._ends_s = self._clock() + DATA_KEY_LIFETIME_S

    def _wrap(self, name: str, data_key: bytes) -> EncryptionKeys:
        try:
            key = self._encryption.keys.public_key(name)
            wrapped = wrap(key.pem, data_key)
        except MissingExtra:
            raise
        except Exception as error:  # a user's code, and a parser with errors of many kinds
            raise EncryptionFailed(name, repr(error)) from error
        return EncryptionKeys(key=name, value=wrapped, metadata=key_values(key.metadata))
