"""Wraps the data keys of encrypted messages for their readers, and unwraps them.

For RSA keys by OAEP with SHA-1, as all of upstream's clients; for elliptic curves by ECIES, which
of these the Java client alone knows (Bouncy Castle's ``ECIES``, IEEE P1363a with KDF2 and HMAC of
SHA-1, the message XORed with a key as long as itself).
"""

# ruff: noqa: PLC0415, S303 - only users of encryption have cryptography; the hash is fixed

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from geminga.errors import MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec, padding

MAC_KEY_BYTES = 16
MAC_BYTES = 20
# The length in bits of the MAC's second argument, which this form of ECIES has none of.
MAC_LENGTH_TAG = bytes(8)
# The first byte of a point with both coordinates (X9.62); compressed points have one coordinate.
UNCOMPRESSED_POINT = 4


def wrap(public_pem: bytes, data_key: bytes) -> bytes:
    """Wrap a data key for the owner of a public key in PEM.

    Raises ``MissingExtra``, ``ValueError`` for bytes that are no key, ``TypeError`` for a key of
    another kind.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec, rsa
    except ImportError as error:
        raise MissingExtra("encryption", "encryption") from error
    public_key = serialization.load_pem_public_key(public_pem)
    if isinstance(public_key, rsa.RSAPublicKey):
        return public_key.encrypt(data_key, _oaep())
    if isinstance(public_key, ec.EllipticCurvePublicKey):
        return _wrap_by_curve(public_key, data_key)
    raise TypeError("it is neither an RSA key nor one of an elliptic curve")


def unwrap(private_pem: bytes, wrapped: bytes) -> bytes:
    """Unwrap a data key that was wrapped for the owner of this private key in PEM.

    Raises ``MissingExtra``, ``TypeError`` for a key of another kind, ``ValueError`` for bytes that
    were not wrapped for it.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec, rsa
    except ImportError as error:
        raise MissingExtra("encryption", "encryption") from error
    private_key = serialization.load_pem_private_key(private_pem, None)
    if isinstance(private_key, rsa.RSAPrivateKey):
        return private_key.decrypt(wrapped, _oaep())
    if isinstance(private_key, ec.EllipticCurvePrivateKey):
        return _unwrap_by_curve(private_key, wrapped)
    raise TypeError("it is neither an RSA key nor one of an elliptic curve")


def _oaep() -> padding.OAEP:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    sha1 = hashes.SHA1()  # in OAEP its weakness does not matter
    return padding.OAEP(padding.MGF1(sha1), sha1, None)


# +---------------------------+----------------+--------------+
# | point: an ephemeral key's | data key ^ key | HMAC (20 B)  |    of data key ^ key, MAC_LENGTH_TAG
# +---------------------------+----------------+--------------+
def _wrap_by_curve(public_key: ec.EllipticCurvePublicKey, data_key: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    # A new one each time: two wrapped keys have nothing in common.
    ephemeral = ec.generate_private_key(public_key.curve)
    point = ephemeral.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    secret = ephemeral.exchange(ec.ECDH(), public_key)
    mac_key, key = _derived(point, secret, len(data_key))
    # The key stream is as long as the data key and used once, since each wrapping has an ephemeral
    # key of its own.
    sealed = _xor(data_key, key)
    return point + sealed + hmac.digest(mac_key, sealed + MAC_LENGTH_TAG, "sha1")


def _unwrap_by_curve(private_key: ec.EllipticCurvePrivateKey, wrapped: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric import ec

    curve = private_key.curve
    # Other clients may write compressed points; this one never does.
    coordinates = 2 if wrapped[:1] == bytes([UNCOMPRESSED_POINT]) else 1
    point_bytes = 1 + coordinates * ((curve.key_size + 7) // 8)
    # The size of the point follows from the curve, that of the MAC from its hash: no part has its
    # size written down.
    point, sealed = wrapped[:point_bytes], wrapped[point_bytes:-MAC_BYTES]
    ephemeral = ec.EllipticCurvePublicKey.from_encoded_point(curve, point)
    secret = private_key.exchange(ec.ECDH(), ephemeral)
    mac_key, key = _derived(point, secret, len(sealed))
    mac = hmac.digest(mac_key, sealed + MAC_LENGTH_TAG, "sha1")
    # Compared in constant time: how long it takes must not say how many bytes were right.
    if not hmac.compare_digest(wrapped[-MAC_BYTES:], mac):
        raise ValueError("it was wrapped for another key")
    return _xor(sealed, key)


def _derived(point: bytes, secret: bytes, key_bytes: int) -> tuple[bytes, bytes]:
    """The keys for the MAC and for the data key; KDF2 is the derivation of ANSI X9.63."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.x963kdf import X963KDF

    derivation = X963KDF(hashes.SHA1(), MAC_KEY_BYTES + key_bytes, None)
    # The point is part of the secret (IEEE P1363a's DHAES mode): another point with the same secret
    # gives other keys.
    derived = derivation.derive(point + secret)
    return derived[:MAC_KEY_BYTES], derived[MAC_KEY_BYTES:]


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
