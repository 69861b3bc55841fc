"""Proves that data keys are wrapped for RSA keys and for curves as upstream's Java client does."""

from __future__ import annotations

from base64 import b64decode

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from geminga.crypto.key_wrapping import unwrap, wrap

DATA_KEY = bytes(range(32))

# A key, what Pulsar's Java client 4.0.6 wrapped for it, and the payload that it encrypted with the
# data key: nonce and body of the message b"from java".
P256 = b"""-----BEGIN EC PRIVATE KEY-----
MHcCAQEEID1wGaZGsqKTGH9KWfOSP2nFWWyVtmNP8juriTlYUfxkoAoGCCqGSM49
AwEHoUQDQgAE3Yus5Ya5d20KCyws5tM7Id9thow+rUsAIKfoBRltDJCdEWy0seaD
sppMqhpUrUlIzZjfINCt3sDnU0bgymLGtw==
-----END EC PRIVATE KEY-----
"""
P256_WRAPPED = b64decode(
    "BDvG0kyO9O7wllFitHdNPkTUr1ArkdMKta3axNTTsjsXwCff8YrmLh9eSb/5c+Uh0bw4BvWaXDxj215hZyCDH5phUCcv"
    "Z6LjZeLT6+8nGatQqYSL/T72SMKnsmsfURma6ZVWnLC0Rd9XG5Ow/SGUXSia4O2n"
)
P256_NONCE = bytes.fromhex("5c778b50a9883080cc70e0ed")
P256_BODY = bytes.fromhex("0db7214108f537b8e34840f4ba96420aa17e719e02a87c71fc")
P521 = b"""-----BEGIN EC PRIVATE KEY-----
MIHcAgEBBEIAd72Dmk6GSspdz9YSg7DKyFE/FzpOR57SdnOL2jaDPE/ta6o8NYIB
jII5rXzx2qXL7MIKB+f96QnoWXmXhuAeFkKgBwYFK4EEACOhgYkDgYYABADziPtA
AolAkEGULTQen5O8XArPvYV9ViNvRRAgdxnxxsCoHCQYy6qTzLsEk6YOK7s9vYr7
6+iZF8M3v5NvUwy7xgER6v3gAtSWorG3e9Rr01P/zRKPpYj8gT+DADDE5YxtFD8/
91pzoRIRByfASzObN1HUsDdFJgrBQ51VfeaVyzJoAw==
-----END EC PRIVATE KEY-----
"""
P521_WRAPPED = b64decode(
    "BACFmnPumHQKCpNEBlwhpO44MNShdRfZZB3bc1UpUlpzBCgMDWL7Qyn0Z+QI5UPDRtMpXwFwjeDgmhpNLaD3OvTfsQAr"
    "eoWhiYirL22Ilhv9UnpJt6+gRhPihvrzKINl2MNmuO3/AsJxiYuU/eYAhuuerKNzzlZ/L+TGbD1wlnLpb0dOTUw83E94"
    "r+rRZVaovHMi1boKB83hpa77zMOTaVc8YbkUFZL1Fp8shY6o8FQDnx0UplhrI8E="
)
P521_NONCE = bytes.fromhex("a6d39b91aac7996933f949c7")
P521_BODY = bytes.fromhex("a4ae99a6571d87994b418778e5545caceb546bf16c66488492")

Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def pems(private: Private) -> tuple[bytes, bytes]:
    """The private and the public key."""
    return private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ), private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


@pytest.mark.parametrize(
    ("private", "wrapped", "nonce", "body"),
    [
        (P256, P256_WRAPPED, P256_NONCE, P256_BODY),
        (P521, P521_WRAPPED, P521_NONCE, P521_BODY),
    ],
    ids=["P-256", "P-521"],
)
def test_what_the_java_client_wrapped_for_a_curve_is_read(
    private: bytes, wrapped: bytes, nonce: bytes, body: bytes
) -> None:
    assert AESGCM(unwrap(private, wrapped)).decrypt(nonce, body, None) == b"from java"


@pytest.mark.parametrize(
    "private",
    [
        rsa.generate_private_key(65537, 2048),
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP521R1()),
    ],
    ids=["RSA", "P-256", "P-384", "P-521"],
)
def test_what_was_wrapped_is_for_the_owner_alone(private: Private) -> None:
    private_pem, public_pem = pems(private)
    wrapped = wrap(public_pem, DATA_KEY)
    assert DATA_KEY not in wrapped
    assert wrap(public_pem, DATA_KEY) != wrapped, "there is chance in it"
    assert unwrap(private_pem, wrapped) == DATA_KEY
    for damaged in (wrapped[:-1] + bytes([wrapped[-1] ^ 1]), wrapped[:40], b""):
        with pytest.raises(ValueError):  # noqa: PT011 - each library has words of its own
            unwrap(private_pem, damaged)


def test_keys_of_other_kinds_are_refused() -> None:
    private_pem, public_pem = pems(ed25519.Ed25519PrivateKey.generate())
    with pytest.raises(TypeError, match="neither an RSA key"):
        wrap(public_pem, DATA_KEY)
    with pytest.raises(TypeError, match="neither an RSA key"):
        unwrap(private_pem, DATA_KEY)
