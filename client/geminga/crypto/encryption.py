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

# AES-GCM with keys of 256 bits, nonces of 96 and tags of 128.
DATA_KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
# As upstream's clients. Nonces are random: a key may encrypt 2^32 payloads before two alike are too
# likely (NIST SP 800-38D), which is 300,000 payloads a second for so long.
DATA_KEY_LIFETIME_S = 4 * 3600.0
# After a failed renewal the next one is tried after so long; the old key is used until then.
RENEWAL_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The public key of a reader, as a ``PublicKeyReader`` returns it.

    ``pem`` is an RSA key or one of an elliptic curve, in PEM. ``metadata``, a version of the key
    for example, goes with each payload and tells the reader which private key to use. All of
    upstream's clients read what was encrypted for RSA keys; for curves the Java client alone.
    """

    pem: bytes
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])


class PublicKeyReader(Protocol):
    """Finds the public keys of the readers that a producer encrypts for.

    ``PublicKeys`` is one; a class of your own may ask a key store.
    """

    def public_key(self, name: str, /) -> PublicKey:
        """Return the key of this name. Must not block.

        The producer fails with ``EncryptionFailed`` for whatever it raises.
        """
        ...


class PublicKeys:
    """Public keys in PEM, by their names: ``PublicKeys({"billing": pem_bytes})``."""

    def __init__(self, pems: Mapping[str, bytes]) -> None:
        self._pems = dict(pems)

    def public_key(self, name: str, /) -> PublicKey:
        """The key of this name; raises ``KeyError``."""
        return PublicKey(self._pems[name])


@dataclass(frozen=True, slots=True)
class Encryption:
    """For which readers a producer encrypts (``encryption`` of ``ProducerOptions``).

    Each owner of a key named in ``key_names`` can read the messages; ``keys`` finds these keys:

        Encryption(["billing"], PublicKeys({"billing": pem_bytes}))

    Raises ``ValueError`` without a name.
    """

    key_names: Sequence[str]
    keys: PublicKeyReader

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for what cannot be."""
        if isinstance(self.key_names, str) or not self.key_names:
            raise ValueError("key_names must be a list of at least one name")


# ``_wrapped`` and ``_seal`` belong to one data key and change together. A message takes the first
# in ``describe`` and the second in ``encrypt``, with no await in between: so the keys that it
# carries open it.
class Encryptor:
    """Encrypts the payloads of one producer, with a new data key every few hours.

    ``clock`` gives seconds that never go back. Raises ``EncryptionFailed`` for keys that cannot be
    used, ``MissingExtra`` without the package ``cryptography``.
    """

    def __init__(self, encryption: Encryption, clock: Callable[[], float]) -> None:
        self._encryption = encryption
        self._clock = clock
        # When the data key is due for renewal, in seconds of the clock.
        self._ends_s = 0.0
        # At once: a key that cannot be used is an error of opening, and not of the first message.
        self._renew()

    def describe(self, metadata: MessageMetadata) -> None:
        """Note in a payload's metadata how it is encrypted; once for all chunks of a message."""
        if self._clock() >= self._ends_s:
            try:
                self._renew()
            except EncryptionFailed as error:
                # The message was accepted already: it is sent with the key that there is.
                self._ends_s = self._clock() + RENEWAL_RETRY_S
                log.warning("data key not renewed", extra={"reason": str(error)})
        metadata.encryption_keys.extend(self._wrapped)
        # A placeholder of the right size: chunks are measured with it, and ``encrypt`` sets the
        # real one.
        metadata.encryption_param = bytes(NONCE_BYTES)

    def encrypt(self, metadata: MessageMetadata, body: bytes) -> bytes:
        """The encrypted body, ``TAG_BYTES`` longer. Call ``describe`` first.

        The body was compressed before, and is one chunk of a message in chunks: each has a nonce of
        its own.
        """
        # Never used twice with one key: two payloads with the same nonce would show their
        # difference, and let others forge payloads.
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
        # All or none: a message that some of its readers could not open would be lost to them.
        wrapped_keys: list[EncryptionKeys] = []
        for name in self._encryption.key_names:
            try:
                key = self._encryption.keys.public_key(name)
                wrapped = wrap(key.pem, data_key)
            except MissingExtra:
                raise
            except Exception as error:  # a user's code, and a parser with errors of many kinds
                raise EncryptionFailed(name, repr(error)) from error
            wrapped_keys.append(
                EncryptionKeys(key=name, value=wrapped, metadata=key_values(key.metadata))
            )
        # Only now, all at once: a renewal that failed half-way leaves the old key as it was.
        self._wrapped = wrapped_keys
        self._seal = AESGCM(data_key).encrypt
        self._ends_s = self._clock() + DATA_KEY_LIFETIME_S
